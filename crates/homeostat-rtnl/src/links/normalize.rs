//! What a declared link means to the kernel, and when what is seen agrees with it. Pure.

use crate::link::LinkName;
use crate::links::alias;
use crate::links::kinds::{LinkKind, NEEDS_PARENT, WITH_PARENT};
use crate::links::model::{Link, LinkRef, Settings};
use crate::neighbour::Mac;

/// Why a link can never be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum BadLink {
    #[error("a link of kind `{0}` cannot be made")]
    Unmakable(String),
    #[error("a link of its kind needs a parent")]
    NoParent,
    #[error("a link of its kind stands on no other")]
    NeedlessParent,
    #[error("a link of its kind has no hardware address of its own")]
    NoMac,
    #[error("its hardware address is that of a group or all zero")]
    UnusableMac,
    #[error("an MTU is at least 1")]
    Mtu,
    #[error("it refers to itself")]
    Itself,
    #[error(
        "the alias has more than 200 bytes, a control character or our mark `homeostat:` in it"
    )]
    Alias,
    #[error("a VXLAN network id is a number below 16777216")]
    Vni,
    #[error("a VLAN id is a number from 1 to 4094")]
    VlanId,
    #[error("a VRF needs a routing table")]
    Table,
    #[error("it has either a remote end or a multicast group")]
    RemoteAndGroup,
    #[error("its group is no multicast address, or its remote end is one")]
    Group,
    #[error("the ends of a tunnel are of one family")]
    EndFamilies,
    #[error("a tunnel with a TTL of its own always finds out the path's MTU")]
    TtlWithoutPmtudisc,
    #[error("a tunnel over IPv6 has no type of service and always finds out the path's MTU")]
    TunnelOverIpv6,
    #[error("delays of a bond are multiples of `miimon`, which is not set")]
    DelayWithoutMiimon,
    #[error("an LACP rate is for bonds of mode 802.3ad")]
    RateWithoutLacp,
    #[error("only bonds of mode active-backup, balance-tlb and balance-alb have a primary link")]
    NoPrimary,
    #[error("it is made by another entry, so what is declared of it has its place there")]
    MadeElsewhere,
}

/// Brings a declared link to the form in which it is compared.
pub(crate) fn link(name: LinkName, mut desired: Link) -> Result<Link, BadLink> {
    check_refs(name, &desired)?;
    check_parts(desired.mtu, desired.mac.map(is_usable), desired.alias.as_deref())?;
    if desired.mac.is_some() && !desired.kind.has_mac() {
        return Err(BadLink::NoMac);
    }
    desired.kind.check()?;
    Ok(desired)
}

/// Checks what is declared of a link that is only configured.
pub(crate) fn settings(name: LinkName, desired: &Settings) -> Result<(), BadLink> {
    if desired.master == Some(name) {
        return Err(BadLink::Itself);
    }
    check_parts(desired.mtu, desired.mac.map(is_usable), desired.alias.as_deref())
}

fn check_refs(name: LinkName, desired: &Link) -> Result<(), BadLink> {
    let is_itself = |link: &LinkRef| link.namespace.is_none() && link.name == name;
    let peer = match &desired.kind {
        LinkKind::Veth(veth) => Some(&veth.peer),
        _ => None,
    };
    if desired.master == Some(name) || desired.parent.iter().chain(peer).any(is_itself) {
        return Err(BadLink::Itself);
    }
    match (&desired.kind, &desired.parent) {
        (kind, None) if NEEDS_PARENT.contains(&kind.name()) => Err(BadLink::NoParent),
        (kind, Some(_)) if !WITH_PARENT.contains(&kind.name()) => Err(BadLink::NeedlessParent),
        _ => Ok(()),
    }
}

/// Whether a link may have it: it is not all zero, and not that of a group.
fn is_usable(Mac(mac): Mac) -> bool {
    let [first, ..] = mac;
    mac != [0; 6] && first & 1 == 0
}

fn check_parts(
    mtu: Option<u32>,
    mac_is_usable: Option<bool>,
    words: Option<&str>,
) -> Result<(), BadLink> {
    let is_bad = |words: &str| {
        words.len() > 200 || words.contains(char::is_control) || words.contains(alias::PREFIX)
    };
    match () {
        () if mtu == Some(0) => Err(BadLink::Mtu),
        () if mac_is_usable == Some(false) => Err(BadLink::UnusableMac),
        () if words.is_some_and(is_bad) => Err(BadLink::Alias),
        () => Ok(()),
    }
}

fn agrees<T: PartialEq>(desired: Option<&T>, seen: Option<&T>) -> bool {
    desired.is_none() || desired == seen
}

/// Whether a link is as declared.
pub(crate) fn link_agrees(desired: &Link, seen: &Link) -> bool {
    let alias = seen.alias.as_deref().unwrap_or_default();
    desired.kind.is_alike(&seen.kind)
        && agrees(desired.up.as_ref(), seen.up.as_ref())
        && agrees(desired.mtu.as_ref(), seen.mtu.as_ref())
        && agrees(desired.mac.as_ref(), seen.mac.as_ref())
        && agrees(desired.master.as_ref(), seen.master.as_ref())
        && agrees(desired.parent.as_ref(), seen.parent.as_ref())
        && desired.alias.as_deref().is_none_or(|desired| desired == alias)
}

/// Whether what differs can be changed while the link is there.
pub(crate) fn changes_in_place(desired: &Link, seen: &Link) -> bool {
    // Quirk `ifb-mac-fixed` (Linux 6.18): an ifb gets its hardware address when it is made.
    let keeps_mac =
        agrees(desired.mac.as_ref(), seen.mac.as_ref()) || desired.kind != LinkKind::Ifb;
    desired.kind.changes_in_place(&seen.kind) && parent_changes_in_place(desired, seen) && keeps_mac
}

/// Only tunnels can be put on another link, and only on one in their own namespace.
fn parent_changes_in_place(desired: &Link, seen: &Link) -> bool {
    let is_here =
        |link: &Link| link.parent.as_ref().is_none_or(|parent| parent.namespace.is_none());
    let is_tunnel = matches!(desired.kind, LinkKind::Vxlan(_) | LinkKind::Gre(_));
    agrees(desired.parent.as_ref(), seen.parent.as_ref())
        || is_tunnel && is_here(desired) && is_here(seen)
}
