//! A copy of our tables that follows the notifications of the kernel, so that a hint does not cost a dump.
//!
//! A full look shows the tables at one generation; each later commit is announced message by message, with its
//! generation, and applied to the copy. A gap between generations discards everything; a message that cannot be
//! interpreted with certainty, or that came while the table was read, discards its table, which is read again. An
//! answer from here counts only while the kernel still has the generation that was followed.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_netlink::uapi::*;
use homeostat_netlink::{Attrs, Event, Malformed, Message};

use crate::dump::{
    self, Generation, Head, Parts, TABLE_NAME, decode_chain, decode_object, decode_set,
};
use crate::elements::Edits;
use crate::key::{Family, Key};
use crate::model::{Handle, Table};
use crate::wire::{be32, be64, name, nft_message, text};

/// Copies of the tables that matter, as of one generation; nothing while no generation is followed.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    followed: Option<Followed>,
}

#[derive(Debug)]
struct Followed {
    generation: Generation,
    /// Whether the next commit has begun to be announced.
    is_in_commit: bool,
    tables: BTreeMap<Key, Tracked>,
}

#[derive(Debug)]
struct Tracked {
    state: State,
    /// The generation at the end of its reading. Whether the reading has a change until then is not certain.
    read_at: Generation,
}

/// What is known of one table.
#[derive(Debug)]
pub(crate) enum State {
    Absent,
    Present(Box<TableCopy>),
    /// Only another look can show how it is.
    Unclear,
}

impl Shadow {
    /// The generation of all copies; none while they may be of none.
    pub(crate) fn generation(&self) -> Option<Generation> {
        let followed = self.followed.as_ref().filter(|followed| !followed.is_in_commit)?;
        Some(followed.generation)
    }

    pub(crate) fn discard(&mut self) {
        self.followed = None;
    }

    /// Follows commits from this generation on. No table is known yet.
    pub(crate) fn restart(&mut self, generation: Generation) {
        let tables = BTreeMap::new();
        self.followed = Some(Followed { generation, is_in_commit: false, tables });
    }

    /// Stores what a look at one table has shown that began at a generation which was followed, and ended at `read_at`.
    pub(crate) fn store(
        &mut self,
        key: Key,
        seen: Option<(&Head, &Arc<Table>)>,
        read_at: Generation,
    ) {
        let state = seen.map_or(State::Absent, |(head, table)| {
            State::Present(Box::new(TableCopy::new(head.clone(), Arc::clone(table))))
        });
        if let Some(followed) = &mut self.followed {
            followed.tables.insert(key, Tracked { state, read_at });
        }
    }

    pub(crate) fn lookup(&self, key: &Key) -> Option<&State> {
        Some(&self.followed.as_ref()?.tables.get(key)?.state)
    }

    /// Whether no commit has changed these tables while they were read: all that were made meanwhile are known.
    pub(crate) fn confirms<'k>(&self, mut read: impl Iterator<Item = &'k Key>) -> bool {
        let Some(followed) = self.followed.as_ref().filter(|followed| !followed.is_in_commit)
        else {
            return false;
        };
        read.all(|key| {
            let is_certain = |tracked: &Tracked| {
                !matches!(tracked.state, State::Unclear)
                    && !is_before(followed.generation, tracked.read_at)
            };
            followed.tables.get(key).is_some_and(is_certain)
        })
    }

    /// Applies one event. A gap discards everything.
    pub(crate) fn apply(&mut self, event: &Event<'_>) {
        let Some(followed) = &mut self.followed else { return };
        let is_next = match event {
            Event::Lost => false,
            Event::Message(message) => followed.apply(message).unwrap_or(false),
        };
        if !is_next {
            self.discard();
        }
    }
}

impl Followed {
    /// Applies a message of the next commit; passes over those of former ones. False if a commit is missing.
    fn apply(&mut self, message: &Message<'_>) -> Result<bool, Malformed> {
        let ([family, _, high, low], attrs) = message.split::<4>()?;
        if nft_message(message) == NFT_MSG_NEWGEN {
            let generation = be32(&attrs, NFTA_GEN_ID)?.ok_or(Malformed::Payload)?;
            return Ok(self.finish_commit(generation));
        }
        // Each message carries the lower half of the generation that it belongs to.
        let [_, _, next_high, next_low] = after(self.generation).to_be_bytes();
        let next = u16::from_be_bytes([next_high, next_low]);
        let ahead = u16::from_be_bytes([*high, *low]).wrapping_sub(next).cast_signed();
        if ahead == 0 {
            self.is_in_commit = true;
            self.change(message, Family(*family), &attrs)?;
        }
        Ok(ahead <= 0)
    }

