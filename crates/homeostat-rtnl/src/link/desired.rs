//! The declared links: those that are created, then the fields of those that are only configured. Also what else is
//! declared on a link, and which link has to exist before which. Pure.

use std::collections::BTreeSet;

use crate::address::AddressKey;
use crate::desired::{Declared, DesiredState, RouteTemplate};
use crate::key::Key;
use crate::link::LinkName;
use crate::link::kinds::LinkKind;
use crate::link::model::{Field, Link, LinkRef, Setting};
use crate::nexthop::{self, NexthopId};
use crate::object::Object;
use crate::route::Route;

/// What is declared of links, each list in key order.
#[derive(Clone, Debug, Default)]
pub(crate) struct DesiredLinks {
    pub(crate) made: Vec<DesiredLink>,
    pub(crate) fields: Vec<DesiredField>,
}

/// A link that is made.
#[derive(Clone, Debug)]
pub(crate) struct DesiredLink {
    pub(crate) name: LinkName,
    pub(crate) link: Link,
    pub(crate) may_adopt: bool,
}

/// One field of a link that is only configured.
#[derive(Clone, Debug)]
pub(crate) struct DesiredField {
    pub(crate) name: LinkName,
    pub(crate) field: Field,
    pub(crate) setting: Setting,
}

impl DesiredLink {
    /// The other end, if it is a pair that is declared to be in this namespace whole.
    pub(crate) fn peer_here(&self) -> Option<LinkName> {
        let peer = self.peer()?;
        peer.namespace.is_none().then_some(peer.name)
    }

    /// The other end of a pair.
    pub(crate) fn peer(&self) -> Option<&LinkRef> {
        match &self.link.kind {
            LinkKind::Veth(veth) => Some(&veth.peer),
            _ => None,
        }
    }

    /// The namespaces that it refers to.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        let links = self.link.parent.iter().chain(self.peer());
        links.filter_map(|link| link.namespace.as_deref())
    }
}

impl DesiredField {
    pub(crate) fn key(&self) -> Key {
        Key::LinkField(self.name, self.field)
    }
}

impl DesiredLinks {
    pub(crate) fn len(&self) -> usize {
        self.made.len() + self.fields.len()
    }

    /// The place of a key among the declared links.
    pub(crate) fn place(&self, key: &Key) -> Option<usize> {
        match key {
            Key::Link(name) => self.made.binary_search_by_key(name, |desired| desired.name).ok(),
            Key::LinkField(name, field) => {
                let found = self.fields.binary_search_by_key(&(*name, *field), |desired| {
                    (desired.name, desired.field)
                });
                found.ok().map(|at| self.made.len() + at)
            }
            _ => None,
        }
    }

    /// The declared link of this name.
    pub(crate) fn link(&self, name: LinkName) -> Option<&DesiredLink> {
        self.made
            .binary_search_by_key(&name, |desired| desired.name)
            .ok()
            .and_then(|at| self.made.get(at))
    }

    /// The declared field of a link.
    pub(crate) fn field(&self, name: LinkName, field: Field) -> Option<&DesiredField> {
        let key = |desired: &DesiredField| (desired.name, desired.field);
        let at = self.fields.binary_search_by_key(&(name, field), key).ok()?;
        self.fields.get(at)
    }

    /// The declared MTU of a link, made or only configured.
    pub(crate) fn mtu(&self, name: LinkName) -> Option<u32> {
        let field = || match self.field(name, Field::Mtu)?.setting {
            Setting::Number(mtu) => Some(mtu),
            _ => None,
        };
        self.link(name).and_then(|desired| desired.link.mtu).or_else(field)
    }

    /// The declared link without which there is none of this name: itself, or the other end.
    pub(crate) fn maker_of(&self, name: LinkName) -> Option<&DesiredLink> {
        let other_end = || self.made.iter().find(|desired| desired.peer_here() == Some(name));
        self.link(name).or_else(other_end)
    }

    /// The keys of links without which nothing can be on this one.
    pub(crate) fn needed_for(&self, name: LinkName, need: &mut dyn FnMut(Key)) {
        if let Some(maker) = self.maker_of(name) {
            need(Key::Link(maker.name));
        }
        let fields = self.fields.iter().filter(|desired| desired.name == name);
        fields.for_each(|desired| need(desired.key()));
    }

    /// The namespaces that any of them refers to.
    pub(crate) fn namespaces(&self) -> BTreeSet<&str> {
        self.made.iter().flat_map(DesiredLink::namespaces).collect()
    }

