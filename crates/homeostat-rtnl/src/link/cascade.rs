//! What goes with a link that goes or changes: each [`Loss`] says what the kernel removes from a link, and
//! [`Cascades`] which links it spreads to. Pure.
//!
//! Quirk `links-take-along` (Linux 6.18): deleting a link deletes what stands on it, its other end,
//! and every address and route on those; setting it down deletes its routes and IPv6 addresses.
//!
//! Quirk `a-low-mtu-takes-ipv6` (Linux 6.18): `ip link set va mtu 1000` deletes all IPv6 addresses, neighbours and
//! routes on `va`, and no IPv6 address can be added to it; nexthops with an id, and routes through them, stay.
//!
//! Quirk `an-mtu-rewrites-routes` (Linux 6.18): `ip link set va mtu 1300` sets the `mtu` of every IPv6 route on `va`
//! to 1300 that had a larger one, or that of the link before; only `mtu lock` is left alone.
//!
//! Quirk `a-new-mac-takes-neighbours` (Linux 6.18): `ip link set va address ...` deletes all neighbours on `va`,
//! permanent ones too; proxy entries stay.
//!
//! Quirk `a-bridge-has-the-mac-of-a-port` (Linux 6.18): a bridge whose hardware address was never set has the lowest
//! of its ports, so that a port that joins, leaves or gets another one may change that of the bridge.
//!
//! Quirk `nexthops-go-with-the-carrier` (Linux 6.18): a link that loses its carrier loses its nexthops. The other end
//! of a pair loses it when one is set down, macvlans with the link below them, a bridge with its last port.

use std::collections::BTreeSet;
use std::net::IpAddr;

use homeostat_core::{Owner, Taken};

use crate::address::is_link_local;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::kinds::behaviour::{MtuOnParent, Ports};
use crate::link::model::{Field, Link, LinkRef};
use crate::link::observe::{LinkTable, SeenLink};
use crate::link::sysctls::SysctlSet;
use crate::moment::{Beyond, Moment, OnLink};
use crate::neighbour::Mac;
use crate::nexthop;

/// The smallest MTU with which a link can have IPv6.
pub(crate) const IPV6_MIN_MTU: u32 = 1280;

/// The MTU of a fresh link, and of a bridge without ports whose MTU was never set.
const USUAL_MTU: u32 = 1500;

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// It goes, and is perhaps made again.
    Gone,
    /// It goes down, for a moment at least.
    Down,
    /// It has no IPv6 any more.
    Ipv6,
    /// Its hardware address is another one.
    Mac,
    /// It loses its carrier.
    Carrier,
    /// Its MTU is this one.
    Mtu(u32),
    /// Nothing goes, but its MTU, its hardware address or whether it is up may be another.
    Values,
}

impl Loss {
    /// What is removed from the link, beside addresses and nexthops.
    fn kinds(self) -> &'static [OnLink] {
        use OnLink::{Ipv4Neighbour, Ipv4Proxy, Ipv4Route, Ipv6Neighbour, Ipv6Proxy, Ipv6Route};
        match self {
            Loss::Down | Loss::Gone => {
                &[Ipv4Route, Ipv6Route, Ipv4Neighbour, Ipv6Neighbour, Ipv4Proxy, Ipv6Proxy]
            }
            Loss::Ipv6 => &[Ipv6Route, Ipv6Neighbour, Ipv6Proxy],
            Loss::Mac => &[Ipv4Neighbour, Ipv6Neighbour],
            Loss::Carrier | Loss::Mtu(_) | Loss::Values => &[],
        }
    }

    fn removes_nexthops(self) -> bool {
        matches!(self, Loss::Down | Loss::Gone | Loss::Carrier)
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

/// What a step does to a link that may cost others something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    /// It goes, and is perhaps made again.
    pub(crate) goes: bool,
    /// It goes down, for a moment at least.
    pub(crate) falls: bool,
    /// It comes up.
    pub(crate) rises: bool,
    /// It loses its carrier.
    pub(crate) loses_carrier: bool,
    pub(crate) mac: NewMac,
    /// Its MTU afterwards, if that is another one, or new to a bridge.
    pub(crate) mtu: Option<u32>,
    /// The bridge, bond or VRF that it is put into.
    pub(crate) joins: Option<LinkName>,
    /// Whether it is taken out of the one that it is in.
    pub(crate) leaves: bool,
}

