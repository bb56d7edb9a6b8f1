//! What a module can be, and the desired state.

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};
use serde::{Deserialize, Serialize};

use crate::key::{Key, ModuleName};

/// What a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Also: a part of the kernel.
    Loaded,
    NotLoaded,
}

/// The modules that shall be loaded, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    modules: Vec<Key>,
}

impl DesiredState {
    /// These modules.
    #[must_use]
    pub fn new(modules: impl IntoIterator<Item = ModuleName>) -> Self {
        let mut modules: Vec<Key> = modules.into_iter().map(Key).collect();
        modules.sort();
        modules.dedup();
        DesiredState { modules }
    }

    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.modules.iter()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "core asks only for slots that this desired state gave out"
    )]
    pub(crate) fn at(&self, slot: Slot) -> &Key {
        &self.modules[slot.index()]
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = State;

    fn len(&self) -> usize {
        self.modules.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.modules, near, |declared| declared.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.at(slot).clone()
    }

    fn object(&self, _: Slot) -> State {
        State::Loaded
    }

    fn compare(&self, _: Slot, seen: &State) -> Agreement {
        Agreement::when(*seen == State::Loaded)
    }

    fn may_adopt(&self, _: Slot) -> bool {
        false
    }

    fn is_same(&self, _: Slot, _: &Self, _: Slot) -> bool {
        true
    }
}
