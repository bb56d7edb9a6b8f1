//! What a setting can be, and the desired state.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::key::Key;

/// What a setting is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Switch(bool),
    Number(u32),
    /// The modes that are on, of Wake-on-LAN and of FEC.
    Words(BTreeSet<String>),
    /// The features of the kernel that a word stands for.
    Features(BTreeMap<String, Bit>),
}

/// One feature of the kernel. What is asked for need not be what is in effect: some need others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bit {
    On,
    Off,
    /// Asked for, and not in effect.
    OnlyWanted,
    /// In effect, and not asked for.
    NotWanted,
}

impl Bit {
    /// One that is asked for and in effect, or neither.
    pub(crate) fn both(is_on: bool) -> Self {
        if is_on { Bit::On } else { Bit::Off }
    }

    pub(crate) fn is_active(self) -> bool {
        matches!(self, Bit::On | Bit::NotWanted)
    }

    pub(crate) fn is_wanted(self) -> bool {
        matches!(self, Bit::On | Bit::OnlyWanted)
    }
}

impl Value {
    /// Whether `seen` is as declared here.
    #[must_use]
    pub fn agrees(&self, seen: &Value) -> bool {
        match (self, seen) {
            (Value::Switch(wanted), Value::Features(bits)) => {
                bits.values().all(|bit| bit.is_active() == *wanted)
            }
            (wanted, seen) => wanted == seen,
        }
    }

    /// For plans and reports: features that are all the same are one switch.
    pub(crate) fn json(&self) -> serde_json::Value {
        match self {
            Value::Features(bits) => {
                let is_active = |bit: &Bit| bit.is_active();
                match (bits.values().any(is_active), bits.values().all(is_active)) {
                    (false, _) => json!(false),
                    (true, true) => json!(true),
                    (true, false) => json!(bits),
                }
            }
            other => json!(other),
        }
    }
}

/// What one setting shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub value: Value,
    /// Whether it may be taken over from another owner.
    pub adopt: bool,
}

/// The settings that shall be something, sorted by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    settings: Vec<(Key, Wanted)>,
    /// Links that may be absent.
    optional: BTreeSet<String>,
}

impl DesiredState {
    /// These settings. What is declared first of a key counts.
    #[must_use]
    pub fn new(settings: impl IntoIterator<Item = (Key, Value)>) -> Self {
        let wanted = |(key, value)| (key, Wanted { value, adopt: false });
        DesiredState::of(settings.into_iter().map(wanted).collect(), BTreeSet::new())
    }

    /// The same with more than values, and the links that may be absent.
    #[must_use]
    pub fn of(mut settings: Vec<(Key, Wanted)>, optional: BTreeSet<String>) -> Self {
        settings.sort_by(|(a, _), (b, _)| a.cmp(b));
        settings.dedup_by(|(later, _), (first, _)| later == first);
        DesiredState { settings, optional }
    }

    /// In key order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Wanted)> {
        self.settings.iter().map(|(key, wanted)| (key, wanted))
    }

    /// What is declared for a key.
    #[must_use]
    pub fn wanted(&self, key: &Key) -> Option<&Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }

    pub(crate) fn is_optional(&self, link: &str) -> bool {
        self.optional.contains(link)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "core asks only for slots that this desired state gave out"
    )]
    pub(crate) fn at(&self, slot: Slot) -> (&Key, &Wanted) {
        let (key, wanted) = &self.settings[slot.index()];
        (key, wanted)
    }

    /// The declared settings that a write of this one may change: those of the same message.
    pub(crate) fn beside<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Key> {
        let group = key.setting.group();
        let beside = move |other: &&Key| {
            other.link == key.link && *other != key && other.setting.group() == group
        };
        self.iter().map(|(key, _)| key).filter(beside)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Value;

    fn len(&self) -> usize {
        self.settings.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.settings, near, |declared| declared.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        self.at(slot).0.clone()
    }

    fn object(&self, slot: Slot) -> Value {
        self.at(slot).1.value.clone()
    }

    fn compare(&self, slot: Slot, seen: &Value) -> Agreement {
        Agreement::when(self.at(slot).1.value.agrees(seen))
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }
}
