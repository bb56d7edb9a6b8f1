//! What one observe learned beside the objects: links, and what hangs on addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use homeostat_core::{Owner, Taken};

use crate::address::{Address, AddressKey, AddressMarks};
use crate::fdb;
use crate::link::matching::Matched;
use crate::link::model::{Field, Setting};
use crate::link::namespaces::OtherNamespaces;
use crate::link::observe::LinkTable;
use crate::link::vlans::Vlans;
use crate::link::{IfIndex, LinkName, Links};
use crate::neighbour::NeighbourKey;
use crate::net::Net;
use crate::nexthop::{NexthopId, Nexthops};
use crate::route::gateways::Gateways;
use crate::route::{Route, RouteKey};
use crate::rule::ObservedRule;
use crate::shared_map::SharedMap;

/// What one observe learned beside the objects.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    pub(crate) links: Links,
    pub(crate) addresses: Addresses,
    pub(crate) foreign: Foreign,
    pub(crate) nexthops: Nexthops,
    /// The gateways that declared routes follow.
    pub(crate) gateways: Gateways,
    pub(crate) rules: Vec<ObservedRule>,
    pub(crate) learned: BTreeSet<NeighbourKey>,
    /// The places of declared forwarding entries, by bridge or VXLAN, whose present entry gives way.
    pub(crate) yielding: BTreeSet<(IfIndex, fdb::Place)>,
    pub(crate) table: LinkTable,
    /// The VLANs of bridges and their ports, as far as the focus is on them.
    pub(crate) vlans: BTreeMap<IfIndex, Vlans>,
    /// Links of which only a part could be read, and why.
    pub(crate) unread: BTreeMap<LinkName, String>,
    /// The links that match declared ones, by the declared names.
    pub(crate) matched: BTreeMap<LinkName, Matched>,
    /// Links that have the name of a declared one and are not the one that matches. The rest of the moment is without them.
    pub(crate) others_named: BTreeMap<LinkName, IfIndex>,
    pub(crate) namespaces: OtherNamespaces,
    /// The namespaces with the other ends of pairs that the pass may delete or set down, by what ours calls them.
    pub(crate) beyond: BTreeMap<i32, Beyond>,
    /// Which moment it is, for what a writer learns after it.
    pub(crate) token: Arc<()>,
    pub(crate) address_marks: AddressMarks,
    pub(crate) extent: Extent,
}

/// What is in another namespace.
#[derive(Clone, Debug)]
pub(crate) struct Beyond {
    /// The name that desired states use.
    pub(crate) name: String,
    pub(crate) moment: Box<Moment>,
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything: what was not seen is not there.
    #[default]
    Whole,
    /// A few keys, by what events said: an object may exist that no event announced.
    Few,
}

/// The addresses that are there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    by_key: SharedMap<AddressKey, ObservedAddress>,
    by_net: SharedMap<(LinkName, Net, AddressKey), ()>,
}

impl Extend<(AddressKey, ObservedAddress)> for Addresses {
    fn extend<I: IntoIterator<Item = (AddressKey, ObservedAddress)>>(&mut self, found: I) {
        for (key, observed) in found {
            self.by_key.insert(key, observed);
            self.by_net.insert((key.link, key.net(), key), ());
        }
    }
}

impl Addresses {
    pub(crate) fn remove(&mut self, key: &AddressKey) {
        self.by_key.remove(key);
        self.by_net.remove(&(key.link, key.net(), *key));
    }

    pub(crate) fn get(&self, key: &AddressKey) -> Option<&ObservedAddress> {
        self.by_key.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&AddressKey, &ObservedAddress)> {
        self.by_key.iter()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &AddressKey> {
        self.by_key.iter().map(|(key, _)| key)
    }

    /// Those of a link.
    pub(crate) fn on(
        &self,
        link: LinkName,
    ) -> impl Iterator<Item = (&AddressKey, &ObservedAddress)> {
        self.by_key
            .range(AddressKey::lowest_on(link)..)
            .take_while(move |(key, _)| key.link == link)
    }

    /// Those of a link in a network.
    fn in_net(
        &self,
        link: LinkName,
        net: Net,
    ) -> impl Iterator<Item = (&AddressKey, &ObservedAddress)> {
        let near = self.by_net.range((link, net, AddressKey::lowest_on(link))..);
        let near = near.take_while(move |((other, near, _), ())| (*other, *near) == (link, net));
        near.filter_map(|((_, _, key), ())| Some((key, self.by_key.get(key)?)))
    }
}

/// An address that is there.
#[derive(Clone, Debug)]
pub(crate) struct ObservedAddress {
    pub(crate) address: Address,
    pub(crate) owner: Owner,
    pub(crate) is_secondary: bool,
}

/// Foreign objects that would be deleted along with an address, a link or a nexthop. One of each sort is enough to hold
/// a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foreign {
    /// Routes by their source address.
    pub(crate) by_src: BTreeMap<IpAddr, Taken>,
    /// Routes by their nexthop object.
    pub(crate) by_nexthop: BTreeMap<NexthopId, Taken>,
    on_links: BTreeMap<(LinkName, OnLink), Taken>,
    /// IPv6 routes by their link and their MTU.
    by_mtu: BTreeMap<(LinkName, u32), Taken>,
}

