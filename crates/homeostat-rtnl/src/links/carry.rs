//! What some links carry, as far as the desired state tells: what goes with them and comes back to them. Pure.

use std::collections::BTreeSet;

use crate::desired::{DesiredState, Shape};
use crate::key::{AddressKey, Key};
use crate::link::LinkName;
use crate::links::desired::{DesiredField, DesiredLink};
use crate::links::field::{Field, Setting};
use crate::links::kinds::LinkKind;
use crate::nexthop::{self, NexthopId};
use crate::route::Route;

/// Some links, with the declared nexthops that go with them.
pub(crate) struct Carriers<'a> {
    is_one: &'a dyn Fn(LinkName) -> bool,
    nexthops: BTreeSet<NexthopId>,
}

impl<'a> Carriers<'a> {
    pub(crate) fn new(desired: &DesiredState, is_one: &'a dyn Fn(LinkName) -> bool) -> Self {
        Carriers { is_one, nexthops: nexthop::lost_with(desired, is_one) }
    }

    /// Whether a route is on one of them: by name, by an address, or by a nexthop.
    fn carry(&self, route: &Route, rests_on: &[AddressKey]) -> bool {
        route.links().any(self.is_one)
            || rests_on.iter().any(|key| (self.is_one)(key.link()))
            || route.nexthop.is_some_and(|id| self.nexthops.contains(&id))
    }

    /// The same, or nothing tells where the route is: its gateway is on a network of somebody else's.
    pub(crate) fn may_carry(&self, route: &Route, rests_on: &[AddressKey]) -> bool {
        let is_anywhere = route.links().next().is_none()
            && route.gateways().next().is_some()
            && rests_on.is_empty();
        is_anywhere || self.carry(route, rests_on)
    }
}

impl DesiredState {
    /// The keys of all that is on some links and goes with them.
    pub(crate) fn on_links(&self, is_one: impl Fn(LinkName) -> bool, tell: &mut dyn FnMut(Key)) {
        let carriers = Carriers::new(self, &is_one);
        self.told_of(&carriers, Carriers::carry, tell);
    }

    /// The keys of all that an event of a link may be about: what is on it or may be, and the links
    /// that refer to it.
    pub(crate) fn touched_by_link(&self, name: LinkName, tell: &mut dyn FnMut(Key)) {
        let is_one = |link: LinkName| link == name;
        let carriers = Carriers::new(self, &is_one);
        self.told_of(&carriers, Carriers::may_carry, tell);
        let made = self.links.made.iter().filter(|desired| desired.refers_to(name));
        made.for_each(|desired| tell(Key::Link(desired.name)));
        let fields = self.links.fields.iter().filter(|desired| desired.refers_to(name));
        fields.for_each(|desired| tell(desired.key()));
    }

    fn told_of<'c>(
        &self,
        carriers: &Carriers<'c>,
        carry: fn(&Carriers<'c>, &Route, &[AddressKey]) -> bool,
        tell: &mut dyn FnMut(Key),
    ) {
        let addresses =
            self.addresses.iter().filter(|desired| (carriers.is_one)(desired.key.link()));
        addresses.for_each(|desired| tell(desired.key.into()));
        let others = self.others.iter().filter(|desired| match &desired.key {
            Key::Nexthop(id) => carriers.nexthops.contains(id),
            Key::Neighbour(key) => (carriers.is_one)(key.link()),
            _ => false,
        });
        others.for_each(|desired| tell(desired.key.clone()));
        let is_like = |shape: &&Shape| carry(carriers, &shape.route, &shape.rests_on);
        let like = self.shapes.iter().filter(is_like);
        like.flat_map(|shape| self.routes_of(shape)).for_each(|key| tell(key.into()));
    }
}

impl DesiredLink {
    /// Whether it stands on a link of this name, belongs to it, or has it for its other end.
    fn refers_to(&self, name: LinkName) -> bool {
        let primary = match &self.link.kind {
            LinkKind::Bond(bond) => bond.primary,
            _ => None,
        };
        let below = self.link.parent.iter().chain(self.peer()).map(|link| link.name);
        below.chain(self.link.master).chain(primary).any(|link| link == name)
    }
}

impl DesiredField {
    fn refers_to(&self, name: LinkName) -> bool {
        let is_named = matches!(&self.setting, Setting::Text(text) if text == name.as_str());
        self.field == Field::Master && is_named
    }
}
