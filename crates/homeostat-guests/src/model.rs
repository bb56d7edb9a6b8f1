//! What is managed: run state and declared options of a guest, and the desired state of many of them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::normalize;

/// The number of a guest: a name that the target gives again, not an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Vmid(pub u32);

impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A guest, as plans and commands name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Vmid);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {}", self.0)
    }
}

/// A text names no guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no guest: one is called `guest 101`")]
pub struct BadKey(String);

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let number = text.strip_prefix("guest ").and_then(|number| number.parse().ok());
        let key = number.map(|number| Key(Vmid(number)));
        key.filter(|key| key.to_string() == text).ok_or_else(|| BadKey(text.to_owned()))
    }
}

/// What a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A container.
    Lxc,
    /// A virtual machine.
    Qemu,
}

impl Kind {
    /// Its word in paths.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Lxc => "lxc",
            Kind::Qemu => "qemu",
        }
    }
}

/// Whether a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Run {
    /// It does.
    Running,
    /// It does not.
    Stopped,
}

/// How a guest is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is asked to shut down, and stopped if it has not after this time.
    Graceful(Duration),
    /// It is asked to shut down, and left running if it has not after this time.
    Shutdown(Duration),
    /// At once.
    Immediate,
}

impl Default for Stop {
    fn default() -> Self {
        Stop::Graceful(Duration::from_mins(1))
    }
}

/// The managed part of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// What it is.
    pub kind: Kind,
    /// Whether it runs; nothing, if that is not declared or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Its options in normal form; empty means that one is not set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Why its options could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// Whether it carries our mark.
    #[serde(default)]
    pub is_marked: bool,
}

/// What one guest shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it is.
    pub kind: Kind,
    /// Where it is; without a node it may be on any.
    pub node: Option<String>,
    /// Whether it shall run.
    pub run: Option<Run>,
    /// How it is stopped.
    pub stop: Stop,
    /// Options in normal form; empty means that one shall not be set.
    pub options: BTreeMap<String, String>,
    /// Whether it may be taken from whoever manages it.
    pub adopt: bool,
}

impl Wanted {
    /// Whether its configuration is declared at all. Nothing is written into one that is not, the mark
    /// included.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        !self.options.is_empty()
    }
}

/// The guests that shall be something, sorted by number.
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

    /// What is desired for a key, without a copy.
    #[must_use]
    pub fn wanted(&self, key: &Key) -> Option<&Wanted> {
        self.slot(key, None).map(|slot| self.at(slot).1)
    }
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Guest;

    fn len(&self) -> usize {
        self.desired_states.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        find_near(&self.desired_states, near, |desired| desired.0.cmp(key))
    }

    fn key(&self, slot: Slot) -> Key {
        *self.at(slot).0
    }

    fn object(&self, slot: Slot) -> Guest {
        let Wanted { kind, run, options, .. } = self.at(slot).1.clone();
        let is_marked = !options.is_empty();
        Guest { kind, run, options, unread: None, is_marked }
    }

    fn compare(&self, slot: Slot, seen: &Guest) -> Agreement {
        let wanted = self.at(slot).1;
        let run_differs = wanted.run.is_some_and(|run| seen.run.is_some_and(|seen| seen != run));
        let unknown_run = wanted.run.is_some() && seen.run.is_none();
        match (&seen.unread, unknown_run) {
            (Some(why), _) if wanted.is_configured() => {
                let why = format!("its configuration cannot be read: {why}");
                return Agreement::Unsure { differs: run_differs, why };
            }
            _ => {}
        }
        let lacks_mark = wanted.is_configured() && !seen.is_marked;
        let differs = run_differs || lacks_mark || !self.differing(slot, seen).is_empty();
        if unknown_run {
            let why = "whether it runs is not known".to_owned();
            return Agreement::Unsure { differs, why };
        }
        Agreement::when(!differs)
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).1.adopt
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        self.at(slot).1 == other.at(there).1
    }

    fn shown(&self, guest: &Guest) -> serde_json::Value {
        let mut shown = serde_json::to_value(guest).unwrap_or_default();
        if let Some(fields) = shown.as_object_mut() {
            fields.shift_remove("is_marked");
        }
        shown
    }
}

impl DesiredState {
    /// The declared options that are not as declared.
    pub(crate) fn differing(&self, slot: Slot, seen: &Guest) -> Vec<&str> {
        let wanted = self.at(slot).1;
        let differs = |(option, value): &(&String, &String)| {
            let seen = seen.options.get(*option).map(String::as_str).unwrap_or_default();
            !normalize::agrees(wanted.kind, option, (value, seen))
        };
        wanted.options.iter().filter(differs).map(|(option, _)| option.as_str()).collect()
    }
}
