//! What goes with a link that goes or changes: each [`Loss`] says what the kernel removes, and from which links.
//! Pure.
//!
//! Quirk `links-take-along` (Linux 6.18): deleting a link deletes what stands on it, its other end,
//! and every address and route on those; setting it down deletes its routes and IPv6 addresses.
//!
//! Quirk `a-low-mtu-takes-ipv6` (Linux 6.18): `ip link set va mtu 1000` deletes all IPv6 addresses, neighbours and
//! routes on `va`, and no IPv6 address can be added to it; nexthops with an id, and routes through them, stay.
//!
//! Quirk `a-new-mac-takes-neighbours` (Linux 6.18): `ip link set va address ...` deletes all neighbours on `va`,
//! permanent ones too; proxy entries stay.
//!
//! Quirk `nexthops-go-with-the-carrier` (Linux 6.18): a link that loses its carrier loses its nexthops.

use std::collections::BTreeSet;
use std::net::IpAddr;

use homeostat_core::{Owner, Taken};

use crate::link::LinkName;
use crate::link::kinds::LinkKind;
use crate::link::observe::{LinkTable, SeenLink};
use crate::moment::{Moment, ObservedAddress, OnLink};

/// The smallest MTU with which a link can have IPv6.
pub(crate) const IPV6_MIN_MTU: u32 = 1280;

/// The MTU of a bridge without ports whose MTU was never set.
const BRIDGE_MTU: u32 = 1500;

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It goes down, for a moment at least.
    Down,
    /// It goes, and is perhaps made again.
    Gone,
    /// It has no IPv6 any more.
    Ipv6,
    /// Its hardware address is another one.
    Mac,
    /// It loses its carrier.
    Carrier,
}

impl Loss {
    /// What is removed from the link, beside addresses.
    fn kinds(self) -> &'static [OnLink] {
        use OnLink::{
            Ipv4Neighbour, Ipv4Proxy, Ipv4Route, Ipv6Neighbour, Ipv6Proxy, Ipv6Route, Nexthop,
        };
        match self {
            Loss::Down | Loss::Gone => {
                &[Ipv4Route, Ipv6Route, Nexthop, Ipv4Neighbour, Ipv6Neighbour, Ipv4Proxy, Ipv6Proxy]
            }
            Loss::Ipv6 => &[Ipv6Route, Ipv6Neighbour, Ipv6Proxy],
            Loss::Mac => &[Ipv4Neighbour, Ipv6Neighbour],
            Loss::Carrier => &[Nexthop],
        }
    }

    fn removes_address(self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(_) => self == Loss::Gone,
            // Link-local addresses come back with the link, whatever owner they have.
            IpAddr::V6(ip) => {
                matches!(self, Loss::Gone | Loss::Down | Loss::Ipv6) && !ip.is_unicast_link_local()
            }
        }
    }
}

/// A link, what stands on it, and its other end.
pub(crate) fn going_with(table: &LinkTable, name: LinkName) -> BTreeSet<LinkName> {
    let (mut going, mut next) = (BTreeSet::new(), vec![name]);
    while let Some(name) = next.pop() {
        let Some(seen) = table.get(&name).filter(|_| going.insert(name)) else { continue };
        let goes = |other: &&SeenLink| {
            other.parent() == Some(seen.index) || seen.peer() == Some(other.index)
        };
        next.extend(table.values().filter(goes).map(|other| other.name));
    }
    going.insert(name);
    going
}