    fn finish_commit(&mut self, generation: Generation) -> bool {
        if generation.wrapping_sub(self.generation).cast_signed() <= 0 {
            return true;
        }
        if generation != after(self.generation) {
            return false;
        }
        (self.generation, self.is_in_commit) = (generation, false);
        for Tracked { state, .. } in self.tables.values_mut() {
            if let State::Present(copy) = state
                && copy.finish_commit().is_err()
            {
                *state = State::Unclear;
            }
        }
        true
    }

    fn change(
        &mut self,
        message: &Message<'_>,
        family: Family,
        attrs: &Attrs<'_>,
    ) -> Result<(), Malformed> {
        let key = Key { family, name: name(attrs, TABLE_NAME)? };
        let next = after(self.generation);
        let Some(Tracked { state, read_at }) = self.tables.get_mut(&key) else { return Ok(()) };
        match state {
            _ if !is_before(*read_at, next) => *state = State::Unclear,
            _ if nft_message(message) == NFT_MSG_DELTABLE => *state = State::Absent,
            State::Present(copy) => {
                if copy.apply(message, attrs).is_err() {
                    *state = State::Unclear;
                }
            }
            State::Absent if nft_message(message) == NFT_MSG_NEWTABLE => {
                let head = dump::decode_head(family, attrs)?;
                let table = Arc::new(Table::empty(&head));
                *state = State::Present(Box::new(TableCopy::new(head, table)));
            }
            // The deletion of rules is announced before that of their table.
            State::Absent | State::Unclear => {}
        }
        Ok(())
    }
}

/// The generation of the next commit; none has the number 0.
fn after(generation: Generation) -> Generation {
    generation.checked_add(1).unwrap_or(1)
}

/// Whether a generation comes before another one.
fn is_before(generation: Generation, end: Generation) -> bool {
    generation.wrapping_sub(end).cast_signed() < 0
}

/// The copy of one table, and the commit that changes it.
#[derive(Debug)]
pub(crate) struct TableCopy {
    pub(crate) head: Head,
    pub(crate) table: Arc<Table>,
    commit: OpenCommit,
}

/// The events of a commit before its end.
#[derive(Debug, Default)]
struct OpenCommit {
    /// How many messages were about this table.
    count: usize,
    /// Anonymous sets and chains: the rule that they belong to comes after them.
    anonymous: Parts,
    elements: BTreeMap<String, Edits>,
    rules: RulePlaces,
}

/// A table with more messages in one commit is read instead.
const MOST_MESSAGES: usize = 1000;

/// The table has to be read: a message does not say enough.
#[derive(Debug)]
struct Unclear;

impl From<Malformed> for Unclear {
    fn from(_: Malformed) -> Self {
        Unclear
    }
}

impl TableCopy {
    fn new(head: Head, table: Arc<Table>) -> Self {
        TableCopy { head, table, commit: OpenCommit::default() }
    }

    /// Applies one message. Elements wait for the end of the commit.
    fn apply(&mut self, message: &Message<'_>, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        self.commit.count += 1;
        if self.commit.count > MOST_MESSAGES {
            return Err(Unclear);
        }
        match nft_message(message) {
            NFT_MSG_NEWTABLE => self.update_table(attrs),
            NFT_MSG_NEWCHAIN => self.add_chain(attrs),
            NFT_MSG_DELCHAIN => self.delete_chain(attrs),
            NFT_MSG_NEWRULE => self.add_rule(message.flags, attrs),
            NFT_MSG_DELRULE => self.delete_rule(message.flags, attrs),
            NFT_MSG_NEWSET => self.add_set(attrs),
            NFT_MSG_DELSET => {
                let name = text(attrs, NFTA_SET_NAME)?;
                self.commit.elements.remove(name);
                self.table().sets.remove(name);
                Ok(())
            }
            kind @ (NFT_MSG_NEWSETELEM | NFT_MSG_DELSETELEM) => self.edit_elements(kind, attrs),
            NFT_MSG_NEWOBJ => {
                self.table().objects.extend([decode_object(attrs)?]);
                Ok(())
            }
            NFT_MSG_DELOBJ => {
                self.table().objects.remove(&decode_object(attrs)?.0);
                Ok(())
            }
            // For flowtables, the kernel announces only added and deleted devices.
            _ => Err(Unclear),
        }
    }

