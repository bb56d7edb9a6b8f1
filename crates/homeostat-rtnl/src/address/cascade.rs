//! What the kernel deletes along with an address: secondary addresses, routes, and neighbours. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use homeostat_core::{Desired as _, Owner, Slot, Taken};

use crate::address::AddressKey;
use crate::desired::{DesiredState, RouteTemplate};
use crate::key::Key;
use crate::link::LinkName;
use crate::moment::{Moment, OnLink};
use crate::neighbour::NeighbourKey;
use crate::net::Net;

/// What is on a link only while the link has an IPv4 address.
const IPV4: [OnLink; 3] = [OnLink::Ipv4Route, OnLink::Ipv4Neighbour, OnLink::Ipv4Proxy];

/// What the kernel takes along with an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cascade {
    /// What other owners lose.
    pub takes: Vec<Taken>,
    /// Declared addresses that are made again at once.
    pub again: Vec<Slot>,
    /// Whether its link is without IPv4 for a moment at least, and so loses all IPv4 routes and neighbours.
    pub empties_link: bool,
    /// Whether an earlier step of this plan already lists the routes and neighbours of this link.
    pub link_already_listed: bool,
}

impl Cascade {
    /// What the kernel deletes along with `key`.
    pub(crate) fn of(key: &AddressKey, subnets: &Subnets, moment: &Moment) -> Self {
        let mut takes: Vec<Taken> =
            moment.foreign.by_src.get(&key.ip).cloned().into_iter().collect();
        if key.ip.is_ipv6() {
            return Cascade { takes, ..Cascade::default() };
        }
        let others = moment.secondaries_of(key).filter(|(_, other)| other.owner != Owner::Ours);
        takes.extend(others.map(|(key, other)| Taken::new(key.to_string(), other.owner.clone())));
        let empties_link = subnets.empties_link(key, moment);
        if empties_link {
            takes.extend(moment.foreign.on(key.link, &IPV4).cloned());
        }
        Cascade { takes, again: subnets.again(key, moment), empties_link, ..Cascade::default() }
    }

    /// The templates of declared routes that may go along with `key`.
    pub(crate) fn templates(&self, key: &AddressKey, desired: &DesiredState) -> BTreeSet<u32> {
        let relations = &desired.relations;
        let mut templates: BTreeSet<u32> = relations.with_src(key.ip).collect();
        if self.empties_link {
            templates.extend(relations.with_gateway_in(key.net()));
        }
        if self.empties_link && !self.link_already_listed {
            templates.extend(relations.carried(&BTreeSet::from([key.link]), &BTreeSet::new()));
            templates.extend(relations.anywhere());
        }
        templates
    }

    /// The declared neighbours that go along with `key`.
    pub(crate) fn neighbours(
        &self,
        key: &AddressKey,
        desired: &DesiredState,
    ) -> impl Iterator<Item = NeighbourKey> {
        let emptied = (self.empties_link && !self.link_already_listed).then_some(key.link);
        emptied.into_iter().flat_map(|link| ipv4_neighbours(link, desired))
    }
}

/// The declared neighbours that are on a link only while the link has an IPv4 address.
fn ipv4_neighbours(link: LinkName, desired: &DesiredState) -> impl Iterator<Item = NeighbourKey> {
    desired.neighbours_on(link).filter(|key| key.ip.is_ipv4())
}

/// The addresses of a plan by link and network, so that each that goes is judged without a look at all others.
#[derive(Debug, Default)]
pub(crate) struct Subnets {
    /// IPv4 addresses that are there and stay, or are declared.
    remaining: BTreeSet<AddressKey>,
    /// How many of them each network of a link has.
    counts: BTreeMap<LinkName, BTreeMap<Net, usize>>,
    declared: BTreeMap<(LinkName, Net), Vec<(AddressKey, Slot)>>,
}

