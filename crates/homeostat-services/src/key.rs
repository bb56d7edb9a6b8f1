//! The key of a value: a unit, and which of its values.

use std::fmt;
use std::str::FromStr;

use homeostat_systemd::UnitName;

/// One value of a unit; as text, `service haproxy.service active`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub unit: UnitName,
    pub aspect: Aspect,
}

/// Which value of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aspect {
    /// Whether it cannot be started at all.
    Masked,
    /// Whether it starts with the units that want it, such as at a boot.
    Enabled,
    Active,
}

impl Aspect {
    pub const ALL: [Aspect; 3] = [Aspect::Masked, Aspect::Enabled, Aspect::Active];

    /// Its name in keys and documents.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Aspect::Masked => "masked",
            Aspect::Enabled => "enabled",
            Aspect::Active => "active",
        }
    }
}

/// A text that is no key of this source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `service`, the name of a unit, and `enabled`, `active` or `masked`")]
pub struct NotAKey(pub String);

impl Key {
    /// Another value of the same unit.
    #[must_use]
    pub fn with(&self, aspect: Aspect) -> Self {
        Key { unit: self.unit.clone(), aspect }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service {} {}", self.unit, self.aspect.word())
    }
}

impl FromStr for Key {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let words: Vec<&str> = text.split(' ').collect();
        let key = match words.as_slice() {
            ["service", unit, word] => {
                let aspect = Aspect::ALL.into_iter().find(|aspect| aspect.word() == *word);
                unit.parse().ok().zip(aspect).map(|(unit, aspect)| Key { unit, aspect })
            }
            _ => None,
        };
        key.ok_or_else(|| NotAKey(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_equal() {
        for text in ["service haproxy.service active", "service getty@tty1.service masked"] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "service",
            "service haproxy active",
            "service a.service running",
            "service  active",
        ] {
            assert_eq!(text.parse::<Key>(), Err(NotAKey(text.to_owned())));
        }
    }
}
