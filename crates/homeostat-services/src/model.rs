//! What a value of a unit can be, and the desired state.

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};
use serde::{Deserialize, Serialize};

use crate::key::Key;

/// What a value of a unit is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum State {
    Is(bool),
    /// Neither, in systemd's own word: a unit that is `activating`, or whose file is `static`.
    Neither(String),
}

/// What one value shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub value: bool,
    /// Whether it may be taken over from another owner.
    pub adopt: bool,
}

/// The values that shall be something, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    values: Vec<(Key, Wanted)>,
}

impl DesiredState {
    /// These values. What is declared first of a key counts.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = (Key, bool)>) -> Self {
        let wanted = |(key, value)| (key, Wanted { value, adopt: false });
        DesiredState::of(values.into_iter().map(wanted).collect())
    }

    /// The same, with more than the value.
    #[must_use]
    pub fn of(mut values: Vec<(Key, Wanted)>) -> Self {
        values.sort_by(|(a, _), (b, _)| a.cmp(b));
        values.dedup_by(|(later, _), (first, _)| later == first);
        DesiredState { values }
    }

    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Wanted)> {
        self.values.iter().map(|(key, wanted)| (key, *wanted))
    }

    /// What is declared for a key.
    #[must_use]
    pub fn wanted(&self, key: &Key) -> Option<Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "core asks only for slots that this desired state gave out"
    )]
    pub(crate) fn at(&self, slot: Slot) -> (&Key, Wanted) {
        let (key, wanted) = &self.values[slot.index()];
        (key, *wanted)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = State;

    fn len(&self) -> usize {
        self.values.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.values, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.at(slot).0.clone()
    }

    fn object(&self, slot: Slot) -> State {
        State::Is(self.at(slot).1.value)
    }

    fn compare(&self, slot: Slot, seen: &State) -> Agreement {
        Agreement::when(*seen == State::Is(self.at(slot).1.value))
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }

    /// A unit that is not masked any more may be enabled and started; one whose file changed may be started.
    fn dependants(&self, key: &Key, emit: &mut dyn FnMut(Key)) {
        let others = crate::key::Aspect::ALL.into_iter().filter(|aspect| *aspect > key.aspect);
        others
            .map(|aspect| key.with(aspect))
            .filter(|key| self.wanted(key).is_some())
            .for_each(emit);
    }
}
