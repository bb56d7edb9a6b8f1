//! The declared links: those that are created, and the fields of those that are only configured. Also what else is
//! declared on a link, and which link has to exist before which. Pure.

use std::collections::BTreeSet;

use crate::address::AddressKey;
use crate::desired::{DesiredState, RouteTemplate};
use crate::key::Key;
use crate::link::LinkName;
use crate::link::model::{Field, Link, Setting};
use crate::nexthop::{self, NexthopId};
use crate::object::Object;
use crate::route::Route;

impl DesiredState {
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
        let fields = self.fields().filter(move |(name, ..)| *name == link);
        fields.map(|(name, field, _)| Key::LinkField(name, field))
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

    /// The declared link without which there is none of this name: itself, or the other end.
    pub(crate) fn maker_of(&self, name: LinkName) -> Option<(LinkName, &Link)> {
        let other_end = || self.links().find(|(_, link)| link.peer_here() == Some(name));
        self.link(name).map(|link| (name, link)).or_else(other_end)
    }

    /// The keys of links without which nothing can be on this one.
    pub(crate) fn needed_for(&self, name: LinkName, need: &mut dyn FnMut(Key)) {
        if let Some((maker, _)) = self.maker_of(name) {
            need(Key::Link(maker));
        }
        self.fields_of(name).for_each(need);
    }

    /// What is declared in two places: a field of a link that is created as well, or a link that is
    /// created as the other end of a pair as well.
    pub(crate) fn link_made_twice(&self) -> Option<Key> {
        let fields = self.fields().map(|(name, field, _)| (name, Key::LinkField(name, field)));
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
                let setting = self.field(*name, *field).filter(|_| *field == Field::Master);
                let master = setting.and_then(Setting::link_name);
                1 + self.link_depth(*name).max(master.map_or(0, |master| self.link_depth(master)))
            }
            _ => 0,
        }
    }

    /// The keys of all that is on some links and is deleted with them.
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
        let refers = |link: &Link| {
            let named = link.references().map(|other| other.name);
            named.chain(link.master).chain(link.kind.primary()).any(is_one)
        };
        let made = self.links().filter(|(_, link)| refers(link));
        made.for_each(|(link, _)| tell(Key::Link(link)));
        for (link, field, setting) in self.fields() {
            if field == Field::Master && setting.link_name() == Some(name) {
                tell(Key::LinkField(link, field));
            }
        }
    }

    fn keys_on<'c>(
        &self,
        links: &LinkSet<'c>,
        carry: fn(&LinkSet<'c>, &Route, &[AddressKey]) -> bool,
        tell: &mut dyn FnMut(Key),
    ) {
        let others = self.others.iter().filter(|declared| match &declared.key {
            Key::Address(key) => (links.is_one)(key.link),
            Key::Nexthop(id) => links.nexthops.contains(id),
            Key::Neighbour(key) => (links.is_one)(key.link),
            _ => false,
        });
        others.for_each(|declared| tell(declared.key.clone()));
        let is_like = |template: &RouteTemplate| carry(links, &template.route, &template.rests_on);
        self.routes_like(is_like, tell);
    }
}

/// Deeper than links can be stacked: a link that is deeper refers to itself in a circle.
const DEEPEST: usize = 32;

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
            || rests_on.iter().any(|key| (self.is_one)(key.link))
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
