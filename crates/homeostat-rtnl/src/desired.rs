//! The desired state: sorted, and so compact that a million routes are a normal case.
//!
//! A route is stored as a few integers; what routes have in common (nexthops, source) is a *template*
//! that is kept once.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;

use homeostat_core::desired::find_near;
use homeostat_core::{Agreement, Desired, Slot};

use crate::address::{Address, AddressKey, address_agrees};
use crate::builder::Builder;
use crate::key::Key;
use crate::link::desired::{DesiredField, DesiredLink, DesiredLinks};
use crate::link::model::{Field, link_agrees};
use crate::net::Net;
use crate::nexthop;
use crate::object::{Object, explained, other_agrees};
use crate::route::packed::PackedRoute;
use crate::route::{Route, RouteKey, is_touched_by, route_agrees};

/// What should exist: addresses, then IPv4 routes, then IPv6 routes, then the others, then links, each
/// in key order.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    pub(crate) addresses: Vec<DesiredAddress>,
    pub(crate) v4: Vec<PackedRoute<u32>>,
    pub(crate) v6: Vec<PackedRoute<u128>>,
    pub(crate) others: Vec<Declared>,
    pub(crate) templates: Vec<RouteTemplate>,
    /// The numbers of the routes, those of one template together.
    pub(crate) by_template: Vec<u32>,
    /// Tells this desired state from any other; its clones are the same desired state.
    pub(crate) identity: Arc<()>,
    pub(crate) links: DesiredLinks,
}

/// A declared address.
#[derive(Clone, Debug)]
pub(crate) struct DesiredAddress {
    pub(crate) key: AddressKey,
    pub(crate) address: Address,
    pub(crate) may_adopt: bool,
}

/// A declared nexthop, rule or neighbour: there are few.
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

