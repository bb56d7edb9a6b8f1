//! A copy of our tables that follows the notifications of the kernel, so that a hint does not cost a dump.
//!
//! A full look shows the tables at one generation; each later commit is announced message by message, with its
//! generation, and applied to the copy. A gap between generations discards everything; a message that cannot be
//! interpreted beyond doubt discards its table, which is read again. An answer from here counts only while the
//! kernel still has the generation that was followed.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_netlink::uapi::{
    NFT_SET_ANONYMOUS, NFTA_CHAIN_NAME, NFTA_GEN_ID, NFTA_RULE_CHAIN, NFTA_RULE_HANDLE,
    NFTA_RULE_POSITION, NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_SET_ELEM_LIST_SET, NFTA_SET_NAME,
    NLM_F_APPEND,
};
use homeostat_netlink::{Attrs, Event, Malformed, Message};

use crate::dump::{
    self, Generation, Head, TABLE_NAME, Unassembled, decode_chain, decode_object, decode_set,
};
use crate::elements::Edits;
use crate::key::{Family, Key};
use crate::model::{Handle, Table};
use crate::wire::{
    DEL_CHAIN, DEL_ELEMENTS, DEL_OBJECT, DEL_RULE, DEL_SET, DEL_TABLE, NEW_CHAIN, NEW_ELEMENTS,
    NEW_GENERATION, NEW_OBJECT, NEW_RULE, NEW_SET, NEW_TABLE, be32, be64, name, text,
};

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
        if message.kind == NEW_GENERATION {
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
        let key = Key { family, name: name(attrs, TABLE_NAME)? };
        let Some(state) = self.tables.get_mut(&key) else { return Ok(()) };
        match state {
            _ if message.kind == DEL_TABLE => *state = State::Absent,
            State::Held(held) => {
                if held.hear(message, attrs).is_err() {
                    *state = State::Unclear;
                }
            }
            State::Absent if message.kind == NEW_TABLE => {
                let head = dump::decode_head(family, attrs)?;
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

/// A table, and the commit that changes it.
#[derive(Debug)]
struct Held {
    head: Head,
    table: Arc<Table>,
    under_way: UnderWay,
}

/// What is told of a commit before its end.
#[derive(Debug, Default)]
struct UnderWay {
    /// How many messages were about this table.
    count: usize,
    /// Sets and chains without names, which the rule comes after.
    nameless: Unassembled,
    elements: BTreeMap<String, Edits>,
    rules: Places,
}

/// Beyond this, another look costs less.
const MOST: usize = 1000;

/// Only another look can tell what is meant.
#[derive(Debug)]
struct Unclear;

impl From<Malformed> for Unclear {
    fn from(_: Malformed) -> Self {
        Unclear
    }
}

type Heard = Result<(), Unclear>;

impl Held {
    fn new(head: Head, table: Arc<Table>) -> Self {
        Held { head, table, under_way: UnderWay::default() }
    }

    /// Takes one message about the table.
    fn hear(&mut self, message: &Message<'_>, attrs: &Attrs<'_>) -> Heard {
        self.under_way.count += 1;
        if self.under_way.count > MOST {
            return Err(Unclear);
        }
        match message.kind {
            NEW_TABLE => self.changed(attrs),
            NEW_CHAIN => self.chain(attrs),
            DEL_CHAIN => self.no_chain(attrs),
            NEW_RULE => self.rule(message.flags, attrs),
            DEL_RULE => self.no_rule(message.flags & NLM_F_APPEND != 0, attrs),
            NEW_SET => self.set(attrs),
            DEL_SET => {
                let name = text(attrs, NFTA_SET_NAME)?;
                self.under_way.elements.remove(name);
                self.table().sets.remove(name);
                Ok(())
            }
            NEW_ELEMENTS | DEL_ELEMENTS => self.elements(message.kind == NEW_ELEMENTS, attrs),
            NEW_OBJECT => {
                let (id, object) = decode_object(attrs)?;
                self.table().objects.insert(id, object);
                Ok(())
            }
            DEL_OBJECT => {
                let (id, _) = decode_object(attrs)?;
                self.table().objects.remove(&id);
                Ok(())
            }
            // Devices come and go in flowtables.
            _ => Err(Unclear),
        }
    }

    /// Ends a commit.
    fn settle(&mut self) -> Heard {
        if self.under_way.count == 0 {
            return Ok(());
        }
        let UnderWay { elements, .. } = std::mem::take(&mut self.under_way);
        let table = Arc::make_mut(&mut self.table);
        for (name, edits) in elements {
            let set = table.sets.get_mut(&name).ok_or(Unclear)?;
            let layout = set.layout();
            let was_known = set.elements.edit(&edits, layout)?;
            // What packets or time put there, they have put there unheard.
            if !was_known && !set.is_moving() {
                return Err(Unclear);
            }
            set.note_references();
        }
        Ok(())
    }

    fn table(&mut self) -> &mut Table {
        Arc::make_mut(&mut self.table)
    }

    fn changed(&mut self, attrs: &Attrs<'_>) -> Heard {
        let head = dump::decode_head(self.head.key.family, attrs)?;
        if head.handle != self.head.handle || head.words != self.head.words {
            return Err(Unclear);
        }
        self.table().flags = head.flags;
        self.head = head;
        Ok(())
    }

    fn chain(&mut self, attrs: &Attrs<'_>) -> Heard {
        let mut told = decode_chain(attrs)?;
        if told.is_nameless() {
            self.under_way.nameless.chains.push(told);
            return Ok(());
        }
        // Of devices only those that come are told.
        if told.chain.has_devices() {
            return Err(Unclear);
        }
        let chains = &mut self.table().chains;
        if let Some(former) = chains.get_mut(&told.name) {
            told.chain.rules = std::mem::take(&mut former.rules);
        } else if chains.values().any(|chain| chain.handle == told.chain.handle) {
            // It has another name now, also where rules jump to it.
            return Err(Unclear);
        }
        chains.insert(told.name, told.chain);
        Ok(())
    }

    fn no_chain(&mut self, attrs: &Attrs<'_>) -> Heard {
        // It may be that only devices go.
        if decode_chain(attrs)?.chain.has_devices() {
            return Err(Unclear);
        }
        let name = text(attrs, NFTA_CHAIN_NAME)?;
        self.under_way.rules.forget(name);
        self.table().chains.remove(name);
        Ok(())
    }

    fn rule(&mut self, flags: u16, attrs: &Attrs<'_>) -> Heard {
        let chain = text(attrs, NFTA_RULE_CHAIN)?;
        let Held { table, under_way: UnderWay { nameless, elements, rules: places, .. }, .. } =
            self;
        nameless.rules.take(attrs.clone())?;
        if nameless.chains.iter().any(|bare| bare.name == chain) {
            return Ok(());
        }
        for (name, set) in &mut nameless.sets {
            if let Some(edits) = elements.remove(name) {
                let layout = set.layout();
                set.elements.edit(&edits, layout)?;
                set.note_references();
            }
        }
        let rule = nameless.last_rule()?;
        nameless.rules.drop_last();
        let rules = &mut Arc::make_mut(table).chains.get_mut(chain).ok_or(Unclear)?.rules;
        let end = if flags & NLM_F_APPEND != 0 { End::Last } else { End::First };
        let untold = places.of(chain, (rule.handle, end), rules.len());
        let after = be64(attrs, NFTA_RULE_POSITION)?.map(Handle);
        let place = after.map_or(untold, |after| {
            rules.iter().rposition(|rule| rule.handle == after).map(|at| at + 1)
        });
        rules.insert(place.ok_or(Unclear)?, rule);
        Ok(())
    }

    fn no_rule(&mut self, is_replaced: bool, attrs: &Attrs<'_>) -> Heard {
        let handle = be64(attrs, NFTA_RULE_HANDLE)?.map(Handle);
        // The rules of a chain without a name go with the one that jumps to it.
        let name = text(attrs, NFTA_RULE_CHAIN)?;
        let Some(chain) = self.table().chains.get_mut(name) else { return Ok(()) };
        let at = chain.rules.iter().position(|rule| Some(rule.handle) == handle);
        let (at, handle) = at.zip(handle).ok_or(Unclear)?;
        chain.rules.remove(at);
        let left = chain.rules.len();
        if is_replaced {
            self.under_way.rules.replaced(handle, at);
        } else {
            self.under_way.rules.went(name, at, left);
        }
        Ok(())
    }

    fn set(&mut self, attrs: &Attrs<'_>) -> Heard {
        let (name, mut told) = decode_set(attrs)?;
        if told.flags & NFT_SET_ANONYMOUS != 0 {
            self.under_way.nameless.sets.insert(name, told);
            return Ok(());
        }
        let sets = &mut self.table().sets;
        if let Some(former) = sets.get_mut(&name) {
            told.elements = std::mem::take(&mut former.elements);
            told.note_references();
        }
        sets.insert(name, told);
        Ok(())
    }

    fn elements(&mut self, came: bool, attrs: &Attrs<'_>) -> Heard {
        let name = text(attrs, NFTA_SET_ELEM_LIST_SET)?;
        let UnderWay { nameless, elements, .. } = &mut self.under_way;
        let set = nameless.sets.get(name).or_else(|| self.table.sets.get(name));
        if set.ok_or(Unclear)?.is_data() {
            return Ok(());
        }
        let edits = elements.entry(name.to_owned()).or_default();
        let Some(list) = attrs.clone().first(NFTA_SET_ELEM_LIST_ELEMENTS)? else { return Ok(()) };
        if came {
            edits.came(list.value)?;
        } else {
            edits.went(list.value)?;
        }
        Ok(())
    }
}

/// What a commit did to chains so far.
#[derive(Debug, Default)]
struct Places {
    /// The rule that went last, and where it was, if another one comes in its place.
    replaced: Option<(Handle, usize)>,
    frayed: BTreeMap<String, Frayed>,
}

/// Where a rule was asked to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// At which ends a chain lost rules.
///
/// Quirk `rules-beside-rules-that-go` (Linux 6.18): a rule may be put behind the first rule, or before the last
/// one, by the commit that deletes that one. Then it is told without a place, and with the flag of the other end:
/// `delete rule ip a x handle 2; add rule ip a x handle 2 accept`.
#[derive(Debug, Default)]
struct Frayed {
    first: bool,
    last: bool,
}

impl Places {
    /// A rule went, and the next one comes in its place.
    fn replaced(&mut self, handle: Handle, at: usize) {
        self.replaced = Some((handle, at));
    }

    /// A rule went, and left so many others.
    fn went(&mut self, chain: &str, at: usize, left: usize) {
        self.replaced = None;
        if at == 0 || at == left {
            let frayed = self.frayed.entry(chain.to_owned()).or_default();
            frayed.first |= at == 0;
            frayed.last |= at == left;
        }
    }

    /// A chain went.
    fn forget(&mut self, chain: &str) {
        self.frayed.remove(chain);
    }

    /// The place of a rule among so many others; none where it cannot be told.
    fn of(&mut self, chain: &str, (handle, end): (Handle, End), others: usize) -> Option<usize> {
        let frayed = self.frayed.get(chain);
        match (self.replaced.take(), end) {
            _ if others == 0 => Some(0),
            // Quirk `replacing-looks-like-appending` (Linux 6.18): both are told with the same flag, and one
            // that replaces another has its handle.
            (Some((gone, at)), _) if gone == handle => Some(at),
            (Some(_), End::Last) => None,
            (_, End::Last) => frayed.is_none_or(|frayed| !frayed.first).then_some(others),
            (_, End::First) => frayed.is_none_or(|frayed| !frayed.last).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::Port;

    use super::*;
    use crate::mark::Words;
    use crate::model::Handle;
    use crate::wire::Tlvs;

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
        attrs.put_name(TABLE_NAME, "a");
        let [_, _, high, low] = generation.to_be_bytes();
        tell(shadow, (DEL_TABLE, u16::from_be_bytes([high, low])), attrs);
    }

    fn ended(shadow: &mut Shadow, generation: Generation) {
        let mut attrs = Tlvs::default();
        attrs.put(NFTA_GEN_ID, &generation.to_be_bytes());
        tell(shadow, (NEW_GENERATION, 0), attrs);
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

#[cfg(test)]
mod places_tests {
    use super::*;

    fn check(told: impl FnOnce(&mut Places), end: End, others: usize, expected: Option<usize>) {
        let mut places = Places::default();
        told(&mut places);
        assert_eq!(places.of("x", (Handle(9), end), others), expected, "{places:?}");
    }

    #[test]
    fn a_rule_without_a_place_is_the_first_or_the_last() {
        check(|_| {}, End::First, 3, Some(0));
        check(|_| {}, End::Last, 3, Some(3));
        check(|_| {}, End::Last, 0, Some(0));
    }

    #[test]
    fn a_rule_that_replaces_another_stands_where_that_stood() {
        check(|places| places.replaced(Handle(9), 1), End::Last, 3, Some(1));
        check(|places| places.replaced(Handle(8), 1), End::Last, 3, None);
    }

    #[test]
    fn beside_a_rule_that_went_at_an_end_nothing_is_certain() {
        check(|places| places.went("x", 0, 2), End::Last, 2, None);
        check(|places| places.went("x", 0, 2), End::First, 2, Some(0));
        check(|places| places.went("x", 2, 2), End::First, 2, None);
        check(|places| places.went("x", 2, 2), End::Last, 2, Some(2));
        check(|places| places.went("x", 1, 2), End::Last, 2, Some(2));
        check(|places| places.went("y", 0, 0), End::Last, 2, Some(2));
        check(|places| places.went("x", 0, 0), End::Last, 0, Some(0));
        let made_again = |places: &mut Places| {
            places.went("x", 0, 0);
            places.forget("x");
        };
        check(made_again, End::Last, 2, Some(2));
    }
}
