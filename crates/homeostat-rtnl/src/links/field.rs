//! The fields of a link that is only configured: one key each, so that each has its own original.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::links::model::{Incarnation, Settings};

/// One field of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The largest packet.
    Mtu,
    /// The hardware address.
    Mac,
    /// The bridge, bond or VRF that it belongs to.
    Master,
    /// The description.
    Alias,
    /// Whether it is up.
    Up,
}

impl Field {
    /// All of them, in the order in which they are written: a link comes up last.
    pub const ALL: [Field; 5] = [Field::Mtu, Field::Mac, Field::Master, Field::Alias, Field::Up];

    /// The word in keys and documents.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Field::Mtu => "mtu",
            Field::Mac => "mac",
            Field::Master => "master",
            Field::Alias => "alias",
            Field::Up => "up",
        }
    }
}

/// A text that is no field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no field of a link such as `mtu` or `up`")]
pub struct NotAField(pub String);

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Field {
    type Err = NotAField;

    fn from_str(text: &str) -> Result<Self, NotAField> {
        let field = Field::ALL.into_iter().find(|field| field.word() == text);
        field.ok_or_else(|| NotAField(text.to_owned()))
    }
}

/// The value of a field. Links always have one: no master and no alias are the empty text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Of `up`.
    Flag(bool),
    /// Of `mtu`.
    Number(u32),
    /// Of `mac`, `master` and `alias`.
    Text(String),
}

/// The value of a field of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configured {
    /// The value.
    pub setting: Setting,
    /// Which link of its name it was seen on.
    #[serde(skip)]
    pub incarnation: Incarnation,
}

impl From<Setting> for Configured {
    fn from(setting: Setting) -> Self {
        Configured { setting, incarnation: Incarnation::default() }
    }
}

impl Settings {
    /// The declared fields.
    pub(crate) fn each(self) -> impl Iterator<Item = (Field, Setting)> {
        let Settings { up, mtu, mac, master, alias } = self;
        let declared = [
            (Field::Mtu, mtu.map(Setting::Number)),
            (Field::Mac, mac.map(|mac| Setting::Text(mac.to_string()))),
            (Field::Master, master.map(|master| Setting::Text(master.to_string()))),
            (Field::Alias, alias.map(Setting::Text)),
            (Field::Up, up.map(Setting::Flag)),
        ];
        declared.into_iter().filter_map(|(field, setting)| Some((field, setting?)))
    }
}
