//! Neighbours: permanent hardware addresses, and addresses that this machine answers for. What the kernel learned by
//! itself counts as absent.
//!
//! Quirk `proxy-neighbours-are-silent` (Linux 6.18): a proxy entry that is added or deleted is not announced, and a
//! request to create one that exists replaces its protocol.

#[cfg(feature = "document")]
pub(crate) mod section;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use homeostat_core::Owner;
use homeostat_netlink::uapi::{
    NDA_DST, NDA_LLADDR, NDA_PROTOCOL, NTF_EXT_LEARNED, NTF_PROXY, NUD_NOARP, NUD_PERMANENT,
    RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH,
};
use homeostat_netlink::{Batch, Errno, Error, Malformed, Message, Result};
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::key::Key;
use crate::link::observe::ask;
use crate::link::{IfIndex, LinkName, Links};
use crate::message::{Encoded, Encoder, Put, put_ip, read_ip};
use crate::moment::Moment;
use crate::net::Family;
use crate::number::{ParseError, Protocol, serde_as_text};
use crate::object::Object;
use crate::observe::{MOST_LOOKUPS, Observation, collect, foreign};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct NeighbourKey {
    pub link: LinkName,
    pub ip: IpAddr,
    /// Whether this machine answers for the address.
    pub is_proxy: bool,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl NeighbourKey {
    /// The lowest key that a neighbour on a link can have: links come first in the order of keys.
    pub(crate) fn lowest_on(link: LinkName) -> Self {
        NeighbourKey { link, ip: Ipv4Addr::UNSPECIFIED.into(), is_proxy: false }
    }

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

/// Why a declared neighbour can never be.
pub(crate) fn check(key: &NeighbourKey, desired: Neighbour) -> Result<(), Impossible> {
    if desired.mac.is_some() == key.is_proxy { Err(Impossible::NeighbourMac) } else { Ok(()) }
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
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_pair = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        let pair = |part: &str| u8::from_str_radix(part, 16).ok().filter(|_| is_pair(part));
        let bytes: Option<Vec<u8>> = text.split(':').map(pair).collect();
        let mac = bytes.and_then(|bytes| bytes.try_into().ok()).map(Mac);
        ParseError::unless(mac, text, "no hardware address such as 02:00:00:00:00:09")
    }
}

serde_as_text!(Mac);

/// Puts a neighbour there, for good.
pub(crate) fn put(
    encoder: &mut Encoder<'_>,
    key: &NeighbourKey,
    neighbour: Neighbour,
    put: Put,
) -> Encoded {
    request(encoder, RTM_NEWNEIGH, put.flags(), key, Some(neighbour))
}

/// Takes a neighbour away.
pub(crate) fn delete(encoder: &mut Encoder<'_>, key: &NeighbourKey) -> Encoded {
    request(encoder, RTM_DELNEIGH, 0, key, None)
}

fn request(
    encoder: &mut Encoder<'_>,
    kind: u16,
    flags: u16,
    key: &NeighbourKey,
    neighbour: Option<Neighbour>,
) -> Encoded {
    let [i0, i1, i2, i3] = encoder.index(key.link)?.0.to_ne_bytes();
    let [s0, s1] = NUD_PERMANENT.to_ne_bytes();
    let proxy = if key.is_proxy { NTF_PROXY } else { 0 };
    let family = Family::of(key.ip).to_kernel();
    let mut message = encoder.batch.message(kind, flags);
    message.fixed(&[family, 0, 0, 0, i0, i1, i2, i3, s0, s1, proxy, 0]);
    if neighbour.is_some() {
        message.attr_u8(NDA_PROTOCOL, encoder.protocol.0);
    }
    put_ip(&mut message, NDA_DST, key.ip);
    neighbour.and_then(|one| one.mac).map(|Mac(mac)| message.attr(NDA_LLADDR, &mac));
    Ok(message.finish())
}

/// Asks for one neighbour.
fn get(batch: &mut Batch, key: &NeighbourKey, index: IfIndex) -> Result<()> {
    let [i0, i1, i2, i3] = index.0.to_ne_bytes();
    let proxy = if key.is_proxy { NTF_PROXY } else { 0 };
    let mut message = batch.message(RTM_GETNEIGH, 0);
    message.fixed(&[Family::of(key.ip).to_kernel(), 0, 0, 0, i0, i1, i2, i3, 0, 0, proxy, 0]);
    put_ip(&mut message, NDA_DST, key.ip);
    message.finish()
}

/// A neighbour as the kernel reports it.
pub(crate) struct SeenNeighbour {
    pub(crate) key: NeighbourKey,
    pub(crate) neighbour: Neighbour,
    pub(crate) protocol: Protocol,
    pub(crate) nature: Nature,
}

/// How a neighbour came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// It was configured, for good.
    Permanent,
    /// A program learned it and keeps it up to date.
    LearnedElsewhere,
    /// The kernel learned it, or tries to.
    Learned,
    /// The kernel derives it.
    Derived,
}

