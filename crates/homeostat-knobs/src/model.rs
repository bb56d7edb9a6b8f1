//! What is managed: the value of a knob, and the declare many of them.

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::key::Key;
use crate::lines;
use crate::normalize::Form;

/// What a knob's file holds, in normal form. Empty means that it was never set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(String);

impl Value {
    /// The normal form of a text, as the knob's file understands it.
    #[must_use]
    pub fn of(key: &Key, text: &str) -> Self {
        Value(Form::of(key).normalize(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the knob holds nothing.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `seen` is as declared here; what is not declared agrees with anything.
    #[must_use]
    pub fn agrees(&self, key: &Key, seen: &Value) -> bool {
        Form::of(key).agrees(&self.0, &seen.0)
    }

    /// What has to be written so that this value is back where `wrote` stands.
    pub(crate) fn restoring(&self, key: &Key, wrote: &Value) -> Value {
        match Form::of(key) {
            Form::Lines => Value(lines::restoring(&self.0, &wrote.0)),
            _ => self.clone(),
        }
    }

    /// What goes into the file with one write each: the kernel takes keyed lines one by one.
    pub(crate) fn writes(&self, key: &Key) -> Vec<&str> {
        match Form::of(key) {
            Form::Lines => self.0.lines().collect(),
            _ => vec![&self.0],
        }
    }
}

/// What one knob shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The value, in normal form.
    pub value: Value,
    /// Whether the knob may be taken from whoever manages it.
    pub adopt: bool,
}

/// The knobs that shall hold something, sorted by key.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    desired_states: Vec<(Key, Wanted)>,
}

impl DesiredState {
    /// Starts a desired state; see [`Builder`].
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Takes desired states that are sorted and unique.
    pub(crate) fn from_sorted(desired_states: Vec<(Key, Wanted)>) -> Self {
        DesiredState { desired_states }
    }

    /// The desired states in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Wanted)> {
        self.desired_states.iter().map(|(key, wanted)| (key, wanted))
    }

    /// The desired state in a slot, without a copy.
    pub(crate) fn at(&self, slot: Slot) -> (&Key, &Wanted) {
        let (key, wanted) = &self.desired_states[slot.index()];
        (key, wanted)
    }

    /// The declare a key, without a copy.
    pub(crate) fn wanted(&self, key: &Key) -> Option<&Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Value;

    fn len(&self) -> usize {
        self.desired_states.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.desired_states, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.at(slot).0.clone()
    }

    fn object(&self, slot: Slot) -> Value {
        self.at(slot).1.value.clone()
    }

    fn compare(&self, slot: Slot, seen: &Value) -> Agreement {
        let (key, wanted) = self.at(slot);
        Agreement::when(wanted.value.agrees(key, seen))
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }
}