/// The links whose MTU is `mtu` when that of `name` is: the link itself, those on it, and the bridge that it is
/// or will be a port of.
///
/// Quirk `others-follow-a-low-mtu` (Linux 6.18): macvlans, ipvlans and VLANs are lowered with the link below them;
/// so is a bridge with its smallest port, unless its MTU was set (which cannot be seen; one that it was made with
/// does not count).
pub(crate) fn lowered_with(
    table: &LinkTable,
    name: LinkName,
    mtu: u32,
    master: Option<LinkName>,
) -> BTreeSet<LinkName> {
    let by_index = |index| table.values().find(|other| other.index == index);
    let joined = master.and_then(|master| table.get(&master));
    let mut next = vec![name];
    next.extend(joined.filter(|bridge| follows_ports(table, bridge, mtu)).map(|seen| seen.name));
    let mut lowered = BTreeSet::new();
    while let Some(name) = next.pop() {
        let Some(seen) = table.get(&name).filter(|_| lowered.insert(name)) else { continue };
        let master = seen.master.and_then(by_index);
        next.extend(
            master.filter(|bridge| follows_ports(table, bridge, mtu)).map(|seen| seen.name),
        );
        let above = table.values().filter(|other| other.parent() == Some(seen.index));
        next.extend(above.filter(|other| follows_parent(other, mtu)).map(|other| other.name));
    }
    lowered.insert(name);
    lowered
}

fn follows_parent(seen: &SeenLink, mtu: u32) -> bool {
    let follows = match &seen.link.kind {
        LinkKind::Macvlan(_) | LinkKind::Ipvlan(_) | LinkKind::Vlan(_) => true,
        LinkKind::Other { name } => matches!(name.as_str(), "macvtap" | "ipvtap"),
        _ => false,
    };
    follows && seen.link.mtu > Some(mtu)
}

/// A bridge that is not as large as its smallest port has an MTU that was set.
fn follows_ports(table: &LinkTable, seen: &SeenLink, mtu: u32) -> bool {
    let ports = table.values().filter(|other| other.master == Some(seen.index));
    let smallest = ports.filter_map(|port| port.link.mtu).min().unwrap_or(BRIDGE_MTU);
    let is_bridge = matches!(seen.link.kind, LinkKind::Bridge(_));
    is_bridge && seen.link.mtu == Some(smallest) && smallest > mtu
}

/// What other owners lose when a link is set down or deleted.
pub(crate) fn takes(moment: &Moment, name: LinkName, loss: Loss) -> Vec<Taken> {
    let going = match loss {
        Loss::Gone => going_with(&moment.table, name),
        _ => BTreeSet::from([name]),
    };
    let ends: BTreeSet<_> = moment.table.get(&name).and_then(SeenLink::peer).into_iter().collect();
    let mut takes = Vec::new();
    for link in &going {
        let seen = moment.table.get(link);
        if let Some(seen) = seen.filter(|seen| seen.name != name) {
            // Who made one end made both.
            let is_ours = ends.contains(&seen.index) && matches!(seen.owner, Owner::Unmarked);
            let owner = if is_ours { Owner::Ours } else { seen.owner.clone() };
            takes.push(Taken { key: format!("link {link}"), owner });
        }
        if let Some(seen) = seen.filter(|_| loss == Loss::Gone) {
            // What is ours and declared is put back; what is ours and undeclared is no loss.
            let is_slave = |other: &&SeenLink| {
                other.master == Some(seen.index) && matches!(other.owner, Owner::Foreign(_))
            };
            takes.extend(moment.table.values().filter(is_slave).map(|other| Taken {
                key: format!("link {} in its master", other.name),
                owner: other.owner.clone(),
            }));
        }
        takes.extend(lost_on(moment, *link, loss));
    }
    if loss == Loss::Down {
        let other_end = moment.table.values().find(|other| ends.contains(&other.index));
        takes
            .extend(other_end.into_iter().flat_map(|end| lost_on(moment, end.name, Loss::Carrier)));
    }
    takes
}

/// What other owners lose on one link.
pub(crate) fn lost_on(moment: &Moment, link: LinkName, loss: Loss) -> Vec<Taken> {
    let is_lost = |observed: &&ObservedAddress| {
        observed.key.link == link
            && loss.removes_address(observed.key.ip)
            && matches!(observed.owner, Owner::Foreign(_))
    };
    let addresses = moment.addresses.iter().filter(is_lost);
    let addresses = addresses
        .map(|observed| Taken { key: observed.key.to_string(), owner: observed.owner.clone() });
    addresses.chain(moment.taken_on(link, loss.kinds()).cloned()).collect()
}

/// Whether anything of it is foreign, so that a guard holds the step.
pub(crate) fn takes_foreign(takes: &[Taken]) -> bool {
    takes.iter().any(|taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel))
}
