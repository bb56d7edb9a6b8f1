//! Names of fleets, nodes, groups, rollouts and sources. They are parts of keys, so no name has a slash.

use std::fmt;
use std::str::FromStr;

use homeostat_document::{Text, ValueError};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Up to 63 letters, digits, `.`, `-` or `_`, with a letter or digit at both ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

const LONGEST: usize = 63;

impl Name {
    /// The group that every node is in: documents and chunks are stored once for all nodes.
    #[must_use]
    pub fn all() -> Self {
        Name(crate::keys::GROUP.to_owned())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let ends = |letter: Option<char>| letter.is_some_and(|it| it.is_ascii_alphanumeric());
        let inside = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
        let is_name = text.len() <= LONGEST
            && text.chars().all(inside)
            && ends(text.chars().next())
            && ends(text.chars().next_back());
        if is_name {
            Ok(Name(text.to_owned()))
        } else {
            Err(Error::Name { text: text.chars().take(LONGEST).collect() })
        }
    }
}

/// As documents have it.
impl Text for Name {
    const WHAT: &'static str = "a name";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|error: Error| {
            let refused = ValueError::new(error.to_string());
            error.help().into_iter().fold(refused, ValueError::help)
        })
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_key() {
        for text in ["a", "edge", "r-17.example.net", "2026-11-16.1", "A_b", &"x".repeat(63)] {
            assert_eq!(text.parse::<Name>().unwrap().as_str(), text);
        }
        for text in ["", "a/b", "..", ".a", "a.", "-a", "a b", "ä", "a\n", &"x".repeat(64)] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }
}
