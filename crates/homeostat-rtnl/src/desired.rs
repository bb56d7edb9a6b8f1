//! The desired state: sorted, and so compact that a million routes are a normal case.
//!
//! A route is stored as a few integers; what routes have in common (nexthops, source) is a *template*
//! that is kept once. Everything else is a list of keys and objects.
//! Also what is declared on a link, and which link has to exist before which. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, FoundKeys, Slot};

use crate::address::AddressKey;
use crate::builder::Builder;
use crate::fdb::FdbKey;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::matching::LinkMatch;
use crate::link::model::{Field, Link, Setting};
use crate::neighbour::{Mac, NeighbourKey};
use crate::net::{Family, Net};
use crate::nexthop::{self, NexthopId};
use crate::object::{Object, explained};
use crate::relations::{Relations, is_anywhere};
use crate::route::packed::PackedRoute;
use crate::route::{Route, RouteKey, route_agrees};
use crate::rule::RuleKey;

/// What should exist, in key order: addresses, then IPv4 routes, then IPv6 routes, then the others.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    /// Everything but routes, in key order.
    pub(crate) others: Vec<Declared>,
    /// How many of these are addresses, which sort before routes.
    pub(crate) address_count: usize,
    pub(crate) v4: Vec<PackedRoute<u32>>,
    pub(crate) v6: Vec<PackedRoute<u128>>,
    pub(crate) templates: Vec<RouteTemplate>,
    /// The numbers of the routes, those of one template together.
    pub(crate) by_template: Vec<u32>,
    /// Links that may be absent, those in other namespaces by the name of that.
    pub(crate) optional: BTreeSet<(Option<String>, LinkName)>,
    /// Links that are known by what they are, by the names that they get.
    pub(crate) matches: BTreeMap<LinkName, LinkMatch>,
    /// How all of these stand to each other.
    pub(crate) relations: Relations,
    /// Identifies this desired state; its clones are the same desired state.
    pub(crate) identity: Arc<()>,
}

/// A declared object that is no route.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) key: Key,
    pub(crate) object: Object,
    pub(crate) may_adopt: bool,
}

/// What many routes have in common.
#[derive(Clone, Debug)]
pub(crate) struct RouteTemplate {
    pub(crate) route: Route,
    pub(crate) print: u64,
    /// The declared addresses without which it cannot be.
    pub(crate) rests_on: Vec<AddressKey>,
    /// Where its routes are in `by_template`.
    pub(crate) routes: Range<usize>,
}

/// What is declared in a slot.
pub(crate) enum At<'a> {
    Route(Packed<'a>, &'a RouteTemplate),
    Other(&'a Declared),
}

/// A declared route of either family.
pub(crate) enum Packed<'a> {
    V4(&'a PackedRoute<u32>),
    V6(&'a PackedRoute<u128>),
}

impl Packed<'_> {
    pub(crate) fn key(&self) -> RouteKey {
        match self {
            Packed::V4(packed) => packed.key(),
            Packed::V6(packed) => packed.key(),
        }
    }

    fn may_adopt(&self) -> bool {
        match self {
            Packed::V4(packed) => packed.may_adopt,
            Packed::V6(packed) => packed.may_adopt,
        }
    }

    fn template(&self) -> usize {
        match self {
            Packed::V4(packed) => packed.template as usize,
            Packed::V6(packed) => packed.template as usize,
        }
    }
}