    fn finish_commit(&mut self) -> Result<(), Unclear> {
        if self.commit.count == 0 {
            return Ok(());
        }
        let OpenCommit { elements, .. } = std::mem::take(&mut self.commit);
        let table = Arc::make_mut(&mut self.table);
        for (name, edits) in elements {
            let set = table.sets.get_mut(&name).ok_or(Unclear)?;
            let had_all = set.edit(&edits)?;
            // Elements that packets added or time deleted were not announced.
            if !had_all && !set.is_moving() {
                return Err(Unclear);
            }
        }
        Ok(())
    }

    fn table(&mut self) -> &mut Table {
        Arc::make_mut(&mut self.table)
    }

    fn update_table(&mut self, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        let head = dump::decode_head(self.head.key.family, attrs)?;
        if head.handle != self.head.handle || head.comment != self.head.comment {
            return Err(Unclear);
        }
        self.table().flags = head.flags;
        self.head = head;
        Ok(())
    }

    fn add_chain(&mut self, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        let (name, mut new) = decode_chain(attrs)?;
        if new.is_anonymous() {
            self.commit.anonymous.chains.insert(name, new);
            return Ok(());
        }
        // Only the devices that were added are announced, not those that were there.
        if new.has_devices() {
            return Err(Unclear);
        }
        let chains = &mut self.table().chains;
        if let Some(former) = chains.get_mut(&name) {
            new.rules = std::mem::take(&mut former.rules);
        } else if chains.values().any(|chain| chain.handle == new.handle) {
            // It was renamed, and so are the jumps to it.
            return Err(Unclear);
        }
        chains.insert(name, new);
        Ok(())
    }

    fn delete_chain(&mut self, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        // Devices that were removed from a chain are announced in the same way.
        let (name, chain) = decode_chain(attrs)?;
        if chain.has_devices() {
            return Err(Unclear);
        }
        self.commit.rules.forget(&name);
        self.table().chains.remove(&name);
        Ok(())
    }

    fn add_rule(&mut self, flags: u16, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        let chain = text(attrs, NFTA_RULE_CHAIN)?;
        let OpenCommit { anonymous, elements, rules: places, .. } = &mut self.commit;
        for (name, set) in &mut anonymous.sets {
            if let Some(edits) = elements.remove(name) {
                set.edit(&edits)?;
            }
        }
        let rule = anonymous.decode_rule(attrs)?;
        if anonymous.chains.contains_key(chain) {
            anonymous.rules.entry(chain.to_owned()).or_default().push(rule);
            return Ok(());
        }
        let rule = rule.complete(&mut anonymous.rules);
        let table = Arc::make_mut(&mut self.table);
        let rules = &mut table.chains.get_mut(chain).ok_or(Unclear)?.rules;
        let end = if flags & NLM_F_APPEND != 0 { End::Last } else { End::First };
        let place_at_end = places.of(chain, rule.handle, end, rules.len());
        let after = be64(attrs, NFTA_RULE_POSITION)?.map(Handle);
        let place = after.map_or(place_at_end, |after| {
            rules.iter().rposition(|rule| rule.handle == after).map(|at| at + 1)
        });
        rules.insert(place.ok_or(Unclear)?, rule);
        Ok(())
    }

    fn delete_rule(&mut self, flags: u16, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        let handle = be64(attrs, NFTA_RULE_HANDLE)?.map(Handle);
        // The rules of an anonymous chain go with the rule that jumps to it.
        let name = text(attrs, NFTA_RULE_CHAIN)?;
        let Some(chain) = self.table().chains.get_mut(name) else { return Ok(()) };
        let at = chain.rules.iter().position(|rule| Some(rule.handle) == handle);
        let (at, handle) = at.zip(handle).ok_or(Unclear)?;
        chain.rules.remove(at);
        let left = chain.rules.len();
        // Another rule comes in its place.
        if flags & NLM_F_APPEND != 0 {
            self.commit.rules.replaced(handle, at);
        } else {
            self.commit.rules.deleted(name, at, left);
        }
        Ok(())
    }

