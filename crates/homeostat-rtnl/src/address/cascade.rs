//! What goes with an address that goes: secondary addresses, and routes. Pure.

use std::collections::BTreeSet;

use homeostat_core::{Desired as _, Owner, Slot, Taken};

use crate::address::AddressKey;
use crate::desired::{DesiredState, RouteTemplate};
use crate::key::Key;
use crate::moment::{Moment, ObservedAddress, OnLink};
use crate::route::Route;

/// What is on a link only while the link has an IPv4 address.
const IPV4: [OnLink; 3] = [OnLink::Ipv4Route, OnLink::Ipv4Neighbour, OnLink::Ipv4Proxy];

/// What the kernel takes along with an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cascade {
    /// What other owners lose.
    pub takes: Vec<Taken>,
    /// Declared addresses that are made again at once.
    pub again: Vec<Slot>,
    /// Whether its link is without IPv4 for a moment at least, and so loses all IPv4 routes.
    pub empties_link: bool,
}

impl Cascade {
    /// What goes with `key`, when all of `going` go.
    pub(crate) fn of(
        key: &AddressKey,
        going: &BTreeSet<AddressKey>,
        desired: &DesiredState,
        moment: &Moment,
    ) -> Self {
        let mut takes: Vec<Taken> =
            moment.foreign.by_src.get(&key.ip).cloned().into_iter().collect();
        if key.ip.is_ipv6() {
            return Cascade { takes, ..Cascade::default() };
        }
        let is_ours = |other: &ObservedAddress| other.owner == Owner::Ours;
        let others = moment.secondaries_of(key).filter(|other| !is_ours(other));
        takes.extend(
            others.map(|other| Taken { key: other.key.to_string(), owner: other.owner.clone() }),
        );
        let empties_link = empties_link(key, going, desired, moment);
        if empties_link {
            takes.extend(moment.taken_on(key.link, &IPV4).cloned());
        }
        Cascade { takes, again: again(key, desired, moment), empties_link }
    }

    /// The slots of declared routes that go along with `key`.
    pub(crate) fn lost_routes(
        &self,
        key: &AddressKey,
        desired: &DesiredState,
        lost: &mut BTreeSet<Slot>,
    ) {
        let is_lost = |template: &RouteTemplate| {
            let reaches = |gateway| key.net().contains(gateway);
            let is_near = template.rests_on.iter().any(|near| near.link == key.link)
                || template.route.gateways().any(reaches)
                || template.route.links().any(|link| link == key.link);
            template.route.src == Some(key.ip) || self.empties_link && is_near
        };
        let routes = desired.routes_like(is_lost);
        let alike = routes.filter(|route| route.is_ipv4() == key.ip.is_ipv4());
        lost.extend(alike.filter_map(|route| desired.route_slot(&route, None)));
    }

    /// Whether a declared route goes along with `key`.
    pub(crate) fn includes(&self, key: &AddressKey, route: &Route) -> bool {
        let mut links = route.links().peekable();
        let is_here = links.peek().is_none() || links.any(|link| link == key.link);
        route.src == Some(key.ip) || self.empties_link && is_here
    }
}

/// The declared addresses that are secondary to `key`, or become so by being made before it goes.
fn again(key: &AddressKey, desired: &DesiredState, moment: &Moment) -> Vec<Slot> {
    if !moment.is_primary(key) {
        return Vec::new();
    }
    let is_near = |other: &AddressKey| (other.link, other.net()) == (key.link, key.net());
    let near = desired.addresses().filter(|other| other != key && is_near(other));
    let near = near.filter(|other| moment.is_ours_or_absent(other));
    near.filter_map(|other| desired.slot(&Key::Address(other), None)).collect()
}

/// Quirk `last-address-takes-routes` (Linux 6.18): with the last IPv4 address of a link all IPv4
/// routes and permanent neighbours of the link go, and secondary addresses go first.
fn empties_link(
    key: &AddressKey,
    going: &BTreeSet<AddressKey>,
    desired: &DesiredState,
    moment: &Moment,
) -> bool {
    let net = moment.is_primary(key).then(|| key.net());
    let stays = |other: &AddressKey| {
        let goes_along = Some(other.net()) == net;
        other.link == key.link && other.ip.is_ipv4() && other != key && !goes_along
    };
    let observed = moment.addresses.iter().map(|observed| observed.key);
    let observed = observed.filter(|other| !going.contains(other));
    !observed.chain(desired.addresses()).any(|other| stays(&other))
}
