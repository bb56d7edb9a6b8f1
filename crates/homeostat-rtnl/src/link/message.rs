//! Links as netlink messages. Links that a message refers to stay numbers until all links are known.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use homeostat_core::Owner;
use homeostat_netlink::uapi::{
    IFF_LOWER_UP, IFF_UP, IFLA_ADDRESS, IFLA_ALT_IFNAME, IFLA_EXT_MASK, IFLA_GROUP, IFLA_IFALIAS,
    IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND,
    IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_NET_NS_FD,
    IFLA_PARENT_DEV_BUS_NAME, IFLA_PARENT_DEV_NAME, IFLA_PERM_ADDRESS, IFLA_PROP_LIST, IFLA_TXQLEN,
    NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, RTEXT_FILTER_SKIP_STATS, RTM_DELLINK, RTM_GETLINK,
    RTM_NEWLINK,
};
use homeostat_netlink::{Attr, Attrs, Batch, Malformed, Message, MessageWriter, Result};

use crate::link::kinds::behaviour::Ports;
use crate::link::kinds::{LinkKind, Refs};
use crate::link::matching::Identity;
use crate::link::model::{Incarnation, Link};
use crate::link::observe::{Lower, SeenLink};
use crate::link::{IfIndex, LinkName, Links, alias, port};
use crate::message::put_link_name;
use crate::neighbour::Mac;

/// The least MTU of what carries IPv4.
const LEAST_MTU: u32 = 68;

/// Makes a link, in another namespace if `netns` is its descriptor.
pub(crate) fn create(
    batch: &mut Batch,
    name: LinkName,
    link: &Link,
    refs: &Refs,
    netns: Option<u32>,
) -> Result<()> {
    let mut message = batch.message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    message.fixed(&head(refs.number.unwrap_or(IfIndex(0)), None));
    put_link_name(&mut message, IFLA_IFNAME, name);
    message.attr_u32(IFLA_GROUP, refs.group);
    first_mtu(link).map(|mtu| message.attr_u32(IFLA_MTU, mtu));
    link.txqueuelen.map(|len| message.attr_u32(IFLA_TXQLEN, len));
    link.mac.map(|Mac(mac)| message.attr(IFLA_ADDRESS, &mac));
    refs.parent.map(|IfIndex(index)| message.attr_u32(IFLA_LINK, index));
    netns.map(|fd| message.attr_u32(IFLA_NET_NS_FD, fd));
    put_kind(&mut message, &link.kind, refs);
    message.finish()
}

/// The MTU of the creating message.
///
/// Quirk `a-bridge-follows-its-ports` (Linux 6.18): a bridge takes the MTU of its ports until
/// another than it has is set: neither the creating message nor the same MTU once more counts. So it
/// begins with another, and gets the right one with its mark.
fn first_mtu(link: &Link) -> Option<u32> {
    match (link.mtu, link.kind.behaviour().ports) {
        (Some(LEAST_MTU), Ports::SetItsValues) => Some(LEAST_MTU + 1),
        (Some(mtu), Ports::SetItsValues) => Some(mtu - 1),
        (mtu, _) => mtu,
    }
}

/// What is changed in one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    pub(crate) name: Option<LinkName>,
    pub(crate) mtu: Option<u32>,
    pub(crate) txqueuelen: Option<u32>,
    pub(crate) mac: Option<Mac>,
    pub(crate) alias: Option<String>,
    pub(crate) group: Option<u32>,
    pub(crate) kind: Option<LinkKind>,
    /// The bridge, bond or VRF that it is put into; number 0 takes it out.
    pub(crate) master: Option<IfIndex>,
    pub(crate) up: Option<bool>,
}

/// The changes that make a link what it was, in their order.
pub(crate) fn differences(
    seen: &SeenLink,
    former: &Link,
    master: Option<IfIndex>,
    alias: &str,
) -> Vec<Parts> {
    let (is_up, was_up) = (seen.is_up(), former.up == Some(true));
    let words = Some(alias.to_owned()).filter(|alias| seen.alias.as_deref() != Some(alias));
    let all = [
        Parts { up: (is_up && !was_up).then_some(false), ..Parts::default() },
        Parts {
            mtu: former.mtu.filter(|mtu| Some(*mtu) != seen.link.mtu),
            txqueuelen: former.txqueuelen.filter(|len| Some(*len) != seen.link.txqueuelen),
            mac: former.mac.filter(|mac| Some(*mac) != seen.link.mac),
            alias: words.filter(|alias| !(alias.is_empty() && seen.alias.is_none())),
            ..Parts::default()
        },
        Parts {
            kind: former.kind.left_of(&seen.link.kind).filter(|kind| kind.peer().is_none()),
            ..Parts::default()
        },
        Parts {
            master: Some(master.unwrap_or(IfIndex(0))).filter(|_| master != seen.master),
            ..Parts::default()
        },
        Parts { up: (!is_up && was_up).then_some(true), ..Parts::default() },
    ];
    all.into_iter().filter(|parts| *parts != Parts::default()).collect()
}

