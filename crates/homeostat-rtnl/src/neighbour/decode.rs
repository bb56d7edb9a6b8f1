//! Reads neighbours out of the kernel's messages.

use homeostat_netlink::uapi::{
    NDA_DST, NDA_LLADDR, NDA_PROTOCOL, NTF_EXT_LEARNED, NTF_PROXY, NUD_NOARP, NUD_PERMANENT,
};
use homeostat_netlink::{Malformed, Message};

use crate::decode::ip;
use crate::family::Family;
use crate::link::{IfIndex, Links};
use crate::neighbour::{Mac, Neighbour, NeighbourKey};
use crate::number::Protocol;

/// A neighbour as the kernel tells it.
pub(crate) struct SeenNeighbour {
    pub(crate) key: NeighbourKey,
    pub(crate) neighbour: Neighbour,
    pub(crate) protocol: Protocol,
    pub(crate) nature: Nature,
}

/// How a neighbour came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Somebody said so, for good.
    Told,
    /// A program learned it and keeps it up to date.
    LearnedElsewhere,
    /// The kernel learned it, or tries to.
    Learned,
    /// The kernel derives it.
    Derived,
}

/// A neighbour; none, if it is of another family.
pub(crate) fn neighbour(
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
            NDA_DST => to = Some(ip(&attr)?),
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
        () if flags & NTF_PROXY != 0 || state & NUD_PERMANENT != 0 => Nature::Told,
        () if flags & NTF_EXT_LEARNED != 0 => Nature::LearnedElsewhere,
        () if state & NUD_NOARP != 0 => Nature::Derived,
        () => Nature::Learned,
    }
}

/// The neighbour that an event is about, and whose it is.
pub(crate) fn event(message: &Message<'_>, links: &Links) -> Option<(NeighbourKey, Protocol)> {
    let seen = neighbour(message, links).ok().flatten()?;
    Some((seen.key, seen.protocol))
}
