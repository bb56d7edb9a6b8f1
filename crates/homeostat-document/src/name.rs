//! Names of namespaces and owners.

use std::fmt;
use std::str::FromStr;

use crate::shape::{Text, ValueError};

/// The name of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(String);

/// The names of some network namespaces, as shells match them: `*` is any text, also none, and `?` is one character. It
/// stands where a name stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamesNamespace {
    One(NamespaceName),
    /// A name with wildcards in it, which names no namespace.
    Each(NamespaceName),
}

/// Who a document belongs to: a word that fits into file names, tags and marks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerName(String);

/// How a namespace calls the host's own network namespace.
pub const HOST: &str = "host";

/// The owner of a document that names none.
pub const DEFAULT_OWNER: &str = "default";

impl NamespaceName {
    fn fault(text: &str) -> Option<&'static str> {
        match text {
            "" => Some("it is empty"),
            "." | ".." => Some("it is a directory"),
            _ if text.len() > 255 => Some("it has more than 255 bytes"),
            _ if text.contains('/') => Some("it has a `/` in it"),
            _ if text.contains(|c: char| c.is_whitespace() || c.is_control()) => {
                Some("it has a space or a control character in it")
            }
            _ if text.contains(WILDCARDS) => Some("`*` and `?` are for `[namespaces.\"PATTERN\"]`"),
            _ => None,
        }
    }

    /// Whether a name matches this one, if it is a pattern.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        matches(self.0.as_bytes(), name)
    }
}

const WILDCARDS: [char; 2] = ['*', '?'];

/// Each star takes as little as it can, and more if the rest does not match: time grows with the product of both lengths
/// at most.
fn matches(pattern: &[u8], name: &str) -> bool {
    let (mut pattern_at, mut name_at, mut star) = (0, 0, None);
    let starts = |at: usize| name.get(at..).and_then(|rest| rest.chars().next());
    while let Some(next) = starts(name_at) {
        match pattern.get(pattern_at) {
            Some(b'*') => {
                star = Some((pattern_at + 1, name_at));
                pattern_at += 1;
                continue;
            }
            Some(b'?') => {
                pattern_at += 1;
                name_at += next.len_utf8();
                continue;
            }
            _ => {}
        }
        let end = name_at + next.len_utf8();
        let letters = name.as_bytes().get(name_at..end).unwrap_or_default();
        if pattern.get(pattern_at..pattern_at + letters.len()) == Some(letters) {
            (pattern_at, name_at) = (pattern_at + letters.len(), end);
            continue;
        }
        let Some((behind, taken)) = star else { return false };
        let Some(more) = starts(taken) else { return false };
        let taken = taken + more.len_utf8();
        star = Some((behind, taken));
        (pattern_at, name_at) = (behind, taken);
    }
    pattern.get(pattern_at..).unwrap_or_default().iter().all(|rest| *rest == b'*')
}

impl Text for NamesNamespace {
    const WHAT: &'static str = "a namespace name, or a pattern of names such as \"ct-*\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        if !text.contains(WILDCARDS) {
            return text.parse().map(NamesNamespace::One);
        }
        // All else is as in a name.
        match NamespaceName::fault(&text.replace(WILDCARDS, "x")) {
            Some(fault) => Err(ValueError::is_not(text, Self::WHAT).help(fault)),
            None => Ok(NamesNamespace::Each(NamespaceName(text.to_owned()))),
        }
    }
}

impl OwnerName {
    fn fault(text: &str) -> Option<&'static str> {
        let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        match text {
            "" => Some("it is empty"),
            _ if text.len() > 32 => Some("it has more than 32 letters"),
            _ if text.starts_with('-') || text.ends_with('-') => Some("it begins or ends with `-`"),
            _ if !text.chars().all(letter) => Some("only a-z, 0-9 and `-` are allowed"),
            _ => None,
        }
    }
}

/// What all the names have in common.
macro_rules! name {
    ($name:ident, $what:literal) => {
        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ValueError;

            fn from_str(text: &str) -> Result<Self, ValueError> {
                match Self::fault(text) {
                    Some(fault) => Err(ValueError::is_not(text, Self::WHAT).help(fault)),
                    None => Ok(Self(text.to_owned())),
                }
            }
        }

        impl Text for $name {
            const WHAT: &'static str = $what;

            fn from_text(text: &str) -> Result<Self, ValueError> {
                text.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(NamespaceName, "a namespace name");
name!(OwnerName, "an owner's name");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_shells() {
        let rows = [
            ("ct-*", "ct-1", true),
            ("ct-*", "ct-", true),
            ("ct-*", "ct", false),
            ("ct-*", "xct-1", false),
            ("*", "", true),
            ("*-db", "a-db-db", true),
            ("*-db", "a-db-x", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1c2b", false),
            ("ct-?", "ct-1", true),
            ("ct-?", "ct-12", false),
            ("ct-?", "ct-ü", true),
            ("?", "", false),
            ("ü*", "üx", true),
            ("*ü", "aüü", true),
            ("**", "x", true),
            ("*?", "", false),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(matches(pattern.as_bytes(), name), expected, "{pattern} {name}");
        }
        let long = "a*".repeat(60) + "b";
        assert!(!matches(long.as_bytes(), &"a".repeat(200)), "it ends in time");
        assert!("ct-*".parse::<NamespaceName>().is_err(), "a pattern is no name");
        for text in ["", "a b*", "a/*"] {
            assert!(NamesNamespace::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn owners_fit_into_file_names_and_tags() {
        for text in ["default", "a", "team-7"] {
            assert!(text.parse::<OwnerName>().is_ok(), "{text}");
        }
        for text in ["", "-a", "a-", "A", "a/b", "a_b", "../x", &"a".repeat(33)] {
            assert!(text.parse::<OwnerName>().is_err(), "{text}");
        }
    }
}