/// A neighbour; none, if it is of another family.
pub(crate) fn decode(
    message: &Message<'_>,
    links: &Links,
) -> Result<Option<SeenNeighbour>, Malformed> {
    let (fixed, attrs) = message.split::<12>()?;
    let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _] = *fixed;
    let link = links.name(IfIndex(u32::from_ne_bytes([i0, i1, i2, i3])));
    let nature = nature(u16::from_ne_bytes([s0, s1]), flags);
    let (mut to, mut mac, mut protocol) = (None, None, 0);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NDA_DST => to = Some(read_ip(&attr)?),
            // Links of other kinds have longer or shorter ones, which no desired state can hold.
            NDA_LLADDR => mac = attr.array().ok().map(Mac),
            NDA_PROTOCOL => protocol = attr.u8()?,
            _ => {}
        }
    }
    if Family::from_kernel(family).is_none() {
        return Ok(None);
    }
    let key = |ip| match flags & NTF_PROXY {
        0 => NeighbourKey::new(link, ip),
        _ => NeighbourKey::proxy(link, ip),
    };
    let (neighbour, protocol) = (Neighbour { mac }, Protocol(protocol));
    Ok(to.map(|ip| SeenNeighbour { key: key(ip), neighbour, protocol, nature }))
}

fn nature(state: u16, flags: u8) -> Nature {
    match () {
        () if flags & NTF_PROXY != 0 || state & NUD_PERMANENT != 0 => Nature::Permanent,
        () if flags & NTF_EXT_LEARNED != 0 => Nature::LearnedElsewhere,
        () if state & NUD_NOARP != 0 => Nature::Derived,
        () => Nature::Learned,
    }
}

/// Looks up the neighbours that have some keys, one by one. False, if only a dump shows them: they are too many,
/// or the kernel is older than Linux 5.0.
pub(crate) fn observe_some(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    keys: &BTreeSet<Key>,
) -> Result<bool, Error> {
    let wanted = keys.iter().filter_map(|key| match key {
        Key::Neighbour(key) => Some((*key, moment.links.index(key.link)?)),
        _ => None,
    });
    let wanted: Vec<(NeighbourKey, IfIndex)> = wanted.collect();
    if wanted.len() > MOST_LOOKUPS {
        return Ok(false);
    }
    let mut found = Vec::new();
    for (key, index) in wanted {
        let links = &moment.links;
        let asked = ask(observation.connection, |batch| get(batch, &key, index), &mut |message| {
            found.extend(decode(&message, links).ok().flatten());
        });
        match asked {
            Err(Error::Refused(refusal)) if refusal.errno == Errno::NOENT => {}
            Err(Error::Refused(_)) => return Ok(false),
            asked => asked?,
        }
    }
    for seen in &found {
        report(observation, seen, moment);
    }
    Ok(true)
}

pub(crate) fn observe_all(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
) -> Result<(), Error> {
    // The kernel dumps proxy entries only where the request asks for them.
    for flags in [0, NTF_PROXY] {
        let fixed = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, flags, 0];
        let links = &moment.links;
        let found = collect(observation.connection, RTM_GETNEIGH, &fixed, |message| {
            decode(message, links)
        })?;
        for seen in &found {
            report(observation, seen, moment);
        }
    }
    Ok(())
}

fn report(observation: &mut Observation<'_, '_>, seen: &SeenNeighbour, moment: &mut Moment) {
    let SeenNeighbour { key, neighbour, protocol, nature } = *seen;
    let owner = match nature {
        Nature::Learned => {
            moment.learned.insert(key);
            return;
        }
        Nature::LearnedElsewhere => Owner::foreign("a program that learns neighbours"),
        Nature::Derived => Owner::Kernel,
        Nature::Permanent if protocol == observation.source.protocol => Owner::Ours,
        Nature::Permanent => foreign(protocol),
    };
    moment.foreign.note_neighbour(&key, &owner);
    observation.report(Key::Neighbour(key), Object::Neighbour(neighbour), owner);
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
        assert!(check(&neighbour, known).is_ok() && check(&proxy, Neighbour::proxy()).is_ok());
        assert_eq!(check(&proxy, known), Err(Impossible::NeighbourMac));
        assert_eq!(check(&neighbour, Neighbour::proxy()), Err(Impossible::NeighbourMac));
    }
}