    fn add_set(&mut self, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        let (name, mut new) = decode_set(attrs)?;
        if new.is_anonymous() {
            self.commit.anonymous.sets.insert(name, new);
            return Ok(());
        }
        let sets = &mut self.table().sets;
        if let Some(former) = sets.get_mut(&name) {
            new.elements = std::mem::take(&mut former.elements);
            new.note_references();
        }
        sets.insert(name, new);
        Ok(())
    }

    fn edit_elements(&mut self, kind: u16, attrs: &Attrs<'_>) -> Result<(), Unclear> {
        let name = text(attrs, NFTA_SET_ELEM_LIST_SET)?;
        let OpenCommit { anonymous, elements, .. } = &mut self.commit;
        let set = anonymous.sets.get(name).or_else(|| self.table.sets.get(name));
        if set.ok_or(Unclear)?.is_data() {
            return Ok(());
        }
        let edits = elements.entry(name.to_owned()).or_default();
        let list = attrs.clone().first(NFTA_SET_ELEM_LIST_ELEMENTS)?;
        Ok(list.map_or(Ok(()), |list| edits.take(kind, list.value))?)
    }
}

/// Where rules go that are announced without a position: to the first place of their chain, or to the last.
#[derive(Debug, Default)]
struct RulePlaces {
    /// The rule that was deleted last, and its place, if another one comes in its place.
    replaced: Option<(Handle, usize)>,
    lost: BTreeMap<String, LostEnds>,
}

/// The end of its chain that a rule was added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// At which ends a chain lost rules.
///
/// Quirk `rules-beside-rules-that-go` (Linux 6.18): a rule may be put behind the first rule, or before the last
/// one, by the commit that deletes that one. Then it is announced without a place, and with the flag of the other end:
/// `delete rule ip a x handle 2; add rule ip a x handle 2 accept`.
#[derive(Debug, Default)]
struct LostEnds {
    first: bool,
    last: bool,
}

impl RulePlaces {
    /// A rule was deleted, and the next one comes in its place.
    fn replaced(&mut self, handle: Handle, at: usize) {
        self.replaced = Some((handle, at));
    }

    /// A rule was deleted, and so many others are left.
    fn deleted(&mut self, chain: &str, at: usize, left: usize) {
        self.replaced = None;
        if at == 0 || at == left {
            let lost = self.lost.entry(chain.to_owned()).or_default();
            lost.first |= at == 0;
            lost.last |= at == left;
        }
    }

    /// A chain was deleted.
    fn forget(&mut self, chain: &str) {
        self.lost.remove(chain);
    }