/// What is on a link beside addresses, as far as the kernel removes one without the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OnLink {
    Ipv4Route,
    Ipv6Route,
    Ipv4Neighbour,
    Ipv6Neighbour,
    Ipv4Proxy,
    Ipv6Proxy,
}

impl Foreign {
    /// Notes a neighbour on a link, if it is foreign.
    pub(crate) fn note_neighbour(&mut self, key: &NeighbourKey, owner: &Owner) {
        let what = match (key.ip.is_ipv4(), key.is_proxy) {
            (true, false) => OnLink::Ipv4Neighbour,
            (false, false) => OnLink::Ipv6Neighbour,
            (true, true) => OnLink::Ipv4Proxy,
            (false, true) => OnLink::Ipv6Proxy,
        };
        if matches!(owner, Owner::Foreign(_)) {
            let taken = || Taken::new(key.to_string(), owner.clone());
            self.on_links.entry((key.link, what)).or_insert_with(taken);
        }
    }

    /// Notes a foreign route.
    pub(crate) fn note(
        &mut self,
        key: &RouteKey,
        route: &Route,
        owner: &Owner,
        nexthops: &Nexthops,
    ) {
        let taken = || Taken::new(key.to_string(), owner.clone());
        if let Some(src) = route.src {
            self.by_src.entry(src).or_insert_with(taken);
        }
        if let Some(nexthop) = route.nexthop {
            self.by_nexthop.entry(nexthop).or_insert_with(taken);
        }
        let what = if key.is_ipv4() { OnLink::Ipv4Route } else { OnLink::Ipv6Route };
        for link in route.links() {
            self.on_links.entry((link, what)).or_insert_with(taken);
        }
        if let Some(mtu) = route.mtu.filter(|_| !key.is_ipv4()) {
            let through = route.nexthop.map(|id| nexthops.links_of(id)).unwrap_or_default();
            for link in route.links().chain(through) {
                self.by_mtu.entry((link, mtu)).or_insert_with(taken);
            }
        }
    }

    /// Something on a link, of each of these kinds.
    pub(crate) fn on(&self, link: LinkName, kinds: &[OnLink]) -> impl Iterator<Item = &Taken> {
        kinds.iter().filter_map(move |kind| self.on_links.get(&(link, *kind)))
    }

    /// An IPv6 route on a link whose MTU the kernel sets to that of the link, which is now another one.
    pub(crate) fn with_mtu(&self, link: LinkName, now: u32, before: Option<u32>) -> Option<&Taken> {
        let same = before.and_then(|mtu| self.by_mtu.get(&(link, mtu)));
        let larger = || self.by_mtu.range((link, now)..=(link, u32::MAX)).next();
        same.or_else(|| larger().map(|(_, taken)| taken))
    }
}

impl Moment {
    /// The links that were there.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The value of a field of a link that is there. What a link has only in a bridge, it does not have elsewhere.
    pub(crate) fn setting(&self, name: LinkName, field: Field) -> Option<Setting> {
        if let (Field::Name, Some(matched)) = (field, self.matched.get(&name)) {
            return match matched {
                Matched::One { name, .. } => Some(Setting::Text(name.to_string())),
                Matched::None | Matched::Unclear(_) => None,
            };
        }
        let seen = self.table.get(name)?;
        match field {
            Field::Vlans => {
                self.table.part_of_bridge(seen)?;
                Some(Setting::Vlans(self.vlans.get(&seen.index).cloned().unwrap_or_default()))
            }
            Field::Port(option) => seen.port.get(&option).map(|value| option.setting(*value)),
            Field::Mtu
            | Field::TxQueueLen
            | Field::Mac
            | Field::Master
            | Field::Alias
            | Field::Up
            | Field::Name => Some(seen.setting(field)),
        }
    }

    /// The secondary addresses that go with this one, unless the kernel promotes them.
    ///
    /// Quirk `secondaries-go-along` (Linux 6.18): deleting the first IPv4 address of a subnet deletes
    /// the others in it, with `promote_secondaries` = 0 as is the default.
    pub(crate) fn secondaries_of(
        &self,
        key: &AddressKey,
    ) -> impl Iterator<Item = (&AddressKey, &ObservedAddress)> {
        let (key, counts) = (*key, self.is_primary(key) && key.ip.is_ipv4());
        self.addresses
            .in_net(key.link, key.net())
            .filter(move |(other, observed)| counts && observed.is_secondary && **other != key)
    }

    /// Whether an address is there and not secondary to another.
    pub(crate) fn is_primary(&self, key: &AddressKey) -> bool {
        self.addresses.get(key).is_some_and(|observed| !observed.is_secondary)
    }

    /// Whether no other owner has this address.
    pub(crate) fn is_ours_or_absent(&self, key: &AddressKey) -> bool {
        self.addresses.get(key).is_none_or(|observed| observed.owner == Owner::Ours)
    }
}
