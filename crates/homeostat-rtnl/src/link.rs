//! Links by name: how a desired state refers to them, and which numbers they have at this moment.
//!
//! Links with a kind are created, owned and deleted; others are only configured. Start at `model` for what a link is,
//! at `kinds` for the options of each kind; `matching` finds links that are not known by their name. The flow is that of
//! the crate: `observe` (with `message` and `namespaces`), `plan` (with `cascade` and `parking`), `apply`.

pub(crate) mod alias;
pub(crate) mod apply;
pub(crate) mod cascade;
pub(crate) mod kinds;
pub(crate) mod matching;
pub(crate) mod message;
pub(crate) mod model;
pub(crate) mod namespaces;
pub(crate) mod observe;
pub(crate) mod optional;
pub(crate) mod parking;
pub(crate) mod plan;
pub(crate) mod port;
pub(crate) mod ports;
pub(crate) mod refused;
#[cfg(feature = "document")]
pub(crate) mod section;
pub(crate) mod sysctls;
mod tun_sys;
pub(crate) mod vlans;
pub(crate) mod vnis;
pub(crate) mod wireguard;

use std::fmt;
use std::str::FromStr;

use crate::number::{ParseError, serde_as_text};
use crate::shared_map::SharedMap;

/// The room that the kernel gives a name, its NUL included.
const ROOM: usize = 16;

/// The name of a link, in the kernel's own size.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName([u8; ROOM]);

impl LinkName {
    /// The lowest name, which no link has.
    pub(crate) const LOWEST: LinkName = LinkName([0; ROOM]);

    /// What the kernel reports is a name, whatever it looks like.
    pub(crate) fn padded(name: &str) -> Self {
        let mut bytes = [0; ROOM];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        LinkName(bytes)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(ROOM);
        str::from_utf8(self.0.get(..len).unwrap_or_default()).unwrap_or("?")
    }

    pub(crate) fn bytes(&self) -> &[u8; ROOM] {
        &self.0
    }

    /// Why a text is not taken as a name in a document. Stricter than the kernel, which takes `%` for a
    /// pattern and control characters as they are.
    #[cfg(feature = "document")]
    pub(crate) fn fault(text: &str) -> Option<&'static str> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        match text {
            "" => Some("it is empty"),
            "." | ".." => Some("it is a directory"),
            // As nearly all are: a list of routes asks a million times.
            _ if text.len() <= 15 && text.bytes().all(is_plain) => None,
            _ if text.len() > 15 => Some("it has more than 15 bytes"),
            _ if text.contains(['/', ':', '%']) => Some("it has a `/`, `:` or `%` in it"),
            _ if text.contains(|c: char| c.is_whitespace() || c.is_control()) => {
                Some("it has a space or a control character in it")
            }
            _ => None,
        }
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl FromStr for LinkName {
    type Err = ParseError;

    /// Takes a name that the kernel would take.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_odd = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
        let is_name = (1..ROOM).contains(&text.len()) && !matches!(text, "." | "..");
        let name = (is_name && !text.contains(is_odd)).then(|| Self::padded(text));
        let is = "no name for a link: 1 to 15 bytes without blanks, `/` and `:`";
        ParseError::unless(name, text, is)
    }
}

serde_as_text!(LinkName);

/// The number under which the kernel knows a link until it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfIndex(pub u32);

/// The links of one moment.
#[derive(Clone, Debug, Default)]
pub struct Links {
    by_name: SharedMap<LinkName, IfIndex>,
    by_index: SharedMap<IfIndex, LinkName>,
}

impl FromIterator<(LinkName, IfIndex)> for Links {
    fn from_iter<I: IntoIterator<Item = (LinkName, IfIndex)>>(links: I) -> Self {
        let mut all = Links::default();
        links.into_iter().for_each(|(name, index)| all.insert(name, index));
        all
    }
}

impl Links {
    pub(crate) fn insert(&mut self, name: LinkName, index: IfIndex) {
        if self.index(name) == Some(index) {
            return;
        }
        self.remove(index);
        self.forget(name);
        self.by_name.insert(name, index);
        self.by_index.insert(index, name);
    }

    pub(crate) fn forget(&mut self, name: LinkName) {
        if let Some(index) = self.by_name.remove(&name) {
            self.by_index.remove(&index);
        }
    }

    pub(crate) fn remove(&mut self, index: IfIndex) {
        if let Some(name) = self.by_index.remove(&index) {
            self.by_name.remove(&name);
        }
    }

    /// The number of a link, if it is there.
    #[must_use]
    pub fn index(&self, name: LinkName) -> Option<IfIndex> {
        self.by_name.get(&name).copied()
    }

    /// Whether a link with this number was there.
    pub(crate) fn knows(&self, index: IfIndex) -> bool {
        self.by_index.get(&index).is_some()
    }

    /// The name of a link. One that came while the others were listed has a stand-in that no desired state
    /// can hold, since it has a colon in it.
    #[must_use]
    pub fn name(&self, index: IfIndex) -> LinkName {
        let known = self.by_index.get(&index).copied();
        known.unwrap_or_else(|| LinkName::padded(&format!(":{}", index.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_kernel_takes() {
        for name in ["lo", "eth0", "enp3s0.200", "a23456789012345", "ö"] {
            assert_eq!(name.parse::<LinkName>().unwrap().to_string(), name);
        }
        for name in ["", ".", "..", "a/b", "a b", "a:b", "a234567890123456", "\n"] {
            assert!(name.parse::<LinkName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn an_unlisted_link_has_a_name_that_no_desired_state_can_hold() {
        let name = Links::default().name(IfIndex(7));
        assert!(name.as_str().parse::<LinkName>().is_err());
    }
}
