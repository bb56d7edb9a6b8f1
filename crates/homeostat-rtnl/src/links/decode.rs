//! Reads links out of the kernel's messages. References stay numbers until all links are known.

use homeostat_core::Owner;
use homeostat_netlink::uapi::{
    IFF_UP, IFLA_ADDRESS, IFLA_GROUP, IFLA_IFALIAS, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINK,
    IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU,
};
use homeostat_netlink::{Attr, Attrs, Malformed, Message};

use crate::decode;
use crate::link::IfIndex;
use crate::links::alias;
use crate::links::kinds::{LinkKind, Told};
use crate::links::model::{Incarnation, Link};
use crate::links::table::{Lower, SeenLink};
use crate::neighbour::Mac;

/// The kind of what has none to the kernel: a network card, the loopback link.
const NO_KIND: &str = "none";

/// A link as the kernel tells it. Whose it is, and what it refers to by name, is found out later.
pub(crate) fn link(message: &Message<'_>) -> Result<SeenLink, Malformed> {
    let (index, name) = decode::link(message)?;
    let (fixed, attrs) = message.split::<16>()?;
    let [_, _, _, _, _, _, _, _, f0, f1, f2, f3, ..] = *fixed;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let kind = LinkKind::Other { name: NO_KIND.to_owned() };
    let mut link = Link::new(kind);
    link.up = Some(flags & IFF_UP != 0);
    link.incarnation = Incarnation(Some(index));
    let owner = Owner::Unmarked;
    let (alias, master, lower, primary) = (None, None, None, None);
    let mut seen = SeenLink { index, name, link, owner, alias, group: 0, master, lower, primary };
    read(&mut seen, attrs)?;
    seen.link.alias = seen.alias.as_deref().map(|text| alias::split(text).0.to_owned());
    Ok(seen)
}

fn read(seen: &mut SeenLink, attrs: Attrs<'_>) -> Result<(), Malformed> {
    let (mut below, mut nsid) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IFLA_MTU => seen.link.mtu = Some(attr.u32()?),
            // Tunnels have their ends there.
            IFLA_ADDRESS => seen.link.mac = attr.array().ok().map(Mac),
            IFLA_MASTER => seen.master = Some(IfIndex(attr.u32()?)),
            IFLA_IFALIAS => seen.alias = attr.str().ok().map(str::to_owned),
            IFLA_GROUP => seen.group = attr.u32()?,
            IFLA_LINK => below = Some(IfIndex(attr.u32()?)),
            IFLA_LINK_NETNSID => nsid = Some(i32::from_ne_bytes(attr.array()?)),
            IFLA_LINKINFO => below = kind(seen, &attr)?.or(below),
            _ => {}
        }
    }
    // A link that is below itself is below nothing, unless it is another namespace's number.
    let below = below.filter(|below| below.0 != 0 && (*below != seen.index || nsid.is_some()));
    seen.lower = below.map(|index| Lower { index, nsid });
    Ok(())
}

/// Reads what kind of link it is; some kinds tell the link below in their own place.
fn kind(seen: &mut SeenLink, info: &Attr<'_>) -> Result<Option<IfIndex>, Malformed> {
    let Some(kind) = info.attrs().first(IFLA_INFO_KIND)? else { return Ok(None) };
    let Ok(kind) = kind.str() else { return Ok(None) };
    let data = info.attrs().first(IFLA_INFO_DATA)?;
    let data = data.map_or_else(|| Attrs::new(&[]), |data| data.attrs());
    let Told { kind, lower, primary } = LinkKind::decode(kind, data)?;
    (seen.link.kind, seen.primary) = (kind, primary);
    Ok(lower)
}

#[cfg(test)]
mod tests {
    use homeostat_netlink::{Batch, Messages};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_option_of_any_kind_can_panic(
            kind in prop_oneof![
                Just("veth"), Just("bridge"), Just("vxlan"), Just("macvlan"), Just("ipvlan"),
                Just("vlan"), Just("bond"), Just("vrf"), Just("gre"), Just("tun"), Just("other"),
            ],
            attrs in proptest::collection::vec((0u16..50, proptest::collection::vec(any::<u8>(), 0..20)), 0..8),
        ) {
            let mut batch = Batch::new();
            let mut message = batch.message(16, 0);
            message.fixed(&[0; 16]).nest(IFLA_LINKINFO, |info| {
                info.attr(IFLA_INFO_KIND, &[kind.as_bytes(), &[0]].concat());
                info.nest(IFLA_INFO_DATA, |data| {
                    for (option, value) in &attrs {
                        data.attr(*option, value);
                    }
                });
            });
            message.finish().unwrap();
            let message = Messages::new(batch.bytes()).next().unwrap().unwrap();
            let _ = link(&message);
        }
    }
}
