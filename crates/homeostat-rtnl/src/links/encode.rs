//! Writes requests for links. Sends nothing.

use homeostat_netlink::uapi::{
    IFF_UP, IFLA_ADDRESS, IFLA_GROUP, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_LINK, IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_NET_NS_FD, NLM_F_CREATE, NLM_F_ECHO,
    NLM_F_EXCL, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK,
};
use homeostat_netlink::{Batch, MessageWriter, Result};

use crate::link::{IfIndex, LinkName};
use crate::links::kinds::{LinkKind, Refs};
use crate::links::model::Link;
use crate::neighbour::Mac;

/// The least MTU of what carries IPv4.
const LEAST_MTU: u32 = 68;

/// Makes a link, in another namespace if `netns` is its descriptor.
pub(crate) fn create(
    batch: &mut Batch,
    (name, link): (LinkName, &Link),
    refs: &Refs,
    netns: Option<u32>,
) -> Result<()> {
    let mut message = batch.message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    message.fixed(&head(IfIndex(0), None)).attr(IFLA_IFNAME, &named(name));
    message.attr_u32(IFLA_GROUP, refs.group);
    first_mtu(link).map(|mtu| message.attr_u32(IFLA_MTU, mtu));
    link.mac.map(|Mac(mac)| message.attr(IFLA_ADDRESS, &mac));
    refs.parent.map(|IfIndex(index)| message.attr_u32(IFLA_LINK, index));
    netns.map(|fd| message.attr_u32(IFLA_NET_NS_FD, fd));
    put_kind(&mut message, &link.kind, refs);
    message.finish()
}

/// The MTU of the creating message.
///
/// Quirk `a-bridge-follows-its-ports` (Linux 6.18): a bridge takes the MTU of its ports until somebody
/// sets another than it has: neither the creating message nor the same MTU once more counts. So it
/// begins with another, and gets the right one with its mark.
fn first_mtu(link: &Link) -> Option<u32> {
    match (link.mtu, &link.kind) {
        (Some(LEAST_MTU), LinkKind::Bridge(_)) => Some(LEAST_MTU + 1),
        (Some(mtu), LinkKind::Bridge(_)) => Some(mtu - 1),
        (mtu, _) => mtu,
    }
}

/// What is changed in one message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) mtu: Option<u32>,
    pub(crate) mac: Option<Mac>,
    pub(crate) alias: Option<String>,
    pub(crate) group: Option<u32>,
    pub(crate) kind: Option<LinkKind>,
}

impl Parts {
    pub(crate) fn is_empty(&self) -> bool {
        let Parts { mtu, mac, alias, group, kind } = self;
        mtu.is_none() && mac.is_none() && alias.is_none() && group.is_none() && kind.is_none()
    }
}

/// Changes a link.
pub(crate) fn change(batch: &mut Batch, index: IfIndex, parts: &Parts, refs: &Refs) -> Result<()> {
    let mut message = batch.message(RTM_NEWLINK, 0);
    message.fixed(&head(index, None));
    parts.mtu.map(|mtu| message.attr_u32(IFLA_MTU, mtu));
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

/// Puts a link into a bridge, bond or VRF, or takes it out.
pub(crate) fn enslave(batch: &mut Batch, index: IfIndex, master: Option<IfIndex>) -> Result<()> {
    let mut message = batch.message(RTM_NEWLINK, 0);
    message.fixed(&head(index, None)).attr_u32(IFLA_MASTER, master.map_or(0, |master| master.0));
    message.finish()
}

/// Sets a link up or down.
pub(crate) fn switch(batch: &mut Batch, index: IfIndex, up: bool) -> Result<()> {
    let mut message = batch.message(RTM_NEWLINK, 0);
    message.fixed(&head(index, Some(up)));
    message.finish()
}

/// Deletes a link.
pub(crate) fn delete(batch: &mut Batch, index: IfIndex) -> Result<()> {
    let mut message = batch.message(RTM_DELLINK, 0);
    message.fixed(&head(index, None));
    message.finish()
}

/// Asks for a link.
pub(crate) fn get(batch: &mut Batch, name: LinkName) -> Result<()> {
    let mut message = batch.message(RTM_GETLINK, NLM_F_ECHO);
    message.fixed(&head(IfIndex(0), None)).attr(IFLA_IFNAME, &named(name));
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

fn named(name: LinkName) -> Vec<u8> {
    [name.as_str().as_bytes(), &[0]].concat()
}

fn put_kind(message: &mut MessageWriter<'_>, kind: &LinkKind, refs: &Refs) {
    message.nest_unmarked(IFLA_LINKINFO, |info| {
        info.attr(IFLA_INFO_KIND, kind.kernel_name().as_bytes());
        if !kind.is_plain() {
            info.nest_unmarked(IFLA_INFO_DATA, |data| kind.encode(data, refs));
        }
    });
}

#[cfg(test)]
mod tests;
