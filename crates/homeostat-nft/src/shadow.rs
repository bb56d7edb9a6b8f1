//! Our tables as the kernel's own words leave them, so that a hint does not cost a dump of everything.
//!
//! A full look shows the tables at one generation; each commit afterwards is told message by message, with
//! its generation, and the next one in the row is followed. Whatever is missing, or not understood beyond
//! doubt, is read again: a generation too many gives everything up, an unclear word its table. What is
//! answered from here counts only while the kernel still has the generation that was followed to.

mod held;
mod places;

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_netlink::uapi::NFTA_GEN_ID;
use homeostat_netlink::{Attrs, Event, Malformed, Message};

use crate::dump::{self, Generation, Head, TABLE};
use crate::key::{Family, Key};
use crate::message::{self, COMMIT, NO_TABLE};
use crate::model::Table;
use crate::tlv::{be32, name};
use held::Held;

/// What is known of the tables that matter.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    followed: Option<Followed>,
}

#[derive(Debug)]
struct Followed {
    generation: Generation,
    /// Whether a commit was begun whose end is not told yet.
    is_under_way: bool,
    tables: BTreeMap<Key, State>,
}

#[derive(Debug)]
enum State {
    Absent,
    Held(Box<Held>),
    /// Something was told that only another look can explain.
    Unclear,
}

/// What is known of one table.
#[derive(Debug)]
pub(crate) enum Known {
    /// It is not there.
    Absent,
    /// It is like this.
    Held(Head, Arc<Table>),
    /// Somebody has to look.
    Nothing,
}

/// How a message stands to the commit that is expected next.
enum Turn {
    Over,
    Now,
    TooFar,
}

impl Shadow {
    /// The generation that everything here belongs to; none while nothing can be told for certain.
    pub(crate) fn generation(&self) -> Option<Generation> {
        let followed = self.followed.as_ref().filter(|followed| !followed.is_under_way)?;
        Some(followed.generation)
    }

    /// Forgets everything.
    pub(crate) fn give_up(&mut self) {
        self.followed = None;
    }

    /// Forgets everything but what was just seen.
    pub(crate) fn begin(&mut self, generation: Generation) {
        let tables = BTreeMap::new();
        self.followed = Some(Followed { generation, is_under_way: false, tables });
    }

    /// Takes in what a look at one table has shown.
    pub(crate) fn know(&mut self, key: Key, seen: Option<(&Head, &Arc<Table>)>) {
        let state = seen.map_or(State::Absent, |(head, table)| {
            State::Held(Box::new(Held::new(head.clone(), Arc::clone(table))))
        });
        if let Some(followed) = &mut self.followed {
            followed.tables.insert(key, state);
        }
    }

    pub(crate) fn known(&self, key: &Key) -> Known {
        let followed = self.followed.as_ref();
        match followed.and_then(|followed| followed.tables.get(key)) {
            Some(State::Absent) => Known::Absent,
            Some(State::Held(held)) => Known::Held(held.head.clone(), Arc::clone(&held.table)),
            Some(State::Unclear) | None => Known::Nothing,
        }
    }

    /// Follows one event. What cannot be followed is forgotten.
    pub(crate) fn hear(&mut self, event: &Event<'_>) {
        let Some(followed) = &mut self.followed else { return };
        let is_followed = match event {
            Event::Lost => false,
            Event::Message(message) => followed.take(message).unwrap_or(false),
        };
        if !is_followed {
            self.give_up();
        }
    }
}

impl Followed {
    /// Whether the message follows on what is known.
    fn take(&mut self, message: &Message<'_>) -> Result<bool, Malformed> {
        let ([family, _, high, low], attrs) = message.split::<4>()?;
        if message.kind == COMMIT {
            let generation = be32(&attrs, NFTA_GEN_ID)?.ok_or(Malformed::Payload)?;
            return Ok(self.end(generation));
        }
        // Each message tells the end of the generation that it belongs to.
        Ok(match self.turn(u16::from_be_bytes([*high, *low])) {
            Turn::Over => true,
            Turn::TooFar => false,
            Turn::Now => {
                self.is_under_way = true;
                self.follow(message, Family(*family), &attrs)?;
                true
            }
        })
    }

