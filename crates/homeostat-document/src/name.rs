//! Names of namespaces and owners.

use std::fmt;
use std::str::FromStr;

use crate::shape::{Text, ValueError};

/// The name of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName(String);

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
            _ => None,
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
    fn owners_fit_into_file_names_and_tags() {
        for text in ["default", "a", "team-7"] {
            assert!(text.parse::<OwnerName>().is_ok(), "{text}");
        }
        for text in ["", "-a", "a-", "A", "a/b", "a_b", "../x", &"a".repeat(33)] {
            assert!(text.parse::<OwnerName>().is_err(), "{text}");
        }
    }
}