/// The hardware address of a link after a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum NewMac {
    /// That which it has.
    #[default]
    Same,
    Changed(Mac),
    /// The kernel chooses one.
    Any,
}

/// What the steps of one plan cost others.
pub(crate) struct Cascades<'a> {
    pub(crate) desired: &'a DesiredState,
    pub(crate) moment: &'a Moment,
    /// The links that go, go down or get another master in the same plan.
    pub(crate) leaving: BTreeSet<LinkName>,
    /// Whether it is another namespace: its pairs lead back to ours, or to a third one, which is not looked at.
    pub(crate) is_beyond: bool,
}

/// What a step does beside what it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consequences {
    /// What other owners lose.
    pub(crate) takes: Vec<Taken>,
    /// The links whose addresses and routes may be others afterwards.
    pub(crate) touches: Vec<LinkName>,
    /// The links whose own values may be others afterwards.
    pub(crate) alters: Vec<LinkName>,
    /// What the kernel forgets, and no desired state says.
    pub(crate) forgets: Vec<Key>,
}

impl Cascades<'_> {
    pub(crate) fn of(&self, name: LinkName, effects: &Effects) -> Consequences {
        let losses = self.losses(name, effects);
        let (mut takes, mut changes) = (Vec::new(), Vec::new());
        for (link, loss) in &losses {
            if *loss == Loss::Gone {
                takes.extend(self.gone(name, *link));
            }
            takes.extend(self.lost_on(*link, *loss));
            takes.extend(self.lost_beyond(*link, *loss));
            if let Loss::Mtu(mtu) = loss {
                changes.extend(self.lowered(name, *link, *mtu));
            }
        }
        takes.append(&mut changes);
        let mut named = BTreeSet::new();
        takes.retain(|taken| named.insert(taken.key.clone()));
        // The MTU of a link is that of our routes only if they have one.
        let has_mtu = self.desired.relations.have_route_mtu();
        let touches = losses.iter().filter(|(_, loss)| match loss {
            Loss::Mtu(_) => has_mtu,
            Loss::Values => false,
            _ => true,
        });
        let touches: BTreeSet<LinkName> = touches.map(|(link, _)| *link).collect();
        let alters: BTreeSet<LinkName> = losses.iter().map(|(link, _)| *link).collect();
        let (touches, alters) = (Vec::from_iter(touches), Vec::from_iter(alters));
        let mut forgets = losses.iter().flat_map(|(link, loss)| self.forgotten(*link, *loss));
        let lowered =
            losses.iter().filter(|(link, loss)| matches!(loss, Loss::Mtu(_)) && *link != name);
        let is_bridge = |link: &LinkName| self.moment.table.get(*link).is_some_and(is_bridge);
        let lowered = lowered.map(|(link, _)| *link).filter(|link| !is_bridge(link));
        let lowered = lowered.map(|link| Key::LinkField(link, Field::Mtu));
        let mut forgets: BTreeSet<Key> = forgets.by_ref().chain(lowered).collect();
        let table = &self.moment.table;
        let former = table.get(name).filter(|_| effects.leaves).and_then(|seen| table.master(seen));
        if let Some(master) = former {
            forgets.extend([Key::LinkField(name, Field::Master), Key::Ports(master.name)]);
        }
        let forgets = forgets.into_iter().collect();
        Consequences { takes, touches, alters, forgets }
    }

    /// What the kernel forgets of a link that stays: the order of addresses that go and return, and with IPv6 its sysctls
    /// and the addresses that it had made.
    fn forgotten(&self, link: LinkName, loss: Loss) -> Vec<Key> {
        match loss {
            Loss::Down => vec![Key::AddressOrder(link)],
            Loss::Ipv6 => {
                let addresses = self.moment.addresses.on(link).map(|(key, _)| *key);
                let made = addresses.filter(|key| is_link_local(key.ip)).map(Key::Address);
                let sysctls = Key::LinkSysctls(link, SysctlSet::Ipv6);
                made.chain([sysctls, Key::AddressOrder(link)]).collect()
            }
            Loss::Gone | Loss::Mac | Loss::Carrier | Loss::Mtu(_) | Loss::Values => Vec::new(),
        }
    }

    /// What becomes of which links.
    fn losses(&self, name: LinkName, effects: &Effects) -> BTreeSet<(LinkName, Loss)> {
        let Effects { goes, falls, rises, loses_carrier, mac, mtu, joins, leaves } = *effects;
        let table = &self.moment.table;
        let seen = table.get(name);
        let mut next: Vec<(LinkName, Loss)> = Vec::new();
        next.extend(goes.then_some((name, Loss::Gone)));
        next.extend(falls.then_some((name, Loss::Down)));
        next.extend(loses_carrier.then_some((name, Loss::Carrier)));
        next.extend((!matches!(mac, NewMac::Same)).then_some((name, Loss::Mac)));
        let is_new = |mtu: &u32| seen.is_none_or(|seen| seen.link.mtu != Some(*mtu));
        next.extend(mtu.filter(is_new).map(|mtu| (name, Loss::Mtu(mtu))));
        let above = seen.filter(|_| rises).into_iter().flat_map(|seen| table.above(seen));
        let rising = above.filter(|other| other.link.kind.behaviour().follows_state);
        next.extend(rising.map(|other| (other.name, Loss::Values)));
        if let Some(bridge) = joins.and_then(|joins| table.get(joins)) {
            next.extend([(name, Loss::Values), (bridge.name, Loss::Values)]);
            let port = match mac {
                // It gets a declared one before it joins.
                NewMac::Same => self.desired.mac(name).or(seen.and_then(|seen| seen.link.mac)),
                NewMac::Changed(mac) => Some(mac),
                NewMac::Any => None,
            };
            let lowest = table.ports(bridge).filter_map(|port| port.link.mac).min();
            let is_lower = port.is_none_or(|port| lowest.is_none_or(|lowest| port < lowest));
            if has_mac_of_port(table, bridge) && is_lower {
                next.push((bridge.name, Loss::Mac));
            }
            let mtu = mtu.or(seen.and_then(|seen| seen.link.mtu)).unwrap_or(USUAL_MTU);
            next.extend(follows_ports(table, bridge, mtu).then_some((bridge.name, Loss::Mtu(mtu))));
        }
        if let Some(seen) = seen.filter(|_| leaves) {
            next.extend(self.master_without(seen));
        }
        let mut losses = BTreeSet::new();
        while let Some((link, loss)) = next.pop() {
            if losses.insert((link, loss))
                && let Some(seen) = table.get(link)
            {
                self.spread(seen, loss, mac, &mut next);
            }
        }
        losses
    }

    /// What a loss of one link means for others.
    ///
    /// Quirk `values-follow-other-links` (Linux 6.18): VLANs come up with the link below them; ipvlans have its MTU; a
    /// bridge whose MTU was not set is as large as its smallest port, also when that grows or leaves; the links of a
    /// bond get its MTU and its hardware address.
    ///
    /// Quirk `others-follow-a-low-mtu` (Linux 6.18): macvlans, ipvlans and VLANs are lowered with the link below them;
    /// so is a bridge with its smallest port, unless its MTU was set (which cannot be seen; one that it was made with
    /// does not count).
    fn spread(&self, seen: &SeenLink, loss: Loss, mac: NewMac, next: &mut Vec<(LinkName, Loss)>) {
        let table = &self.moment.table;
        let (peer, master) = (table.peer(seen), table.master(seen));
        let above = table.above(seen);
        match loss {
            Loss::Gone => {
                next.extend(above.chain(peer).map(|other| (other.name, Loss::Gone)));
                next.extend(self.master_without(seen));
            }
            Loss::Down | Loss::Carrier => {
                next.extend(above.map(|other| {
                    let follows = other.link.kind.behaviour().follows_state;
                    (other.name, if follows { loss } else { Loss::Carrier })
                }));
                let peer = peer.filter(|_| loss == Loss::Down);
                next.extend(peer.map(|peer| (peer.name, Loss::Carrier)));
                let master = master.filter(|master| self.is_last_port(master, seen));
                next.extend(master.map(|master| (master.name, Loss::Carrier)));
            }
            Loss::Mac => {
                next.extend(bonded(table, seen));
                let is_like = |other: &&SeenLink| other.link.mac == seen.link.mac;
                next.extend(above.filter(is_like).map(|other| (other.name, Loss::Mac)));
                let lowers = |bridge: &SeenLink| match mac {
                    NewMac::Changed(mac) => Some(mac) < bridge.link.mac,
                    NewMac::Same | NewMac::Any => true,
                };
                let bridge = master.filter(|bridge| has_mac_of_port(table, bridge));
                let bridge = bridge.filter(|bridge| is_like(bridge) || lowers(bridge));
                next.extend(bridge.map(|bridge| (bridge.name, Loss::Mac)));
            }
            Loss::Mtu(mtu) => {
                next.extend((mtu < IPV6_MIN_MTU).then_some((seen.name, Loss::Ipv6)));
                next.extend(bonded(table, seen));
                next.extend(master.map(|master| (master.name, Loss::Values)));
                let same = |other: &&SeenLink| mtu_on_parent(other) == MtuOnParent::Same;
                next.extend(table.above(seen).filter(same).map(|other| (other.name, Loss::Values)));
                let is_lowered = |other: &&SeenLink| {
                    mtu_on_parent(other) != MtuOnParent::Own && other.link.mtu > Some(mtu)
                };
                let above = above.filter(is_lowered);
                let master = master.filter(|bridge| follows_ports(table, bridge, mtu));
                next.extend(above.chain(master).map(|other| (other.name, loss)));
            }
            Loss::Ipv6 | Loss::Values => {}
        }
    }

    /// What the master of a link loses with it.
    fn master_without(&self, port: &SeenLink) -> Vec<(LinkName, Loss)> {
        let table = &self.moment.table;
        let Some(master) = table.master(port) else { return Vec::new() };
        let mac = has_mac_of_port(table, master) && master.link.mac == port.link.mac;
        let carrier = self.is_last_port(master, port);
        let losses = [(mac, Loss::Mac), (carrier, Loss::Carrier), (true, Loss::Values)].into_iter();
        losses.filter(|(is_lost, _)| *is_lost).map(|(_, loss)| (master.name, loss)).collect()
    }

    /// Whether a bridge or bond has its carrier by this port alone.
    fn is_last_port(&self, master: &SeenLink, port: &SeenLink) -> bool {
        let carries = |other: &SeenLink| {
            other.has_carrier && other.name != port.name && !self.leaving.contains(&other.name)
        };
        master.link.kind.behaviour().ports.give_carrier()
            && !self.moment.table.ports(master).any(carries)
    }

    /// The loss of a link itself, and of its place as a master.
    fn gone(&self, first: LinkName, link: LinkName) -> Vec<Taken> {
        let table = &self.moment.table;
        let Some(seen) = table.get(link) else { return Vec::new() };
        let mut takes = Vec::new();
        if link != first {
            // Who made one end made both.
            let is_end = table.get(first).and_then(SeenLink::peer) == Some(seen.index);
            let is_ours = is_end && matches!(seen.owner, Owner::Unmarked);
            let owner = if is_ours { Owner::Ours } else { seen.owner.clone() };
            takes.push(Taken::new(format!("link {link}"), owner));
        }
        // Only foreign ports count: ours are restored or not declared.
        let slaves = table.ports(seen).filter(|port| matches!(port.owner, Owner::Foreign(_)));
        takes.extend(slaves.map(|port| {
            Taken::new(format!("link {} in its master", port.name), port.owner.clone())
        }));
        takes
    }

    /// What other owners lose on one link.
    fn lost_on(&self, link: LinkName, loss: Loss) -> Vec<Taken> {
        let moment = self.moment;
        let addresses = moment.addresses.on(link).filter(|(key, observed)| {
            loss.removes_address(key.ip) && matches!(observed.owner, Owner::Foreign(_))
        });
        let mut takes: Vec<Taken> = addresses
            .map(|(key, observed)| Taken::new(key.to_string(), observed.owner.clone()))
            .collect();
        takes.extend(moment.foreign.on(link, loss.kinds()).cloned());
        if loss.removes_nexthops() {
            takes.extend(nexthop::lost_on(link, moment));
        }
        takes
    }

    /// What goes in another namespace with the other end of a pair. One that cannot be seen is named, and no more.
    fn lost_beyond(&self, link: LinkName, loss: Loss) -> Vec<Taken> {
        let effects = match loss {
            Loss::Gone => Effects { goes: true, ..Effects::default() },
            Loss::Down => Effects { loses_carrier: true, ..Effects::default() },
            _ => return Vec::new(),
        };
        let seen = self.moment.table.get(link).filter(|_| !self.is_beyond);
        let Some((nsid, index)) = seen.and_then(SeenLink::end_elsewhere) else { return Vec::new() };
        let ours = |key| Taken::new(key, Owner::Ours);
        let Some(Beyond { name: space, moment }) = self.moment.beyond.get(&nsid) else {
            let what = if loss == Loss::Gone { "other end" } else { "carrier of the other end" };
            let key = format!("{what} of link {link}, in a namespace that cannot be looked at");
            return vec![ours(key)];
        };
        let name = moment.links.name(index);
        let (desired, leaving) = (&DesiredState::default(), BTreeSet::new());
        let there = Cascades { desired, moment, leaving, is_beyond: true };
        let mut takes = there.of(name, &effects).takes;
        if loss == Loss::Gone {
            takes.insert(0, ours(format!("link {name}")));
        }
        for taken in &mut takes {
            taken.key = format!("{} in namespace {space}", taken.key);
        }
        takes
    }

    /// What others lose by the MTU of a link: that of the link, if it is theirs and follows, and that of routes.
    fn lowered(&self, first: LinkName, link: LinkName, mtu: u32) -> Vec<Taken> {
        let moment = self.moment;
        let Some(seen) = moment.table.get(link) else { return Vec::new() };
        let is_theirs = link != first
            && matches!(seen.owner, Owner::Foreign(_))
            && self.desired.mtu(link).is_none();
        let own = Taken::new(format!("mtu of link {link}"), seen.owner.clone());
        let routes = moment.foreign.with_mtu(link, mtu, seen.link.mtu);
        let routes =
            routes.map(|route| Taken::new(format!("mtu of {}", route.key), route.owner.clone()));
        is_theirs.then_some(own).into_iter().chain(routes).collect()
    }
}

