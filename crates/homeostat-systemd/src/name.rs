//! Names of units.

use std::fmt;
use std::str::FromStr;

/// The name of a unit with its type: `haproxy.service`, `backup.timer`, `getty@tty1.service`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitName(String);

/// A text that is no name of a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAUnit {
    /// It does not end in a type of units.
    #[error("`{0}` does not say which type of unit it is")]
    NoType(String),
    /// A template is not a unit: only its instances are.
    #[error("`{0}` is a template, not a unit")]
    Template(String),
    /// It is empty, too long, or has characters that no unit has.
    #[error("`{0}` is not the name of a unit")]
    Malformed(String),
}

impl NotAUnit {
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            NotAUnit::NoType(name) => format!("write the whole name, such as `{name}.service`"),
            NotAUnit::Template(name) => {
                let instance = name.replacen('@', "@NAME", 1);
                format!("write the instance that you mean: `{instance}`")
            }
            NotAUnit::Malformed(_) => {
                "letters, digits, `:`, `-`, `_`, `.`, `\\` and one `@`, then the type".to_owned()
            }
        }
    }
}

/// The types of units. Scopes and slices are made by programs and by systemd itself.
const TYPES: [&str; 9] =
    ["service", "socket", "target", "timer", "path", "mount", "automount", "swap", "device"];

/// The longest name that systemd takes.
const LONGEST: usize = 255;

impl UnitName {
    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a service: the only units that end by themselves.
    #[must_use]
    pub fn is_service(&self) -> bool {
        self.0.ends_with(".service")
    }

    /// The unit of an object on the bus: the last part of its path, unescaped.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let escaped = path.strip_prefix("/org/freedesktop/systemd1/unit/")?;
        let mut bytes = Vec::with_capacity(escaped.len());
        let mut rest = escaped.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'_' {
                let digits = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?);
            } else {
                bytes.push(byte);
            }
        }
        String::from_utf8(bytes).ok()?.parse().ok()
    }
}

impl FromStr for UnitName {
    type Err = NotAUnit;

    fn from_str(text: &str) -> Result<Self, NotAUnit> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        if text.is_empty() || text.len() > LONGEST || !text.chars().all(is_allowed) {
            return Err(NotAUnit::Malformed(text.to_owned()));
        }
        let Some((stem, _)) = text.rsplit_once('.').filter(|(_, kind)| TYPES.contains(kind)) else {
            return Err(NotAUnit::NoType(text.to_owned()));
        };
        if stem.is_empty() || stem.starts_with('@') {
            return Err(NotAUnit::Malformed(text.to_owned()));
        }
        if stem.ends_with('@') {
            return Err(NotAUnit::Template(text.to_owned()));
        }
        Ok(UnitName(text.to_owned()))
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_type() {
        for name in ["haproxy.service", "getty@tty1.service", "a-b_c\\x2d.mount", "x.y.timer"] {
            assert_eq!(name.parse::<UnitName>().unwrap().as_str(), name);
        }
        let refused = |name: &str| name.parse::<UnitName>().unwrap_err();
        assert_eq!(refused("haproxy"), NotAUnit::NoType("haproxy".to_owned()));
        assert_eq!(refused("haproxy").help(), "write the whole name, such as `haproxy.service`");
        assert_eq!(refused("x.slice"), NotAUnit::NoType("x.slice".to_owned()));
        assert_eq!(
            refused("getty@.service").help(),
            "write the instance that you mean: `getty@NAME.service`"
        );
        for name in ["", ".service", "@x.service", "a b.service", "a/b.service", "ü.service"] {
            assert_eq!(refused(name), NotAUnit::Malformed(name.to_owned()), "{name}");
        }
        assert!("x".repeat(250).parse::<UnitName>().is_err());
        assert!(format!("{}.service", "x".repeat(250)).parse::<UnitName>().is_err(), "too long");
    }

    #[test]
    fn paths_of_the_bus_are_unescaped() {
        let of = |escaped: &str| {
            UnitName::of_path(&format!("/org/freedesktop/systemd1/unit/{escaped}"))
                .map(|name| name.to_string())
        };
        assert_eq!(of("haproxy_2eservice").as_deref(), Some("haproxy.service"));
        assert_eq!(of("getty_40tty1_2eservice").as_deref(), Some("getty@tty1.service"));
        assert_eq!(of("_2d_2eslice"), None, "a type that cannot be declared");
        assert_eq!(of("broken_2"), None);
        assert_eq!(UnitName::of_path("/org/freedesktop/systemd1/job/7"), None);
    }
}