impl DesiredState {
    /// Starts a desired state.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What is declared in a slot; the slots of a desired state are those below its length.
    pub(crate) fn at(&self, slot: Slot) -> Option<At<'_>> {
        match self.packed_at(slot) {
            Some(packed) => {
                let template = self.templates.get(packed.template())?;
                Some(At::Route(packed, template))
            }
            None => self.other_at(slot).map(At::Other),
        }
    }

    fn packed_at(&self, slot: Slot) -> Option<Packed<'_>> {
        self.packed(slot.index().checked_sub(self.address_count)?)
    }

    /// The route with this number: IPv4 ones first.
    fn packed(&self, number: usize) -> Option<Packed<'_>> {
        match number.checked_sub(self.v4.len()) {
            None => self.v4.get(number).map(Packed::V4),
            Some(number) => self.v6.get(number).map(Packed::V6),
        }
    }

    /// The declared object in a slot, if it is no route.
    pub(crate) fn other_at(&self, slot: Slot) -> Option<&Declared> {
        let index = slot.index();
        if index < self.address_count {
            return self.others.get(index);
        }
        let index = index.checked_sub(self.v4.len() + self.v6.len())?;
        self.others.get(index).filter(|_| index >= self.address_count)
    }

    /// Whether a slot is that of a link, or of a field of one.
    pub(crate) fn is_link(&self, slot: Slot) -> bool {
        self.other_at(slot).is_some_and(|declared| declared.key.is_link())
    }

    /// The declared object of a key that is no route's.
    pub(crate) fn get(&self, key: &Key) -> Option<&Declared> {
        self.others.get(self.others.binary_search_by(|declared| declared.key.cmp(key)).ok()?)
    }

    /// The slot of a declared route.
    pub(crate) fn route_slot(&self, key: &RouteKey, near: Option<Slot>) -> Option<Slot> {
        match key.dst.addr() {
            IpAddr::V4(dst) => {
                let packed = PackedRoute::new(key, dst.to_bits(), 0, false);
                find(&self.v4, self.address_count, near, |desired| desired.compare(&packed))
            }
            IpAddr::V6(dst) => {
                let base = self.address_count + self.v4.len();
                let packed = PackedRoute::new(key, dst.to_bits(), 0, false);
                find(&self.v6, base, near, |desired| desired.compare(&packed))
            }
        }
    }

    /// The route in a slot, without its key.
    pub(crate) fn template_at(&self, slot: Slot) -> Option<&RouteTemplate> {
        self.templates.get(self.template_of(slot)?)
    }

    /// Whether there is an IPv4 route in a slot.
    pub(crate) fn is_ipv4_route(&self, slot: Slot) -> bool {
        matches!(self.packed_at(slot), Some(Packed::V4(_)))
    }

    /// The number of the template of the route in a slot.
    pub(crate) fn template_of(&self, slot: Slot) -> Option<usize> {
        self.packed_at(slot).map(|packed| packed.template())
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = AddressKey> {
        self.others.iter().map_while(|declared| match declared.key {
            Key::Address(key) => Some(key),
            _ => None,
        })
    }

    pub(crate) fn addresses_on(&self, link: LinkName) -> impl Iterator<Item = AddressKey> {
        let lowest = Key::Address(AddressKey::lowest_on(link));
        let first = self.others.partition_point(|declared| declared.key < lowest);
        let keys = self.others.iter().skip(first).map_while(|declared| declared.key.address());
        keys.take_while(move |key| key.link == link)
    }

    pub(crate) fn neighbours_on(&self, link: LinkName) -> impl Iterator<Item = NeighbourKey> {
        let lowest = Key::Neighbour(NeighbourKey::lowest_on(link));
        let first = self.others.partition_point(|declared| declared.key < lowest);
        self.others.iter().skip(first).map_while(move |declared| match &declared.key {
            Key::Neighbour(key) if key.link == link => Some(*key),
            _ => None,
        })
    }

    pub(crate) fn fdb_on(&self, link: LinkName) -> impl Iterator<Item = &Key> {
        let lowest = Key::from(FdbKey::lowest_on(link));
        let first = self.others.partition_point(|declared| declared.key < lowest);
        let keys = self.others.iter().skip(first).map(|declared| &declared.key);
        keys.take_while(move |key| matches!(key, Key::Fdb(key) if key.link == link))
    }

    /// The keys of the routes of some templates, by their numbers.
    pub(crate) fn routes_of_all(
        &self,
        templates: impl IntoIterator<Item = u32>,
    ) -> impl Iterator<Item = RouteKey> {
        let templates = templates.into_iter();
        let templates = templates.filter_map(|number| self.templates.get(number as usize));
        templates.flat_map(|template| self.routes_of(template))
    }

    pub(crate) fn routes_of(&self, template: &RouteTemplate) -> impl Iterator<Item = RouteKey> {
        let numbers = self.by_template.get(template.routes.clone()).unwrap_or_default().iter();
        numbers.filter_map(|number| Some(self.packed(*number as usize)?.key()))
    }

    /// The keys of the rules of a family with a priority, or with none.
    pub(crate) fn rules_at(
        &self,
        family: Family,
        priority: Option<u32>,
    ) -> impl Iterator<Item = Key> {
        let lowest = Key::from(RuleKey { priority, ..RuleKey::new(family) });
        let first = self.others.partition_point(|declared| declared.key < lowest);
        let keys = self.others.iter().skip(first).map(|declared| &declared.key);
        let is_there = move |key: &&Key| matches!(key, Key::Rule(key) if (key.family, key.priority) == (family, priority));
        keys.take_while(is_there).cloned()
    }

    /// The links that addresses, routes, nexthops, neighbours, forwarding entries and fields need in this namespace.
    pub(crate) fn links_needed(&self) -> impl Iterator<Item = LinkName> {
        let of_other = |declared: &Declared| match (&declared.key, &declared.object) {
            (Key::Address(key), _) => Some(key.link),
            (Key::Neighbour(key), _) => Some(key.link),
            (Key::Fdb(key), _) => Some(key.link),
            (Key::LinkField(link, _), _) => Some(*link),
            (_, Object::Nexthop(nexthop)) => nexthop.dev,
            _ => None,
        };
        let routes = self.templates.iter().flat_map(|template| template.route.links());
        self.others.iter().filter_map(of_other).chain(routes)
    }

    /// Whether a link of this namespace may be absent.
    pub(crate) fn is_optional(&self, link: LinkName) -> bool {
        self.optional.contains(&(None, link))
    }

    /// Whether this creates a link, or the other end of it.
    pub(crate) fn makes(&self, link: LinkName) -> bool {
        self.link(link).is_some() || self.relations.makers.contains_key(&link)
    }

    /// The links that are created.
    pub(crate) fn links(&self) -> impl Iterator<Item = (LinkName, &Link)> {
        let first = self.others.partition_point(|declared| !declared.key.is_link());
        self.others.iter().skip(first).map_while(|declared| {
            match (&declared.key, &declared.object) {
                (Key::Link(name), Object::Link(link)) => Some((*name, &**link)),
                _ => None,
            }
        })
    }

    /// The fields of links that are only configured.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (LinkName, Field, &Setting)> {
        let is_before = |key: &Key| !matches!(key, Key::LinkField(..));
        let first = self.others.partition_point(|declared| is_before(&declared.key));
        self.others.iter().skip(first).filter_map(|declared| {
            match (&declared.key, &declared.object) {
                (Key::LinkField(name, field), Object::Setting(configured)) => {
                    Some((*name, *field, &configured.setting))
                }
                _ => None,
            }
        })
    }

    pub(crate) fn fields_of(&self, link: LinkName) -> impl Iterator<Item = Key> {
        let lowest = Key::LinkField(link, Field::Mtu);
        let first = self.others.partition_point(|declared| declared.key < lowest);
        let keys = self.others.iter().skip(first).map(|declared| declared.key.clone());
        keys.take_while(move |key| matches!(key, Key::LinkField(name, _) if *name == link))
    }

    /// Whether anything declared may have to do with a link.
    pub(crate) fn concerns_link(&self, name: LinkName) -> bool {
        self.relations.concern_link(name)
    }

    /// The declared link of this name.
    pub(crate) fn link(&self, name: LinkName) -> Option<&Link> {
        match &self.get(&Key::Link(name))?.object {
            Object::Link(link) => Some(link),
            _ => None,
        }
    }

    /// The declared value of a field.
    pub(crate) fn field(&self, name: LinkName, field: Field) -> Option<&Setting> {
        match &self.get(&Key::LinkField(name, field))?.object {
            Object::Setting(configured) => Some(&configured.setting),
            _ => None,
        }
    }

    /// The declared MTU of a link, created or only configured.
    pub(crate) fn mtu(&self, name: LinkName) -> Option<u32> {
        let field = || match self.field(name, Field::Mtu)? {
            Setting::Number(mtu) => Some(*mtu),
            _ => None,
        };
        self.link(name).and_then(|link| link.mtu).or_else(field)
    }

    /// The declared hardware address of a link, likewise.
    pub(crate) fn mac(&self, name: LinkName) -> Option<Mac> {
        let field = || match self.field(name, Field::Mac)? {
            Setting::Text(mac) => mac.parse().ok(),
            _ => None,
        };
        self.link(name).and_then(|link| link.mac).or_else(field)
    }

    /// The declared link without which there is none of this name: itself, or the other end.
    pub(crate) fn maker_of(&self, name: LinkName) -> Option<(LinkName, &Link)> {
        let maker =
            if self.link(name).is_some() { name } else { *self.relations.makers.get(&name)? };
        Some((maker, self.link(maker)?))
    }

    /// The keys of links without which nothing can be on this one.
    pub(crate) fn needed_for(&self, name: LinkName, need: &mut dyn FnMut(Key)) {
        if let Some((maker, _)) = self.maker_of(name) {
            need(Key::Link(maker));
        }
        let is_of_bridge =
            |key: &Key| matches!(key, Key::LinkField(_, field) if field.is_of_bridge());
        self.fields_of(name).filter(|key| !is_of_bridge(key)).for_each(need);
    }

    /// The declared master of a link, created or only configured.
    pub(crate) fn master(&self, name: LinkName) -> Option<LinkName> {
        let field = || self.field(name, Field::Master).and_then(Setting::link_name);
        self.link(name).and_then(|link| link.master).or_else(field)
    }

    /// What is declared in two places: a field of a link that is created as well, or a link that is
    /// created as the other end of a pair as well.
    pub(crate) fn link_made_twice(&self) -> Option<Key> {
        let fields = self.fields().filter(|(_, field, _)| !field.is_of_bridge());
        let fields = fields.map(|(name, field, _)| (name, Key::LinkField(name, field)));
        let ends = self.links().filter_map(|(_, link)| link.peer_here());
        let mut both = fields.chain(ends.map(|end| (end, Key::Link(end))));
        both.find(|(name, _)| self.link(*name).is_some()).map(|(_, key)| key)
    }

    /// How many declared links have to exist before the one of this name.
    pub(crate) fn link_depth(&self, name: LinkName) -> usize {
        self.depth_below(name, DEEPEST)
    }

    fn depth_below(&self, name: LinkName, left: usize) -> usize {
        let Some((_, maker)) = self.maker_of(name).filter(|_| left > 0) else { return 0 };
        let parent = maker.parent.as_ref().filter(|parent| parent.namespace.is_none());
        let others = parent.map(|parent| parent.name).into_iter().chain(maker.master);
        1 + others.map(|other| self.depth_below(other, left - 1)).max().unwrap_or(0)
    }

    /// The same for the step of a key; a field comes after its link.
    pub(crate) fn key_depth(&self, key: &Key) -> usize {
        match key {
            Key::Link(name) => self.link_depth(*name),
            Key::LinkField(name, field) => {
                let joins = *field == Field::Master || field.is_of_bridge();
                let master = self.field(*name, Field::Master).filter(|_| joins);
                let master = master.and_then(Setting::link_name);
                1 + self.link_depth(*name).max(master.map_or(0, |master| self.link_depth(master)))
            }
            _ => 0,
        }
    }

    /// The keys of all that is on some links and is deleted with them.
    pub(crate) fn on_links(&self, links: BTreeSet<LinkName>, each: &mut dyn FnMut(Key)) {
        self.on_link_set(&LinkSet::new(self, links), each);
    }

    /// The keys of all that an event of a link may be about: what is on it or may be, and the links
    /// that refer to it.
    pub(crate) fn touched_by_link(&self, name: LinkName, each: &mut dyn FnMut(Key)) {
        self.on_link_set(&LinkSet::new(self, BTreeSet::from([name])), each);
        self.routes_of_all(self.relations.anywhere()).for_each(|key| each(Key::Route(key)));
        self.relations.referring_to(name).iter().for_each(|key| each(key.clone()));
    }

    fn on_link_set(&self, set: &LinkSet, each: &mut dyn FnMut(Key)) {
        for link in &set.links {
            let address = Key::Address(AddressKey::lowest_on(*link));
            let neighbour = Key::Neighbour(NeighbourKey::lowest_on(*link));
            let entry = Key::from(FdbKey::lowest_on(*link));
            for lowest in [address, neighbour, entry] {
                let first = self.others.partition_point(|declared| declared.key < lowest);
                let keys = self.others.iter().skip(first).map(|declared| &declared.key);
                keys.take_while(|key| key.is_on(*link)).for_each(|key| each(key.clone()));
            }
        }
        let is_declared = |key: &Key| self.get(key).is_some();
        let nexthops = set.nexthops.iter().map(|id| Key::Nexthop(*id));
        nexthops.filter(is_declared).for_each(&mut *each);
        self.routes_of_all(set.templates(self)).for_each(|key| each(Key::Route(key)));
    }

    /// Whether it is the same desired state, or a clone of it.
    pub(crate) fn is(&self, other: &DesiredState) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
    }
}

