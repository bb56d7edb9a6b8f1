//! The differences of one look, in key order. A create is no more than its slot, since a million of
//! them are a normal case.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec;

use educe::Educe;

use crate::change::Change;
use crate::desired::Slot;
use crate::waits_on::WaitsOn;

/// Differences in key order: declared keys first, then what is not declared.
#[derive(Clone, Debug, PartialEq, Eq, Educe)]
#[educe(Default)]
pub struct ChangeList<K, O> {
    creates: Vec<Slot>,
    others: Vec<Change<K, O>>,
    withheld: BTreeMap<K, WaitsOn>,
}

impl<K, O> ChangeList<K, O> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.creates.len() + self.others.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.creates.is_empty() && self.others.is_empty()
    }

    /// What is declared and absent.
    #[must_use]
    pub fn creates(&self) -> &[Slot] {
        &self.creates
    }

    /// Everything but the creates.
    #[must_use]
    pub fn others(&self) -> &[Change<K, O>] {
        &self.others
    }

    /// The declared keys that a condition keeps from being made, and what they wait for. They get no create, and nothing may
    /// count on them unless it sees them. Those out of focus are named, too.
    #[must_use]
    pub fn withheld(&self) -> &BTreeMap<K, WaitsOn> {
        &self.withheld
    }

    pub(crate) fn push(&mut self, change: Change<K, O>) {
        match change {
            Change::Create { slot } => self.creates.push(slot),
            other => self.others.push(other),
        }
    }

    pub(crate) fn create(&mut self, slots: impl Iterator<Item = Slot>) {
        self.creates.extend(slots);
    }

    pub(crate) fn retain(
        &mut self,
        declared: impl Fn(&Slot) -> bool,
        other: impl Fn(&Change<K, O>) -> bool,
    ) {
        self.creates.retain(declared);
        self.others.retain(other);
    }
}

impl<K: Ord, O> ChangeList<K, O> {
    pub(crate) fn withhold(&mut self, key: K, on: WaitsOn) {
        self.withheld.insert(key, on);
    }

    pub(crate) fn is_there(&mut self, key: &K) {
        self.withheld.remove(key);
    }

    pub(crate) fn sort(&mut self) {
        self.creates.sort_unstable();
        self.others.sort_by(|a, b| a.rank().cmp(&b.rank()));
    }
}

impl<K, O> FromIterator<Change<K, O>> for ChangeList<K, O> {
    fn from_iter<I: IntoIterator<Item = Change<K, O>>>(changes: I) -> Self {
        let mut list = ChangeList::default();
        changes.into_iter().for_each(|change| list.push(change));
        list
    }
}

impl<K, O> IntoIterator for ChangeList<K, O> {
    type Item = Change<K, O>;
    type IntoIter = InOrder<K, O>;

    fn into_iter(self) -> InOrder<K, O> {
        let (creates, others) = (self.creates.into_iter(), self.others.into_iter());
        InOrder { creates: creates.peekable(), others: others.peekable() }
    }
}

/// Hands out changes in key order.
pub struct InOrder<K, O> {
    creates: Peekable<vec::IntoIter<Slot>>,
    others: Peekable<vec::IntoIter<Change<K, O>>>,
}

impl<K, O> Iterator for InOrder<K, O> {
    type Item = Change<K, O>;

    fn next(&mut self) -> Option<Change<K, O>> {
        let create = self.creates.peek().copied();
        let is_other_first = match self.others.peek() {
            Some(Change::Update { slot, .. }) => create.is_none_or(|create| *slot < create),
            Some(_) => create.is_none(),
            None => false,
        };
        if is_other_first {
            return self.others.next();
        }
        self.creates.next().map(|slot| Change::Create { slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_out_in_key_order_whatever_they_are() {
        let update = |slot| Change::Update { slot: Slot(slot), before: 0, adopts: None };
        let delete = |key| Change::Delete { key, before: 0 };
        let create = |slot| Change::Create { slot: Slot(slot) };
        let sorted =
            vec![create(0), update(1), create(2), create(5), update(7), delete("a"), delete("b")];
        let mut list: ChangeList<&str, i32> = sorted.iter().rev().cloned().collect();
        list.sort();
        assert_eq!(list.len(), sorted.len());
        assert_eq!(list.into_iter().collect::<Vec<_>>(), sorted);
    }

    #[test]
    fn a_create_costs_no_more_than_its_slot() {
        assert_eq!(size_of::<Slot>(), 4);
        let list: ChangeList<String, [u8; 200]> =
            (0..3).map(|slot| Change::Create { slot: Slot(slot) }).collect();
        assert_eq!((list.creates().len(), list.others().len()), (3, 0));
    }
}