    /// The place of a rule among so many others; none where that is not certain.
    fn of(&mut self, chain: &str, handle: Handle, end: End, others: usize) -> Option<usize> {
        let lost = self.lost.get(chain);
        match (self.replaced.take(), end) {
            _ if others == 0 => Some(0),
            // Quirk `replacing-looks-like-appending` (Linux 6.18): both are announced with the same flag, and one
            // that replaces another has its handle.
            (Some((gone, at)), _) if gone == handle => Some(at),
            (Some(_), End::Last) => None,
            (_, End::Last) => lost.is_none_or(|lost| !lost.first).then_some(others),
            (_, End::First) => lost.is_none_or(|lost| !lost.last).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::Port;

    use super::*;
    use crate::mark::Comment;
    use crate::model::Handle;
    use crate::wire::{Tlvs, message_type};

    fn key() -> Key {
        Key { family: Family(2), name: "a".to_owned() }
    }

    fn announce(shadow: &mut Shadow, kind: u16, label: u16, attrs: Tlvs) {
        let [high, low] = label.to_be_bytes();
        let payload = [&[2, 0, high, low][..], &attrs.into_bytes()].concat();
        let message = Message {
            kind: message_type(kind),
            flags: 0,
            seq: 0,
            port: Port::KERNEL,
            payload: &payload,
        };
        shadow.apply(&Event::Message(message));
    }

    /// A commit deletes the table.
    fn gone(shadow: &mut Shadow, generation: Generation) {
        let mut attrs = Tlvs::default();
        attrs.put_name(TABLE_NAME, "a");
        let [_, _, high, low] = generation.to_be_bytes();
        announce(shadow, NFT_MSG_DELTABLE, u16::from_be_bytes([high, low]), attrs);
    }

    fn ended(shadow: &mut Shadow, generation: Generation) {
        let mut attrs = Tlvs::default();
        attrs.put(NFTA_GEN_ID, &generation.to_be_bytes());
        announce(shadow, NFT_MSG_NEWGEN, 0, attrs);
    }

    fn look(shadow: &mut Shadow, generation: Generation) {
        let head = Head { key: key(), handle: Handle(1), flags: 0, comment: Comment::default() };
        shadow.restart(generation);
        shadow.store(key(), Some((&head, &Arc::new(Table::empty(&head)))), generation);
    }

    #[test]
    fn a_commit_to_a_table_while_it_was_read_makes_it_unclear() {
        let head = Head { key: key(), handle: Handle(1), flags: 0, comment: Comment::default() };
        let read = |shadow: &mut Shadow| {
            shadow.restart(7);
            shadow.store(key(), Some((&head, &Arc::new(Table::empty(&head)))), 9);
        };
        let mut shadow = Shadow::default();
        read(&mut shadow);
        ended(&mut shadow, 8);
        assert!(!shadow.confirms([&key()].into_iter()), "of the next commit nothing is known yet");
        ended(&mut shadow, 9);
        assert!(shadow.confirms([&key()].into_iter()));
        for touched in [8, 9] {
            read(&mut shadow);
            for generation in 8..=9 {
                if generation == touched {
                    gone(&mut shadow, generation);
                }
                ended(&mut shadow, generation);
            }
            assert!(!shadow.confirms([&key()].into_iter()), "{touched}");
            assert!(matches!(shadow.lookup(&key()), Some(State::Unclear)), "{touched}");
        }
    }

    #[test]
    fn commits_are_followed_where_their_numbers_begin_anew() {
        for generation in [1, 0x7fff, 0x8000, 0xfffe, 0xffff, 0x1_ffff, u32::MAX - 1, u32::MAX] {
            let (mut shadow, next) = (Shadow::default(), after(generation));
            look(&mut shadow, generation);
            // What came before the look is over.
            ended(&mut shadow, generation);
            gone(&mut shadow, generation);
            assert!(matches!(shadow.lookup(&key()), Some(State::Present(_))), "{generation:x}");
            gone(&mut shadow, next);
            assert_eq!(shadow.generation(), None, "{generation:x} is being left");
            ended(&mut shadow, next);
            assert_eq!(shadow.generation(), Some(next));
            assert!(matches!(shadow.lookup(&key()), Some(State::Absent)), "{generation:x}");
            // One is missing.
            gone(&mut shadow, after(after(next)));
            assert_eq!(shadow.generation(), None);
            assert!(shadow.lookup(&key()).is_none(), "{generation:x}");
        }
    }
}

#[cfg(test)]
mod places_tests {
    use super::*;

    fn check(
        before: impl FnOnce(&mut RulePlaces),
        end: End,
        others: usize,
        expected: Option<usize>,
    ) {
        let mut places = RulePlaces::default();
        before(&mut places);
        assert_eq!(places.of("x", Handle(9), end, others), expected, "{places:?}");
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
        check(|places| places.deleted("x", 0, 2), End::Last, 2, None);
        check(|places| places.deleted("x", 0, 2), End::First, 2, Some(0));
        check(|places| places.deleted("x", 2, 2), End::First, 2, None);
        check(|places| places.deleted("x", 2, 2), End::Last, 2, Some(2));
        check(|places| places.deleted("x", 1, 2), End::Last, 2, Some(2));
        check(|places| places.deleted("y", 0, 0), End::Last, 2, Some(2));
        check(|places| places.deleted("x", 0, 0), End::Last, 0, Some(0));
        let made_again = |places: &mut RulePlaces| {
            places.deleted("x", 0, 0);
            places.forget("x");
        };
        check(made_again, End::Last, 2, Some(2));
    }
}