/// Deeper than links can be stacked: a link that is deeper refers to itself in a circle.
const DEEPEST: usize = 32;

/// Some links, with the declared nexthops that go with them.
pub(crate) struct LinkSet {
    links: BTreeSet<LinkName>,
    pub(crate) nexthops: BTreeSet<NexthopId>,
}

impl LinkSet {
    pub(crate) fn new(desired: &DesiredState, links: BTreeSet<LinkName>) -> Self {
        let nexthops = nexthop::lost_with(desired, &links);
        LinkSet { links, nexthops }
    }

    /// The templates of routes on one of them: by name, by an address, or by a nexthop.
    pub(crate) fn templates(&self, desired: &DesiredState) -> BTreeSet<u32> {
        desired.relations.carried(&self.links, &self.nexthops)
    }

    /// Whether a route that is not as declared may be on one of them.
    pub(crate) fn may_carry(&self, route: &Route) -> bool {
        is_anywhere(route, &[])
            || route.links().any(|link| self.links.contains(&link))
            || route.nexthop.is_some_and(|id| self.nexthops.contains(&id))
    }
}

/// Looks a route up in its part of the desired state, which begins at `base`.
fn find<T>(
    part: &[T],
    base: usize,
    near: Option<Slot>,
    compare: impl Fn(&T) -> std::cmp::Ordering,
) -> Option<Slot> {
    let near = near.and_then(|slot| slot.index().checked_sub(base)).map(Slot::at);
    find_near(part, near, compare).map(|slot| Slot::at(base + slot.index()))
}

