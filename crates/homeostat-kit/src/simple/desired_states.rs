//! The declare an API: a sorted table, compared the way the API says.

use std::collections::BTreeSet;

use homeostat_engine::{Agreement, Desired, DuplicateKey, Slot, Table};

use super::Api;

/// What should exist in an API.
pub struct DesiredObjects<A: Api> {
    table: Table<A::Key, A::Object>,
    adopt: BTreeSet<A::Key>,
}

impl<A: Api> DesiredObjects<A> {
    /// Sorts the desired states; refuses a key that stands there twice.
    pub fn new(
        desired_states: impl IntoIterator<Item = (A::Key, A::Object)>,
    ) -> Result<Self, DuplicateKey> {
        Ok(DesiredObjects { table: Table::new(desired_states)?, adopt: BTreeSet::new() })
    }

    /// Gives standing leave to take these keys from anybody.
    #[must_use]
    pub fn adopting(mut self, keys: impl IntoIterator<Item = A::Key>) -> Self {
        self.adopt.extend(keys);
        self
    }
}

impl<A: Api> Default for DesiredObjects<A> {
    fn default() -> Self {
        DesiredObjects { table: Table::default(), adopt: BTreeSet::new() }
    }
}

impl<A: Api> Desired for DesiredObjects<A> {
    type Key = A::Key;
    type Object = A::Object;

    fn len(&self) -> usize {
        self.table.len()
    }

    fn slot(&self, key: &A::Key, near: Option<Slot>) -> Option<Slot> {
        self.table.slot(key, near)
    }

    fn key(&self, slot: Slot) -> A::Key {
        self.table.key(slot)
    }

    fn object(&self, slot: Slot) -> A::Object {
        self.table.object(slot)
    }

    fn compare(&self, slot: Slot, seen: &A::Object) -> Agreement {
        A::compare(&self.table.object(slot), seen)
    }

    fn identity(&self, seen: &A::Object) -> Option<String> {
        A::identity(seen)
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.table.is_same(slot, &other.table, there)
            && self.may_adopt(slot) == other.may_adopt(there)
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        !self.adopt.is_empty() && self.adopt.contains(&self.table.key(slot))
    }
}