/// A link, what stands on it, and its other end.
pub(crate) fn going_with(table: &LinkTable, name: LinkName) -> BTreeSet<LinkName> {
    let (mut going, mut next) = (BTreeSet::new(), vec![name]);
    while let Some(name) = next.pop() {
        let seen = table.get(name).filter(|_| going.insert(name));
        let others = seen.into_iter().flat_map(|seen| table.above(seen).chain(table.peer(seen)));
        next.extend(others.map(|other| other.name));
    }
    going.insert(name);
    going
}

/// The MTU that a link is made with.
pub(crate) fn first_mtu(declared: &Link, table: &LinkTable) -> u32 {
    let parent = declared.parent.as_ref().filter(|parent| parent.namespace.is_none());
    let below = |parent: &LinkRef| table.get(parent.name)?.link.mtu;
    let on_parent = parent.map(|parent| {
        let overhead = declared.kind.behaviour().overhead;
        below(parent).unwrap_or(USUAL_MTU).saturating_sub(overhead)
    });
    declared.mtu.or(on_parent).unwrap_or(USUAL_MTU)
}

fn mtu_on_parent(seen: &SeenLink) -> MtuOnParent {
    seen.link.kind.behaviour().mtu
}

/// The ports that get the values of their master: those of a bond.
fn bonded(table: &LinkTable, seen: &SeenLink) -> Vec<(LinkName, Loss)> {
    let ports =
        table.ports(seen).filter(|_| seen.link.kind.behaviour().ports == Ports::GetItsValues);
    ports.map(|port| (port.name, Loss::Values)).collect()
}

/// Whether a link is a bridge. The MTU of one follows its ports in both directions, unless it was ever set.
fn is_bridge(seen: &SeenLink) -> bool {
    seen.link.kind.behaviour().ports == Ports::SetItsValues
}

/// A bridge that is not as large as its smallest port has an MTU that was set.
fn follows_ports(table: &LinkTable, seen: &SeenLink, mtu: u32) -> bool {
    let smallest = table.ports(seen).filter_map(|port| port.link.mtu).min().unwrap_or(USUAL_MTU);
    is_bridge(seen) && seen.link.mtu == Some(smallest) && smallest > mtu
}

/// A bridge that has not the lowest hardware address of its ports has one that was set.
fn has_mac_of_port(table: &LinkTable, seen: &SeenLink) -> bool {
    let lowest = table.ports(seen).filter_map(|port| port.link.mac).min();
    is_bridge(seen) && lowest.is_none_or(|lowest| seen.link.mac == Some(lowest))
}

/// Whether anything of it is foreign, so that a guard holds the step.
pub(crate) fn takes_foreign(takes: &[Taken]) -> bool {
    takes.iter().any(|taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel))
}
