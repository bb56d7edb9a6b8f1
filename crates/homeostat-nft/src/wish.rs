//! The wish: tables as `nft` understood them, in key order.

use std::sync::Arc;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Fingerprint, Slot};

use crate::diff;
use crate::key::Key;
use crate::model::Table;
use crate::object::Object;

/// The tables that shall be.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    tables: Vec<(Key, Object)>,
    may_adopt: bool,
    notes: Vec<String>,
}

impl Wish {
    /// No tables.
    #[must_use]
    pub fn nothing() -> Self {
        Wish::default()
    }

    pub(crate) fn new(tables: impl IntoIterator<Item = Table>, notes: Vec<String>) -> Self {
        let object = |table: Table| (table.key.clone(), Object::wished(Arc::new(table)));
        let mut tables: Vec<_> = tables.into_iter().map(object).collect();
        tables.sort_by(|a, b| a.0.cmp(&b.0));
        Wish { tables, may_adopt: false, notes }
    }

    /// Gives standing leave to take these tables from anybody.
    #[must_use]
    pub fn adopting(mut self) -> Self {
        self.may_adopt = true;
        self
    }

    /// What a reader of the plan should know of how the text was understood.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The names of the tables.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.tables.iter().map(|(key, _)| key)
    }

    pub(crate) fn table(&self, slot: Slot) -> Option<&Arc<Table>> {
        self.tables.get(slot.index()).and_then(|(_, object)| object.table.as_ref())
    }
}

impl Desired for Wish {
    type Key = Key;
    type Object = Object;

    fn len(&self) -> usize {
        self.tables.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.tables, near, |wish| wish.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.tables[slot.index()].0.clone()
    }

    fn object(&self, slot: Slot) -> Object {
        self.tables[slot.index()].1.clone()
    }

    fn compare(&self, slot: Slot, seen: &Object) -> Agreement {
        match (self.table(slot), &seen.table) {
            (Some(wish), Some(table)) => {
                Agreement::when(diff::table(wish, Some((table, &seen.former))).is_empty())
            }
            _ => Agreement::when(self.object(slot) == *seen),
        }
    }

    fn may_adopt(&self, _slot: Slot) -> bool {
        self.may_adopt
    }

    /// The kernel numbers tables, so that one of the same name that somebody made later is another. One
    /// with our mark is ours however often it was made.
    fn identity(&self, seen: &Object) -> Option<String> {
        if seen.is_marked {
            return None;
        }
        seen.table.as_ref().map(|table| table.handle.0.to_string())
    }

    fn object_print(&self, slot: Slot) -> u64 {
        Fingerprint::of_text(&self.object(slot).print())
    }
}