impl Desired for DesiredState {
    type Key = Key;
    type Object = Object;

    fn len(&self) -> usize {
        self.others.len() + self.v4.len() + self.v6.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        if let Key::Route(key) = key {
            return self.route_slot(key, near);
        }
        let at = self.others.binary_search_by(|declared| declared.key.cmp(key)).ok()?;
        let routes = if at < self.address_count { 0 } else { self.v4.len() + self.v6.len() };
        Some(Slot::at(at + routes))
    }

    fn key(&self, slot: Slot) -> Key {
        match self.at(slot) {
            Some(At::Route(packed, _)) => Key::Route(packed.key()),
            Some(At::Other(declared)) => declared.key.clone(),
            // No slot of this desired state: the contract has no word for it, and nothing has this key.
            None => Key::Route(RouteKey::new(Net::masked(Ipv4Addr::UNSPECIFIED.into(), 0))),
        }
    }

    fn object(&self, slot: Slot) -> Object {
        match self.at(slot) {
            Some(At::Route(_, template)) => Object::Route(template.route.clone()),
            Some(At::Other(declared)) => declared.object.clone(),
            None => Object::Route(Route::default()),
        }
    }

    fn compare(&self, slot: Slot, seen: &Object) -> Agreement {
        Agreement::when(match (self.at(slot), seen) {
            (Some(At::Route(_, template)), Object::Route(seen)) => {
                route_agrees(&template.route, seen)
            }
            (Some(At::Other(declared)), seen) => declared.object.agrees(seen),
            _ => false,
        })
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).is_some_and(|at| match at {
            At::Route(packed, _) => packed.may_adopt(),
            At::Other(declared) => declared.may_adopt,
        })
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        let declares_same = match (self.at(slot), other.at(there)) {
            (Some(At::Route(_, template)), Some(At::Route(_, other))) => {
                template.route == other.route
            }
            (Some(At::Other(declared)), Some(At::Other(other))) => declared.object == other.object,
            _ => false,
        };
        declares_same && self.may_adopt(slot) == other.may_adopt(there)
    }

    fn identity(&self, seen: &Object) -> Option<String> {
        match seen {
            Object::Link(link) => link.incarnation.identity(),
            Object::Setting(configured) => configured.incarnation.identity(),
            _ => None,
        }
    }

    fn shown(&self, object: &Object) -> serde_json::Value {
        explained(object)
    }

    fn find(&self, text: &str, limit: usize) -> FoundKeys<Key> {
        crate::find::find(self, text, limit)
    }

    /// What may be deleted with an address, and what may be possible once it exists.
    fn dependants(&self, key: &Key, each: &mut dyn FnMut(Key)) {
        match key {
            Key::Address(address) => {
                let routes = self.routes_of_all(self.relations.touched_by(address, self));
                let alike = routes.filter(|route| route.is_ipv4() == address.ip.is_ipv4());
                alike.for_each(|route| each(Key::Route(route)));
            }
            Key::Nexthop(id) => nexthop::dependants(*id, self, each),
            Key::Link(name) => self.touched_by_link(*name, each),
            Key::LinkField(name, Field::Name) => {
                self.fields_of(*name).for_each(&mut *each);
                self.touched_by_link(*name, each);
            }
            Key::LinkField(name, Field::Up | Field::Master) => {
                self.on_links(BTreeSet::from([*name]), each);
            }
            _ => {}
        }
    }

    fn key_print(&self, key: &Key) -> u64 {
        crate::key::fingerprint(key)
    }

    fn object_print(&self, slot: Slot) -> u64 {
        match self.at(slot) {
            Some(At::Route(_, template)) => template.print,
            _ => homeostat_core::Fingerprint::of_object(&self.object(slot)),
        }
    }
}
