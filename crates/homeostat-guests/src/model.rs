//! What is managed: the run state and the declared options of a guest.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A guest by its number, which the target gives again: a name, not an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Vmid(pub u32);

impl Vmid {
    /// The numbers that the target gives to guests.
    pub(crate) const VALID: RangeInclusive<u32> = 100..=999_999_999;
}

/// As plans and commands name the guest.
impl fmt::Display for Vmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guest {}", self.0)
    }
}

/// A text names no guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no guest: one is called `guest 101`")]
pub struct BadKey(String);

impl FromStr for Vmid {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let number = text.strip_prefix("guest ").and_then(|number| number.parse().ok());
        let key = number.map(Vmid);
        key.filter(|key| key.to_string() == text).ok_or_else(|| BadKey(text.to_owned()))
    }
}

/// What a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Lxc,
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
    Running,
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

impl Stop {
    pub(crate) const USUAL_TIMEOUT: Duration = Duration::from_mins(1);
}

impl Default for Stop {
    fn default() -> Self {
        Stop::Graceful(Stop::USUAL_TIMEOUT)
    }
}

/// The managed part of a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
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

impl Guest {
    /// The value of an option; empty if it is not set.
    pub(crate) fn option(&self, name: &str) -> &str {
        self.options.get(name).map_or("", String::as_str)
    }
}

/// What is declared of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub kind: Kind,
    /// Where it is; without a node it may be on any.
    pub node: Option<String>,
    /// Whether it shall run.
    pub run: Option<Run>,
    /// How it is stopped.
    pub stop: Stop,
    /// Options in normal form; empty means that one shall not be set.
    pub options: BTreeMap<String, String>,
    /// Whether it may be taken over from another owner.
    pub adopt: bool,
}

impl Wanted {
    /// Whether its configuration is declared at all. Otherwise nothing is written into it, not even the mark.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        !self.options.is_empty()
    }
}