    /// Sorts them; returns a key that is declared twice.
    pub(crate) fn sort(&mut self) -> Option<Key> {
        self.made.sort_by_key(|desired| desired.name);
        self.fields.sort_by_key(|desired| (desired.name, desired.field));
        let made = self.made.array_windows().find(|[a, b]| a.name == b.name);
        let fields = self.fields.array_windows().find(|[a, b]| a.key() == b.key());
        let made = made.map(|[one, _]| Key::Link(one.name));
        made.or_else(|| fields.map(|[one, _]| one.key()))
    }

    /// What has two places in the desired state: a field of a link that is made as well, or a link that is
    /// made as the other end of a pair as well.
    pub(crate) fn made_twice(&self) -> Option<Key> {
        let field = self.fields.iter().find(|desired| self.link(desired.name).is_some());
        let mut ends = self.made.iter().filter_map(DesiredLink::peer_here);
        let end = ends.find(|end| self.link(*end).is_some());
        field.map(DesiredField::key).or(end.map(Key::Link))
    }
}

impl Declared {
    /// The link without which it cannot be.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkName> {
        let link = match (&self.key, &self.object) {
            (Key::Neighbour(key), _) => Some(key.link()),
            (_, Object::Nexthop(nexthop)) => nexthop.dev,
            _ => None,
        };
        link.into_iter()
    }
}

/// Some links, with the declared nexthops that go with them.
pub(crate) struct LinkSet<'a> {
    is_one: &'a dyn Fn(LinkName) -> bool,
    nexthops: BTreeSet<NexthopId>,
}

impl<'a> LinkSet<'a> {
    pub(crate) fn new(desired: &DesiredState, is_one: &'a dyn Fn(LinkName) -> bool) -> Self {
        LinkSet { is_one, nexthops: nexthop::lost_with(desired, is_one) }
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
        let links = LinkSet::new(self, &is_one);
        self.keys_on(&links, LinkSet::carry, tell);
    }

    /// The keys of all that an event of a link may be about: what is on it or may be, and the links
    /// that refer to it.
    pub(crate) fn touched_by_link(&self, name: LinkName, tell: &mut dyn FnMut(Key)) {
        let is_one = |link: LinkName| link == name;
        let links = LinkSet::new(self, &is_one);
        self.keys_on(&links, LinkSet::may_carry, tell);
        let made = self.links.made.iter().filter(|desired| desired.refers_to(name));
        made.for_each(|desired| tell(Key::Link(desired.name)));
        let fields = self.links.fields.iter().filter(|desired| desired.refers_to(name));
        fields.for_each(|desired| tell(desired.key()));
    }

    fn keys_on<'c>(
        &self,
        links: &LinkSet<'c>,
        carry: fn(&LinkSet<'c>, &Route, &[AddressKey]) -> bool,
        tell: &mut dyn FnMut(Key),
    ) {
        let addresses = self.addresses.iter().filter(|desired| (links.is_one)(desired.key.link()));
        addresses.for_each(|desired| tell(desired.key.into()));
        let others = self.others.iter().filter(|desired| match &desired.key {
            Key::Nexthop(id) => links.nexthops.contains(id),
            Key::Neighbour(key) => (links.is_one)(key.link()),
            _ => false,
        });
        others.for_each(|desired| tell(desired.key.clone()));
        let is_like = |template: &&RouteTemplate| carry(links, &template.route, &template.rests_on);
        let like = self.templates.iter().filter(is_like);
        like.flat_map(|template| self.routes_of(template)).for_each(|key| tell(key.into()));
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

/// Deeper than links can be stacked: who is deeper refers to himself in a circle.
const DEEPEST: usize = 32;

/// How many declared links have to be there before the one of this name.
pub(crate) fn depth(desired: &DesiredLinks, name: LinkName) -> usize {
    below(desired, name, DEEPEST)
}

fn below(desired: &DesiredLinks, name: LinkName, left: usize) -> usize {
    let Some(maker) = desired.maker_of(name).filter(|_| left > 0) else { return 0 };
    let parent = maker.link.parent.as_ref().filter(|parent| parent.namespace.is_none());
    let others = parent.map(|parent| parent.name).into_iter().chain(maker.link.master);
    1 + others.map(|other| below(desired, other, left - 1)).max().unwrap_or(0)
}

/// The same for the step of a key; a field comes after its link.
pub(crate) fn depth_of_key(desired: &DesiredLinks, key: &Key) -> usize {
    match key {
        Key::Link(name) => depth(desired, *name),
        Key::LinkField(name, field) => {
            let master = desired
                .fields
                .iter()
                .find(|desired| desired.name == *name && desired.field == *field);
            let master = master.filter(|_| *field == Field::Master).map(|desired| &desired.setting);
            let master = match master {
                Some(Setting::Text(master)) => master.parse().ok(),
                _ => None,
            };
            1 + depth(desired, *name).max(master.map_or(0, |master| depth(desired, master)))
        }
        _ => 0,
    }
}
