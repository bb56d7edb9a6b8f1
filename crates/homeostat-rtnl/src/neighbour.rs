//! Neighbours: hardware addresses that are known for good, and addresses that this machine answers
//! for.
//!
//! Quirk `proxy-neighbours-are-silent` (Linux 6.18): a proxy entry that comes or goes is announced
//! to nobody, and asking for one that may not be there yet replaces the mark of one that is.

mod decode;
mod encode;
mod observe;
#[cfg(feature = "document")]
pub(crate) mod section;

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::link::LinkName;
use crate::normalize::Impossible;

pub(crate) use decode::event;
pub(crate) use observe::declared;

/// Which neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourKey {
    link: LinkName,
    ip: IpAddr,
    is_proxy: bool,
}

/// The managed part of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Its hardware address; a proxy entry has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

/// A text that is no hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no hardware address such as 02:00:00:00:00:09")]
pub struct NotAMac(pub String);

impl NeighbourKey {
    /// A neighbour on a link.
    #[must_use]
    pub fn new(link: LinkName, ip: IpAddr) -> Self {
        NeighbourKey { link, ip, is_proxy: false }
    }

    /// An address that this machine answers for on a link.
    #[must_use]
    pub fn proxy(link: LinkName, ip: IpAddr) -> Self {
        NeighbourKey { link, ip, is_proxy: true }
    }

    /// The link.
    #[must_use]
    pub fn link(&self) -> LinkName {
        self.link
    }

    /// The address.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Whether this machine answers for the address.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        self.is_proxy
    }

    /// Reads what follows the word `neighbour`.
    pub(crate) fn read(words: &[&str]) -> Option<Self> {
        match words {
            [ip, "dev", link] => Some(Self::new(link.parse().ok()?, ip.parse().ok()?)),
            [ip, "dev", link, "proxy"] => Some(Self::proxy(link.parse().ok()?, ip.parse().ok()?)),
            _ => None,
        }
    }
}

impl Neighbour {
    /// A neighbour with a hardware address.
    #[must_use]
    pub fn at(mac: Mac) -> Self {
        Neighbour { mac: Some(mac) }
    }

    /// A proxy entry.
    #[must_use]
    pub fn proxy() -> Self {
        Neighbour { mac: None }
    }
}

/// Brings a declared neighbour to the form in which it is compared.
pub(crate) fn normalize(key: &NeighbourKey, desired: Neighbour) -> Result<Neighbour, Impossible> {
    if desired.mac.is_some() == key.is_proxy {
        return Err(Impossible::NeighbourMac);
    }
    Ok(desired)
}

impl From<NeighbourKey> for Key {
    fn from(key: NeighbourKey) -> Key {
        Key::Neighbour(key)
    }
}

impl fmt::Display for NeighbourKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NeighbourKey { link, ip, is_proxy } = self;
        let proxy = if *is_proxy { " proxy" } else { "" };
        write!(f, "neighbour {ip} dev {link}{proxy}")
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&pairs.join(":"))
    }
}

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let is_pair = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        let pair = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| is_pair(part));
        let bytes: Option<Vec<u8>> = text.split(':').map(pair).collect();
        let mac = bytes.and_then(|bytes| bytes.try_into().ok()).map(Mac);
        mac.ok_or_else(|| NotAMac(text.to_owned()))
    }
}

impl TryFrom<String> for Mac {
    type Error = NotAMac;

    fn try_from(text: String) -> Result<Self, NotAMac> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_read_back() {
        let mac: Mac = "02:00:00:00:00:AB".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:00:00:00:ab");
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02:00:00:00:00:+1"]
        {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_neighbour_has_a_hardware_address_and_a_proxy_entry_has_none() {
        let (link, ip) = ("va".parse().unwrap(), [10, 0, 0, 9].into());
        let (neighbour, proxy) = (NeighbourKey::new(link, ip), NeighbourKey::proxy(link, ip));
        let known = Neighbour::at(Mac([2, 0, 0, 0, 0, 9]));
        assert!(
            normalize(&neighbour, known).is_ok() && normalize(&proxy, Neighbour::proxy()).is_ok()
        );
        assert_eq!(normalize(&proxy, known), Err(Impossible::NeighbourMac));
        assert_eq!(normalize(&neighbour, Neighbour::proxy()), Err(Impossible::NeighbourMac));
    }
}