    fn turn(&self, label: u16) -> Turn {
        let [_, _, high, low] = after(self.generation).to_be_bytes();
        let ahead = label.wrapping_sub(u16::from_be_bytes([high, low])).cast_signed();
        match ahead {
            0 => Turn::Now,
            ..0 => Turn::Over,
            _ => Turn::TooFar,
        }
    }

    fn end(&mut self, generation: Generation) -> bool {
        if generation.wrapping_sub(self.generation).cast_signed() <= 0 {
            return true;
        }
        if generation != after(self.generation) {
            return false;
        }
        (self.generation, self.is_under_way) = (generation, false);
        for state in self.tables.values_mut() {
            if let State::Held(held) = state
                && held.settle().is_err()
            {
                *state = State::Unclear;
            }
        }
        true
    }

    fn follow(
        &mut self,
        message: &Message<'_>,
        family: Family,
        attrs: &Attrs<'_>,
    ) -> Result<(), Malformed> {
        let key = Key { family, name: name(attrs, TABLE)? };
        let Some(state) = self.tables.get_mut(&key) else { return Ok(()) };
        match state {
            _ if message.kind == NO_TABLE => *state = State::Absent,
            State::Held(held) => {
                if held.hear(message, attrs).is_err() {
                    *state = State::Unclear;
                }
            }
            State::Absent if message.kind == message::TABLE => {
                let head = dump::head(family, attrs)?;
                let table = Arc::new(Table::empty(&head));
                *state = State::Held(Box::new(Held::new(head, table)));
            }
            // Rules of a table are told as gone before it is.
            State::Absent | State::Unclear => {}
        }
        Ok(())
    }
}

/// The generation of the next commit; none has the number 0.
fn after(generation: Generation) -> Generation {
    generation.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::Port;

    use super::*;
    use crate::mark::Words;
    use crate::model::Handle;
    use crate::tlv::Tlvs;

    fn key() -> Key {
        Key { family: Family(2), name: "a".to_owned() }
    }

    fn tell(shadow: &mut Shadow, (kind, label): (u16, u16), attrs: Tlvs) {
        let [high, low] = label.to_be_bytes();
        let payload = [&[2, 0, high, low][..], &attrs.into_bytes()].concat();
        let message = Message { kind, flags: 0, seq: 0, port: Port::KERNEL, payload: &payload };
        shadow.hear(&Event::Message(message));
    }

    /// A commit deletes the table.
    fn gone(shadow: &mut Shadow, generation: Generation) {
        let mut attrs = Tlvs::default();
        attrs.put_name(TABLE, "a");
        let [_, _, high, low] = generation.to_be_bytes();
        tell(shadow, (NO_TABLE, u16::from_be_bytes([high, low])), attrs);
    }

    fn ended(shadow: &mut Shadow, generation: Generation) {
        let mut attrs = Tlvs::default();
        attrs.put(NFTA_GEN_ID, &generation.to_be_bytes());
        tell(shadow, (COMMIT, 0), attrs);
    }

    /// One that has looked at this generation.
    fn look(shadow: &mut Shadow, generation: Generation) {
        let head = Head { key: key(), handle: Handle(1), flags: 0, words: Words::default() };
        shadow.begin(generation);
        shadow.know(key(), Some((&head, &Arc::new(Table::empty(&head)))));
    }

    #[test]
    fn commits_are_followed_where_their_numbers_begin_anew() {
        for generation in [1, 0x7fff, 0x8000, 0xfffe, 0xffff, 0x1_ffff, u32::MAX - 1, u32::MAX] {
            let (mut shadow, next) = (Shadow::default(), after(generation));
            look(&mut shadow, generation);
            // What came before the look is over.
            ended(&mut shadow, generation);
            gone(&mut shadow, generation);
            assert!(matches!(shadow.known(&key()), Known::Held(..)), "{generation:x}");
            gone(&mut shadow, next);
            assert_eq!(shadow.generation(), None, "{generation:x} is being left");
            ended(&mut shadow, next);
            assert_eq!(shadow.generation(), Some(next));
            assert!(matches!(shadow.known(&key()), Known::Absent), "{generation:x}");
            // One is missing.
            gone(&mut shadow, after(after(next)));
            assert_eq!(shadow.generation(), None);
            assert!(matches!(shadow.known(&key()), Known::Nothing), "{generation:x}");
        }
    }
}