/// Changes a link.
pub(crate) fn change(batch: &mut Batch, index: IfIndex, parts: &Parts, refs: &Refs) -> Result<()> {
    let mut message = batch.message(RTM_NEWLINK, 0);
    message.fixed(&head(index, parts.up));
    parts.name.map(|name| put_link_name(&mut message, IFLA_IFNAME, name));
    parts.master.map(|IfIndex(master)| message.attr_u32(IFLA_MASTER, master));
    parts.mtu.map(|mtu| message.attr_u32(IFLA_MTU, mtu));
    parts.txqueuelen.map(|len| message.attr_u32(IFLA_TXQLEN, len));
    parts.mac.map(|Mac(mac)| message.attr(IFLA_ADDRESS, &mac));
    parts.group.map(|group| message.attr_u32(IFLA_GROUP, group));
    if let Some(alias) = &parts.alias {
        message.attr(IFLA_IFALIAS, alias.as_bytes());
    }
    if let Some(kind) = &parts.kind {
        put_kind(&mut message, kind, refs);
    }
    message.finish()
}

/// Sets options of a link that it has as a port.
pub(crate) fn change_port(
    batch: &mut Batch,
    index: IfIndex,
    kind: &str,
    options: &[(u16, Vec<u8>)],
) -> Result<()> {
    let mut message = batch.message(RTM_NEWLINK, 0);
    message.fixed(&head(index, None));
    message.nest_unmarked(IFLA_LINKINFO, |info| {
        info.attr(IFLA_INFO_SLAVE_KIND, kind.as_bytes());
        info.nest_unmarked(IFLA_INFO_SLAVE_DATA, |data| {
            for (option, value) in options {
                data.attr(*option, value);
            }
        });
    });
    message.finish()
}

/// Deletes a link.
pub(crate) fn delete(batch: &mut Batch, index: IfIndex) -> Result<()> {
    let mut message = batch.message(RTM_DELLINK, 0);
    message.fixed(&head(index, None));
    message.finish()
}

/// Deletes all links of a group.
pub(crate) fn delete_group(batch: &mut Batch, group: u32) -> Result<()> {
    let mut message = batch.message(RTM_DELLINK, 0);
    message.fixed(&head(IfIndex(0), None));
    message.attr_u32(IFLA_GROUP, group);
    message.finish()
}

/// Asks for all links, without their statistics, which are half of what the kernel sends of a link.
pub(crate) fn dump(batch: &mut Batch) -> Result<()> {
    let mut message = batch.message(RTM_GETLINK, 0);
    message.fixed(&head(IfIndex(0), None)).attr_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    message.finish()
}

/// Asks for a link.
pub(crate) fn get(batch: &mut Batch, name: LinkName) -> Result<()> {
    let mut message = batch.message(RTM_GETLINK, NLM_F_ECHO);
    message.fixed(&head(IfIndex(0), None));
    put_link_name(&mut message, IFLA_IFNAME, name);
    message.finish()
}

/// `struct ifinfomsg`, which changes no flag but that of being up.
fn head(index: IfIndex, up: Option<bool>) -> [u8; 16] {
    let [i0, i1, i2, i3] = index.0.to_ne_bytes();
    let flags = if up == Some(true) { IFF_UP } else { 0 };
    let change = if up.is_some() { IFF_UP } else { 0 };
    let ([f0, f1, f2, f3], [c0, c1, c2, c3]) = (flags.to_ne_bytes(), change.to_ne_bytes());
    [0, 0, 0, 0, i0, i1, i2, i3, f0, f1, f2, f3, c0, c1, c2, c3]
}

fn put_kind(message: &mut MessageWriter<'_>, kind: &LinkKind, refs: &Refs) {
    message.nest_unmarked(IFLA_LINKINFO, |info| {
        info.attr(IFLA_INFO_KIND, kind.kernel_name().as_bytes());
        info.nest_unmarked(IFLA_INFO_DATA, |data| kind.encode(data, refs));
    });
}

/// The kind of what has none to the kernel: a network card, the loopback link.
const NO_KIND: &str = "none";

