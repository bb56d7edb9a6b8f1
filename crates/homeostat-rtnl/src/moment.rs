//! What one observe learned beside the objects: links, and what hangs on addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use homeostat_core::{Owner, Taken};

use crate::address::{AddressKey, AddressMarks};
use crate::key::Key;
use crate::link::namespaces::OtherNamespaces;
use crate::link::observe::LinkTable;
use crate::link::{LinkName, Links};
use crate::neighbour::NeighbourKey;
use crate::nexthop::{NexthopId, ObservedNexthop};
use crate::route::{Route, RouteKey};
use crate::rule::ObservedRule;

/// What one observe learned beside the objects.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    pub(crate) links: Arc<Links>,
    pub(crate) addresses: Vec<ObservedAddress>,
    pub(crate) foreign: Foreign,
    pub(crate) nexthops: Vec<ObservedNexthop>,
    pub(crate) rules: Vec<ObservedRule>,
    pub(crate) learned: BTreeSet<NeighbourKey>,
    pub(crate) table: LinkTable,
    pub(crate) namespaces: OtherNamespaces,
    /// Which moment it is, for what a writer learns after it.
    pub(crate) token: Arc<()>,
    pub(crate) address_marks: AddressMarks,
    pub(crate) extent: Extent,
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

/// An address that is there.
#[derive(Clone, Debug)]
pub(crate) struct ObservedAddress {
    pub(crate) key: AddressKey,
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
}

/// What is on a link beside addresses, as far as the kernel removes one without the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OnLink {
    Ipv4Route,
    Ipv6Route,
    Nexthop,
    Ipv4Neighbour,
    Ipv6Neighbour,
    Ipv4Proxy,
    Ipv6Proxy,
}

impl Foreign {
    /// Notes a nexthop or a neighbour on a link, if it is foreign.
    pub(crate) fn note_on(&mut self, link: LinkName, key: &Key, owner: &Owner) {
        let what = match key {
            Key::Neighbour(key) => match (key.ip.is_ipv4(), key.is_proxy) {
                (true, false) => OnLink::Ipv4Neighbour,
                (false, false) => OnLink::Ipv6Neighbour,
                (true, true) => OnLink::Ipv4Proxy,
                (false, true) => OnLink::Ipv6Proxy,
            },
            _ => OnLink::Nexthop,
        };
        if matches!(owner, Owner::Foreign(_)) {
            let taken = || Taken { key: key.to_string(), owner: owner.clone() };
            self.on_links.entry((link, what)).or_insert_with(taken);
        }
    }

    /// Notes a foreign route.
    pub(crate) fn note(&mut self, key: &RouteKey, route: &Route, owner: &Owner) {
        let taken = || Taken { key: key.to_string(), owner: owner.clone() };
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
    }
}

impl Moment {
    /// The links that were there.
    #[must_use]
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The secondary addresses that go with this one, unless the kernel promotes them.
    ///
    /// Quirk `secondaries-go-along` (Linux 6.18): deleting the first IPv4 address of a subnet deletes
    /// the others in it, with `promote_secondaries` = 0 as is the default.
    pub(crate) fn secondaries_of(
        &self,
        key: &AddressKey,
    ) -> impl Iterator<Item = &ObservedAddress> + use<'_> {
        let (key, counts) = (*key, self.is_primary(key) && key.ip.is_ipv4());
        self.addresses.iter().filter(move |other| {
            let is_near = (other.key.link, other.key.net()) == (key.link, key.net());
            counts && other.is_secondary && is_near && other.key != key
        })
    }

    /// Whether an address is there and not secondary to another.
    pub(crate) fn is_primary(&self, key: &AddressKey) -> bool {
        self.observed(key).is_some_and(|observed| !observed.is_secondary)
    }

    /// Whether no other owner has this address.
    pub(crate) fn is_ours_or_absent(&self, key: &AddressKey) -> bool {
        self.observed(key).is_none_or(|observed| observed.owner == Owner::Ours)
    }

    fn observed(&self, key: &AddressKey) -> Option<&ObservedAddress> {
        self.addresses.iter().find(|observed| observed.key == *key)
    }

    /// Something foreign on a link, of each of these kinds.
    pub(crate) fn taken_on(
        &self,
        link: LinkName,
        kinds: &[OnLink],
    ) -> impl Iterator<Item = &Taken> {
        kinds.iter().filter_map(move |kind| self.foreign.on_links.get(&(link, *kind)))
    }
}
