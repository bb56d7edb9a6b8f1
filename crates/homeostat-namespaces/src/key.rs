//! The key of a namespace: its name.

use std::fmt;
use std::str::FromStr;

use homeostat_netns::Name;

/// A named network namespace; as text, `namespace blue`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Name);

/// A text that is no key of this source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `namespace` and a name")]
pub struct NotAKey(pub String);

const WORD: &str = "namespace ";

impl Key {
    /// The namespace of this name. None, if the name does not fit into one line.
    #[must_use]
    pub fn new(name: Name) -> Option<Self> {
        let is_one_line = !name.as_str().chars().any(char::is_control);
        is_one_line.then_some(Key(name))
    }

    #[must_use]
    pub fn name(&self) -> &Name {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD}{}", self.0)
    }
}

impl FromStr for Key {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let name = text.strip_prefix(WORD).and_then(|name| Name::new(name).ok());
        name.and_then(Key::new).ok_or_else(|| NotAKey(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_equal() {
        for text in
            ["namespace blue", "namespace 12", "namespace a b", "namespace  x", "namespace ü"]
        {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_name_or_no_line_is_refused() {
        for text in ["", "namespace", "namespace ", "namespace a/b", "namespace ..", "link blue"] {
            assert_eq!(text.parse::<Key>(), Err(NotAKey(text.to_owned())));
        }
        assert!("namespace a\nb".parse::<Key>().is_err());
    }
}