/// A link as the kernel reports it. Whose it is, and what it refers to by name, is found out later.
pub(crate) fn decode(message: &Message<'_>) -> Result<SeenLink, Malformed> {
    let (index, name) = index_and_name(message)?;
    let (fixed, attrs) = message.split::<16>()?;
    let [_, _, _, _, _, _, _, _, f0, f1, f2, f3, ..] = *fixed;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let kind = LinkKind::Other { name: NO_KIND.to_owned() };
    let mut link = Link::new(kind);
    link.up = Some(flags & IFF_UP != 0);
    link.incarnation = Incarnation(Some(index));
    let owner = Owner::Unmarked;
    let (alias, master, lower, primary, identity) = (None, None, None, None, None);
    let (group, has_carrier, port) = (0, has_carrier(message)?, BTreeMap::new());
    let mut seen = SeenLink {
        index,
        name,
        link,
        owner,
        alias,
        group,
        master,
        lower,
        primary,
        has_carrier,
        port,
        identity,
    };
    read_attrs(&mut seen, attrs)?;
    seen.link.alias = seen.alias.as_deref().map(|text| alias::split(text).0.to_owned());
    Ok(seen)
}

fn read_attrs(seen: &mut SeenLink, attrs: Attrs<'_>) -> Result<(), Malformed> {
    let (mut below, mut nsid) = (None, None);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IFLA_MTU => seen.link.mtu = Some(attr.u32()?),
            IFLA_TXQLEN => seen.link.txqueuelen = Some(attr.u32()?),
            // Tunnels have their ends there.
            IFLA_ADDRESS => seen.link.mac = attr.array().ok().map(Mac),
            IFLA_MASTER => seen.master = Some(IfIndex(attr.u32()?)),
            IFLA_IFALIAS => seen.alias = attr.str().ok().map(str::to_owned),
            IFLA_GROUP => seen.group = attr.u32()?,
            IFLA_LINK => below = Some(IfIndex(attr.u32()?)),
            IFLA_LINK_NETNSID => nsid = Some(i32::from_ne_bytes(attr.array()?)),
            IFLA_LINKINFO => {
                below = read_kind(seen, &attr)?.or(below);
                seen.port = port::decode(&attr)?;
            }
            IFLA_PERM_ADDRESS => identity(seen).permanent_mac = attr.array().ok().map(Mac),
            IFLA_PARENT_DEV_NAME => identity(seen).device = attr.str().ok().map(str::to_owned),
            IFLA_PARENT_DEV_BUS_NAME => identity(seen).bus = attr.str().ok().map(str::to_owned),
            IFLA_PROP_LIST => {
                for property in attr.attrs() {
                    let property = property?;
                    if property.kind == IFLA_ALT_IFNAME {
                        identity(seen).altnames.extend(property.str().ok().map(str::to_owned));
                    }
                }
            }
            _ => {}
        }
    }
    // A link that is below itself is below nothing, unless it is another namespace's number.
    let below = below.filter(|below| below.0 != 0 && (*below != seen.index || nsid.is_some()));
    seen.lower = below.map(|index| Lower { index, nsid });
    Ok(())
}

fn identity(seen: &mut SeenLink) -> &mut Identity {
    seen.identity.get_or_insert_default()
}

/// Reads what kind of link it is; some kinds have the link below among their options.
fn read_kind(seen: &mut SeenLink, info: &Attr<'_>) -> Result<Option<IfIndex>, Malformed> {
    let Some(kind) = info.attrs().first(IFLA_INFO_KIND)? else { return Ok(None) };
    let Ok(kind) = kind.str() else { return Ok(None) };
    let data = info.attrs().first(IFLA_INFO_DATA)?;
    let data = data.map_or_else(|| Attrs::new(&[]), |data| data.attrs());
    let mut refs = Refs::default();
    seen.link.kind = LinkKind::decode(kind, data, &mut refs)?;
    seen.primary = refs.primary;
    Ok(refs.parent.filter(|index| index.0 != 0))
}

/// A link's number and name. A name that is no text is one that no desired state can hold.
pub(crate) fn index_and_name(message: &Message<'_>) -> Result<(IfIndex, LinkName), Malformed> {
    let (fixed, attrs) = message.split::<16>()?;
    let [_, _, _, _, i0, i1, i2, i3, ..] = *fixed;
    let index = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
    let name = attrs.first(IFLA_IFNAME)?.and_then(|attr| attr.str().ok());
    Ok((index, name.map_or_else(|| Links::default().name(index), LinkName::padded)))
}

/// Whether a message about a link is about the link itself, not about its part in something else.
pub(crate) fn is_of_any_family(message: &Message<'_>) -> Result<bool, Malformed> {
    let ([family, ..], _) = message.split::<16>()?;
    Ok(*family == 0)
}

/// Whether a link is up, and what it leads to is, too.
pub(crate) fn has_carrier(message: &Message<'_>) -> Result<bool, Malformed> {
    let ([_, _, _, _, _, _, _, _, f0, f1, f2, f3, ..], _) = message.split::<16>()?;
    let flags = u32::from_ne_bytes([*f0, *f1, *f2, *f3]);
    Ok(flags & IFF_UP != 0 && flags & IFF_LOWER_UP != 0)
}

#[cfg(test)]
mod decode_tests {
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
            let _ = decode(&message);
        }
    }
}
