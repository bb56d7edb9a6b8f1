//! The desired state: sorted, and so compact that a million routes are a normal case.
//!
//! A route is stored as a few integers; what routes have in common (nexthops, source) is a *template*
//! that is kept once. Everything else is a list of keys and objects.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};

use crate::address::AddressKey;
use crate::builder::Builder;
use crate::key::Key;
use crate::link::model::Field;
use crate::net::Net;
use crate::nexthop::{self, Nexthop, NexthopId};
use crate::object::{Object, explained};
use crate::route::packed::PackedRoute;
use crate::route::{Route, RouteKey, is_touched_by, route_agrees};

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
    /// Tells this desired state from any other; its clones are the same desired state.
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

    pub(crate) fn nexthops(&self) -> impl Iterator<Item = (NexthopId, &Nexthop)> {
        self.others.iter().filter_map(|declared| match (&declared.key, &declared.object) {
            (Key::Nexthop(id), Object::Nexthop(nexthop)) => Some((*id, nexthop)),
            _ => None,
        })
    }

    /// The keys of all routes whose template is of interest.
    pub(crate) fn routes_like(
        &self,
        is_like: impl Fn(&RouteTemplate) -> bool,
        tell: &mut dyn FnMut(Key),
    ) {
        let like = self.templates.iter().filter(|template| is_like(template));
        like.flat_map(|template| self.routes_of(template)).for_each(|key| tell(Key::Route(key)));
    }

    /// The keys of the routes of a template.
    pub(crate) fn routes_of(&self, template: &RouteTemplate) -> impl Iterator<Item = RouteKey> {
        let numbers = self.by_template.get(template.routes.clone()).unwrap_or_default().iter();
        numbers.filter_map(|number| Some(self.packed(*number as usize)?.key()))
    }

    /// Whether it is the same desired state, or a clone of it.
    pub(crate) fn is(&self, other: &DesiredState) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
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

    /// What may be deleted with an address, and what may be possible once it exists.
    fn dependants(&self, key: &Key, tell: &mut dyn FnMut(Key)) {
        match key {
            Key::Address(address) => {
                let is_touched = |template: &RouteTemplate| is_touched_by(&template.route, address);
                self.routes_like(is_touched, &mut |key| {
                    let is_alike = |route: &RouteKey| route.is_ipv4() == address.ip.is_ipv4();
                    if matches!(&key, Key::Route(route) if is_alike(route)) {
                        tell(key);
                    }
                });
            }
            Key::Nexthop(id) => nexthop::dependants(*id, self, tell),
            Key::Link(name) => self.touched_by_link(*name, tell),
            Key::LinkField(name, Field::Up | Field::Master) => {
                self.on_links(|link| link == *name, tell);
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
