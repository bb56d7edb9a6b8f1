//! What is kept of one link: the queue of what it sends, and what happens to what comes in.

use std::fmt;
use std::str::FromStr;

/// One side of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub link: LinkName,
    pub side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The queue of what it sends: its root qdisc with all below.
    Root,
    /// What happens to what comes in.
    Ingress,
}

/// A name that a link can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(String);

/// The longest name that the kernel takes.
const LONGEST: usize = 15;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a link")]
pub struct NotALink(pub String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names neither a qdisc nor an ingress, such as `qdisc eth0`")]
pub struct NotAKey(pub String);

impl LinkName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LinkName {
    type Err = NotALink;

    fn from_str(text: &str) -> Result<Self, NotALink> {
        let is_odd = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        let is_name = (1..=LONGEST).contains(&text.len())
            && !matches!(text, "." | "..")
            && !text.contains(is_odd);
        if is_name { Ok(LinkName(text.to_owned())) } else { Err(NotALink(text.to_owned())) }
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Side {
    pub const ALL: [Side; 2] = [Side::Root, Side::Ingress];

    /// The word in keys, and the name of the field of the link.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Side::Root => "qdisc",
            Side::Ingress => "ingress",
        }
    }
}

impl Key {
    #[must_use]
    pub fn new(link: LinkName, side: Side) -> Self {
        Key { link, side }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.side.word(), self.link)
    }
}

impl FromStr for Key {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let refuse = || NotAKey(text.to_owned());
        let (word, link) = text.split_once(' ').ok_or_else(refuse)?;
        let side = Side::ALL.into_iter().find(|side| side.word() == word).ok_or_else(refuse)?;
        Ok(Key { link: link.parse().map_err(|_| refuse())?, side })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back() {
        for text in ["qdisc eth0", "ingress wan.20"] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for text in ["", "qdisc", "qdisc ", "qdisc a b", "class eth0", "qdisc eth0/1"] {
            assert_eq!(text.parse::<Key>(), Err(NotAKey(text.to_owned())));
        }
        assert!("a123456789012345".parse::<LinkName>().is_err());
    }
}