impl Subnets {
    /// The addresses that are left once all of `going` are deleted.
    pub(crate) fn new(
        going: &BTreeSet<AddressKey>,
        desired: &DesiredState,
        moment: &Moment,
    ) -> Self {
        let mut subnets = Subnets::default();
        let observed = moment.addresses.keys().filter(|key| !going.contains(key)).copied();
        for key in observed.chain(desired.addresses()).filter(|key| key.ip.is_ipv4()) {
            if subnets.remaining.insert(key) {
                let nets = subnets.counts.entry(key.link).or_default();
                *nets.entry(key.net()).or_default() += 1;
            }
        }
        // Addresses are first among what is declared.
        for (at, key) in desired.addresses().enumerate().filter(|(_, key)| key.ip.is_ipv4()) {
            let near = subnets.declared.entry((key.link, key.net())).or_default();
            near.push((key, Slot::at(at)));
        }
        subnets
    }

    /// The declared addresses that are secondary to `key`, or become so by being made before it goes.
    fn again(&self, key: &AddressKey, moment: &Moment) -> Vec<Slot> {
        if !moment.is_primary(key) {
            return Vec::new();
        }
        let near = self.declared.get(&(key.link, key.net())).into_iter().flatten();
        let near = near.filter(|(other, _)| other != key && moment.is_ours_or_absent(other));
        near.map(|(_, slot)| *slot).collect()
    }

    /// Quirk `last-address-takes-routes` (Linux 6.18): with the last IPv4 address of a link all IPv4
    /// routes and permanent neighbours of the link go, and secondary addresses go first.
    fn empties_link(&self, key: &AddressKey, moment: &Moment) -> bool {
        let Some(nets) = self.counts.get(&key.link) else { return true };
        let near = nets.get(&key.net()).copied().unwrap_or_default();
        let has_other_nets = nets.len() > usize::from(near > 0);
        let near_without_it = near - usize::from(self.remaining.contains(key));
        !has_other_nets && (moment.is_primary(key) || near_without_it == 0)
    }
}

/// The addresses that go in a plan, by what declared routes and neighbours may need of them.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    sources: BTreeSet<IpAddr>,
    /// Links that are without IPv4 for a moment at least.
    emptied: BTreeSet<LinkName>,
    emptied_nets: Nets,
}

impl Leaving {
    pub(crate) fn add(&mut self, key: &AddressKey, cascade: &Cascade) {
        self.sources.insert(key.ip);
        if cascade.empties_link {
            self.emptied.insert(key.link);
            self.emptied_nets.insert(key.net());
        }
    }

    /// The slots of declared routes and neighbours that go along.
    pub(crate) fn lost(&self, desired: &DesiredState) -> BTreeSet<Slot> {
        if self.sources.is_empty() {
            return BTreeSet::new();
        }
        let is_emptied = |link: LinkName| self.emptied.contains(&link);
        let is_lost = |template: &RouteTemplate, is_ipv4: bool| {
            let is_near = || {
                template.rests_on.iter().any(|near| is_emptied(near.link))
                    || template.route.gateways().any(|gateway| self.emptied_nets.contain(gateway))
                    || template.route.links().any(is_emptied)
            };
            template.route.src.is_some_and(|src| self.sources.contains(&src))
                || is_ipv4 && is_near()
        };
        let neighbours = self.emptied.iter().flat_map(|link| ipv4_neighbours(*link, desired));
        let mut lost: BTreeSet<Slot> =
            neighbours.filter_map(|key| desired.slot(&Key::Neighbour(key), None)).collect();
        for template in &desired.templates {
            let routes = desired.routes_of(template);
            let routes = routes.filter(|route| is_lost(template, route.is_ipv4()));
            lost.extend(routes.filter_map(|route| desired.route_slot(&route, None)));
        }
        lost
    }
}

/// Networks, by which it is known of an address whether one of them has it.
#[derive(Debug, Default)]
pub(crate) struct Nets {
    nets: BTreeSet<Net>,
    lengths: BTreeSet<u8>,
}

impl Nets {
    pub(crate) fn insert(&mut self, net: Net) {
        self.lengths.insert(net.prefix_len());
        self.nets.insert(net);
    }

    pub(crate) fn contain(&self, ip: IpAddr) -> bool {
        self.lengths.iter().any(|len| self.nets.contains(&Net::masked(ip, *len)))
    }
}