/// What stands in a slot.
pub(crate) enum At<'a> {
    Address(&'a DesiredAddress),
    Route(Packed<'a>, &'a RouteTemplate),
    Other(&'a Declared),
    Link(&'a DesiredLink),
    Field(&'a DesiredField),
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
}

impl DesiredState {
    /// Starts a desired state.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What stands in a slot; the slots of a desired state are those below its length.
    pub(crate) fn at(&self, slot: Slot) -> Option<At<'_>> {
        let index = slot.index();
        if let Some(address) = self.addresses.get(index) {
            return Some(At::Address(address));
        }
        let index = index - self.addresses.len();
        if let Some(packed) = self.v4.get(index) {
            return Some(At::Route(Packed::V4(packed), self.template(packed.template)?));
        }
        let index = index - self.v4.len();
        if let Some(packed) = self.v6.get(index) {
            return Some(At::Route(Packed::V6(packed), self.template(packed.template)?));
        }
        let index = index - self.v6.len();
        if let Some(other) = self.others.get(index) {
            return Some(At::Other(other));
        }
        let index = index - self.others.len();
        if let Some(link) = self.links.made.get(index) {
            return Some(At::Link(link));
        }
        self.links.fields.get(index - self.links.made.len()).map(At::Field)
    }

    /// Where the slots of links begin.
    fn first_link(&self) -> usize {
        self.others_from() + self.others.len()
    }

    /// Whether a slot is one of links.
    pub(crate) fn is_link(&self, slot: Slot) -> bool {
        slot.index() >= self.first_link()
    }

    /// The key in a slot, if it is one of links.
    pub(crate) fn link_key_at(&self, slot: Slot) -> Option<Key> {
        self.is_link(slot).then(|| self.key(slot))
    }

    fn template(&self, template: u32) -> Option<&RouteTemplate> {
        self.templates.get(usize::try_from(template).ok()?)
    }

    /// The slot of a declared route.
    pub(crate) fn route_slot(&self, key: &RouteKey, near: Option<Slot>) -> Option<Slot> {
        match key.dst().addr() {
            IpAddr::V4(dst) => {
                let packed = PackedRoute::new(key, dst.to_bits(), 0);
                find(&self.v4, self.addresses.len(), near, |desired| desired.compare(&packed))
            }
            IpAddr::V6(dst) => {
                let base = self.addresses.len() + self.v4.len();
                let packed = PackedRoute::new(key, dst.to_bits(), 0);
                find(&self.v6, base, near, |desired| desired.compare(&packed))
            }
        }
    }

    /// The route in a slot, without its key.
    pub(crate) fn template_at(&self, slot: Slot) -> Option<&RouteTemplate> {
        self.templates.get(self.template_of(slot)?)
    }

    /// The declared route in a slot.
    pub(crate) fn route_at(&self, slot: Slot) -> Option<(RouteKey, &RouteTemplate)> {
        match self.at(slot)? {
            At::Address(_) | At::Other(_) | At::Link(_) | At::Field(_) => None,
            At::Route(packed, template) => Some((packed.key(), template)),
        }
    }

    /// The number of the template of the route in a slot.
    pub(crate) fn template_of(&self, slot: Slot) -> Option<usize> {
        let index = slot.index().checked_sub(self.addresses.len())?;
        let template = match index.checked_sub(self.v4.len()) {
            None => self.v4.get(index)?.template,
            Some(index) => self.v6.get(index)?.template,
        };
        usize::try_from(template).ok()
    }

    /// The declared address in a slot.
    pub(crate) fn address_at(&self, slot: Slot) -> Option<&DesiredAddress> {
        self.addresses.get(slot.index())
    }

    /// The declared nexthop, rule or neighbour in a slot.
    pub(crate) fn other_at(&self, slot: Slot) -> Option<&Declared> {
        self.others.get(slot.index().checked_sub(self.others_from())?)
    }

    /// Where the others begin.
    fn others_from(&self) -> usize {
        self.addresses.len() + self.v4.len() + self.v6.len()
    }

    /// The keys of all routes whose template is of interest.
    pub(crate) fn routes_like(&self, is_like: impl Fn(&Route) -> bool, tell: &mut dyn FnMut(Key)) {
        let like = self.templates.iter().filter(|template| is_like(&template.route));
        like.flat_map(|template| self.routes_of(template)).for_each(|key| tell(key.into()));
    }

    /// The keys of the routes of a template.
    pub(crate) fn routes_of(&self, template: &RouteTemplate) -> impl Iterator<Item = RouteKey> {
        let numbers = self.by_template.get(template.routes.clone()).unwrap_or_default().iter();
        numbers.filter_map(|number| self.numbered(usize::try_from(*number).ok()?))
    }

    /// The route with this number: IPv4 ones first.
    fn numbered(&self, number: usize) -> Option<RouteKey> {
        match number.checked_sub(self.v4.len()) {
            None => self.v4.get(number).map(PackedRoute::<u32>::key),
            Some(number) => self.v6.get(number).map(PackedRoute::<u128>::key),
        }
    }

    /// Whether it is the same desired state, or a clone of it.
    pub(crate) fn is(&self, other: &DesiredState) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
    }
}

impl From<RouteKey> for Key {
    fn from(key: RouteKey) -> Key {
        Key::Route(key)
    }
}

impl From<AddressKey> for Key {
    fn from(key: AddressKey) -> Key {
        Key::Address(key)
    }
}

/// Looks a packed up in its part of the desired state, which begins at `base`.
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
        self.first_link() + self.links.len()
    }

    fn slot(&self, key: &Key, near: Option<Slot>) -> Option<Slot> {
        match key {
            Key::Address(key) => find(&self.addresses, 0, near, |desired| desired.key.cmp(key)),
            Key::Route(key) => self.route_slot(key, near),
            Key::Link(_) | Key::LinkField(..) => {
                self.links.place(key).map(|at| Slot::at(self.first_link() + at))
            }
            key => find(&self.others, self.others_from(), near, |desired| desired.key.cmp(key)),
        }
    }

    fn key(&self, slot: Slot) -> Key {
        match self.at(slot) {
            Some(At::Address(desired)) => Key::Address(desired.key),
            Some(At::Route(packed, _)) => Key::Route(packed.key()),
            Some(At::Other(desired)) => desired.key.clone(),
            Some(At::Link(desired)) => Key::Link(desired.name),
            Some(At::Field(desired)) => desired.key(),
            // No slot of this desired state: the contract has no word for it, and nothing has this key.
            None => Key::Route(RouteKey::new(Net::masked(Ipv4Addr::UNSPECIFIED.into(), 0))),
        }
    }

    fn object(&self, slot: Slot) -> Object {
        match self.at(slot) {
            Some(At::Address(desired)) => Object::Address(desired.address.clone()),
            Some(At::Route(_, template)) => Object::Route(template.route.clone()),
            Some(At::Other(desired)) => desired.object.clone(),
            Some(At::Link(desired)) => Object::Link(Box::new(desired.link.clone())),
            Some(At::Field(desired)) => Object::Setting(desired.setting.clone().into()),
            None => Object::Route(Route::default()),
        }
    }

    fn compare(&self, slot: Slot, seen: &Object) -> Agreement {
        Agreement::when(match (self.at(slot), seen) {
            (Some(At::Address(desired)), Object::Address(seen)) => {
                address_agrees(&desired.address, seen)
            }
            (Some(At::Route(_, template)), Object::Route(seen)) => {
                route_agrees(&template.route, seen)
            }
            (Some(At::Other(desired)), seen) => other_agrees(&desired.object, seen),
            (Some(At::Link(desired)), Object::Link(seen)) => link_agrees(&desired.link, seen),
            (Some(At::Field(desired)), Object::Setting(seen)) => desired.setting == seen.setting,
            _ => false,
        })
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.at(slot).is_some_and(|at| match at {
            At::Address(desired) => desired.may_adopt,
            At::Route(packed, _) => packed.may_adopt(),
            At::Other(desired) => desired.may_adopt,
            At::Link(desired) => desired.may_adopt,
            At::Field(_) => false,
        })
    }

    fn is_same(&self, slot: Slot, other: &Self, there: Slot) -> bool {
        let (Some(at), Some(other_at)) = (self.at(slot), other.at(there)) else { return false };
        let declares_same = match (at, other_at) {
            (At::Address(desired), At::Address(other)) => desired.address == other.address,
            (At::Route(_, template), At::Route(_, other)) => template.route == other.route,
            (At::Other(desired), At::Other(other)) => desired.object == other.object,
            (At::Link(desired), At::Link(other)) => desired.link == other.link,
            (At::Field(desired), At::Field(other)) => desired.setting == other.setting,
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

    /// What may go with an address, and what may be possible once it is there.
    fn dependants(&self, key: &Key, tell: &mut dyn FnMut(Key)) {
        let address = match key {
            Key::Address(address) => address,
            Key::Nexthop(id) => return nexthop::dependants(*id, self, tell),
            Key::Link(name) => return self.touched_by_link(*name, tell),
            Key::LinkField(name, Field::Up | Field::Master) => {
                return self.on_links(|link| link == *name, tell);
            }
            _ => return,
        };
        let is_alike = |key: &Key| match key {
            Key::Route(key) => key.is_ipv4() == address.ip().is_ipv4(),
            _ => false,
        };
        self.routes_like(|route| is_touched_by(route, address), &mut |key| {
            if is_alike(&key) {
                tell(key);
            }
        });
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
