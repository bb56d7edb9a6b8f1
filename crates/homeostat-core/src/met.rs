//! What a diff remembers of the desired states that it met: a bit each, and the few that nobody may write.

use std::collections::BTreeSet;

use crate::change::{Change, Changes};
use crate::desired::{Desired, Slot};
use crate::seen::Focus;

/// Which desired states were seen: one bit each, or the few that a focused look is about.
pub(crate) enum Met {
    All { words: Vec<u64>, len: usize },
    Few(BTreeSet<Slot>),
}

impl Met {
    /// A focused look must cost the same however many desired states there are.
    pub(crate) fn new<K>(focus: &Focus<K>, len: usize) -> Self {
        match focus {
            Focus::All => Met::All { words: vec![0; len.div_ceil(64)], len },
            Focus::Keys(_) => Met::Few(BTreeSet::new()),
        }
    }

    /// Notes that a desired state was met, and tells whether it was before.
    pub(crate) fn set(&mut self, slot: Slot) -> bool {
        let words = match self {
            Met::All { words, .. } => words,
            Met::Few(seen) => return !seen.insert(slot),
        };
        let bit = 1u64 << (slot.index() % 64);
        let Some(word) = words.get_mut(slot.index() / 64) else { return false };
        let before = *word & bit != 0;
        *word |= bit;
        before
    }

    pub(crate) fn get(&self, slot: Slot) -> bool {
        match self {
            Met::All { words, .. } => {
                let word = words.get(slot.index() / 64).copied().unwrap_or(0);
                word & (1 << (slot.index() % 64)) != 0
            }
            Met::Few(seen) => seen.contains(&slot),
        }
    }

    /// The desired states that a look at everything did not meet.
    pub(crate) fn unset(&self) -> impl Iterator<Item = Slot> {
        let len = match self {
            Met::All { len, .. } => *len,
            Met::Few(_) => 0,
        };
        (0..len).map(Slot::at).filter(|slot| !self.get(*slot))
    }
}

/// Keys that nobody may write in this pass, declared ones by slot.
pub(crate) struct Barred<K> {
    pub(crate) slots: BTreeSet<Slot>,
    pub(crate) keys: BTreeSet<K>,
}

impl<K: Ord + Clone> Barred<K> {
    pub(crate) fn none() -> Self {
        Barred { slots: BTreeSet::new(), keys: BTreeSet::new() }
    }

    /// Takes every finding about the barred keys back.
    pub(crate) fn clear<D: Desired<Key = K>>(
        mut self,
        desired: &D,
        found: &mut Changes<K, D::Object>,
    ) {
        if self.slots.is_empty() && self.keys.is_empty() {
            return;
        }
        let is_free = |slot: &Slot| !self.slots.contains(slot);
        found.list.retain(is_free, |change| match change {
            Change::Create { slot } | Change::Update { slot, .. } => is_free(slot),
            Change::Delete { key, .. } | Change::Release { key, .. } => !self.keys.contains(key),
        });
        found.claims.retain(|slot| !self.slots.contains(slot));
        found.settled.retain(|(slot, _)| !self.slots.contains(slot));
        self.keys.extend(self.slots.iter().map(|slot| desired.key(*slot)));
        found.originals.retain(|key, _| !self.keys.contains(key));
        found.conflicts.retain(|conflict| !self.keys.contains(&conflict.key));
        found.matched.retain(|(key, _)| !self.keys.contains(key));
        found.confirmed.retain(|key| !self.keys.contains(key));
        found.identities.retain(|key, _| !self.keys.contains(key));
    }
}
