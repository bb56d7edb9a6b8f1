//! How declared objects stand to each other: which link makes which, what refers to a link, a nexthop or an address.
//! All of it is asked for every event and every step, so it is looked up here and never searched for. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::address::AddressKey;
use crate::desired::{Declared, DesiredState, RouteTemplate};
use crate::fdb;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::model::Field;
use crate::net::Net;
use crate::nexthop::NexthopId;
use crate::object::Object;
use crate::route::{Route, is_touched_by, route_rests_on};

#[derive(Clone, Debug, Default)]
pub(crate) struct Relations {
    /// The declared ends of pairs, by the other end.
    pub(crate) makers: BTreeMap<LinkName, LinkName>,
    /// The links that anything declared names.
    named: BTreeSet<LinkName>,
    /// The keys of links, and of masters of links, that refer to a link.
    referring: BTreeMap<LinkName, Vec<Key>>,
    nexthops_on: BTreeMap<LinkName, Vec<NexthopId>>,
    /// The links that have a forwarding entry for a place.
    fdb: BTreeMap<fdb::Place, Vec<LinkName>>,
    ports_with_fdb: BTreeSet<LinkName>,
    /// The groups that a nexthop is in.
    groups_with: BTreeMap<NexthopId, Vec<NexthopId>>,
    templates: TemplateIndex,
}

/// The numbers of templates by what their routes need.
#[derive(Clone, Debug, Default)]
struct TemplateIndex {
    /// By the links that the routes name, and those of the addresses that they rest on.
    by_link: BTreeMap<LinkName, Vec<u32>>,
    by_nexthop: BTreeMap<NexthopId, Vec<u32>>,
    by_src: BTreeMap<IpAddr, Vec<u32>>,
    by_gateway: BTreeMap<IpAddr, Vec<u32>>,
    /// Those whose routes may be on any link.
    anywhere: Vec<u32>,
    /// By the links whose gateway the routes follow.
    by_followed: BTreeMap<LinkName, Vec<u32>>,
    has_mtu: bool,
}

impl Relations {
    /// Also finds out what the templates rest on.
    pub(crate) fn of(desired: &mut DesiredState) -> Self {
        let mut relations = Self::default();
        for declared in &desired.others {
            relations.add(declared);
        }
        // A bridge that changes may change what its ports have there.
        for (name, field, _) in desired.fields().filter(|(_, field, _)| field.is_of_bridge()) {
            if let Some(master) = desired.master(name) {
                relations.refer(&Key::LinkField(name, field), master);
            }
        }
        relations.templates.add_all(&desired.templates);
        for address in desired.others.iter().map_while(|declared| declared.key.address()) {
            for number in relations.templates.near(&address) {
                if let Some(template) = desired.templates.get_mut(number as usize)
                    && route_rests_on(&template.route, &address)
                {
                    template.rests_on.push(address);
                }
            }
        }
        for (number, template) in (0..).zip(&desired.templates) {
            relations.named.extend(template.route.links());
            relations.templates.add_links(number, template);
        }
        relations
    }

    fn add(&mut self, Declared { key, object, .. }: &Declared) {
        match (key, object) {
            (Key::Address(key), _) => _ = self.named.insert(key.link),
            (Key::Neighbour(key), _) => _ = self.named.insert(key.link),
            (Key::Fdb(key), _) => {
                self.named.insert(key.link);
                self.fdb.entry(key.place()).or_default().push(key.link);
                if matches!(key.table, fdb::FdbTable::Bridge { .. }) {
                    self.ports_with_fdb.insert(key.link);
                }
            }
            (Key::Nexthop(id), Object::Nexthop(nexthop)) => {
                if let Some(link) = nexthop.dev {
                    self.named.insert(link);
                    self.nexthops_on.entry(link).or_default().push(*id);
                }
                for member in &nexthop.group {
                    self.groups_with.entry(member.id).or_default().push(*id);
                }
            }
            (Key::Link(name), Object::Link(link)) => {
                let others = link.references().map(|other| other.name);
                let others = others.chain(link.master).chain(link.kind.primary());
                for other in others.collect::<BTreeSet<_>>() {
                    self.refer(key, other);
                }
                self.named.insert(*name);
                self.makers.extend(link.peer_here().map(|peer| (peer, *name)));
            }
            (Key::LinkField(name, field), Object::Setting(configured)) => {
                self.named.insert(*name);
                let other = configured.setting.link_name();
                self.named.extend(other);
                if let Some(master) = other.filter(|_| *field == Field::Master) {
                    self.refer(key, master);
                }
            }
            _ => {}
        }
    }

    fn refer(&mut self, key: &Key, other: LinkName) {
        self.named.insert(other);
        self.referring.entry(other).or_default().push(key.clone());
    }

    /// Whether anything declared may have to do with a link.
    pub(crate) fn concern_link(&self, name: LinkName) -> bool {
        !self.templates.anywhere.is_empty() || self.named.contains(&name)
    }

    /// Whether anything declared names a link.
    pub(crate) fn names_link(&self, name: LinkName) -> bool {
        self.named.contains(&name)
    }

    /// Whether a declared route has an MTU of its own.
    pub(crate) fn have_route_mtu(&self) -> bool {
        self.templates.has_mtu
    }

    /// The declared links, and masters of links, that refer to a link.
    pub(crate) fn referring_to(&self, name: LinkName) -> &[Key] {
        self.referring.get(&name).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn nexthops_on(&self, name: LinkName) -> &[NexthopId] {
        self.nexthops_on.get(&name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The ports that have forwarding entries in their bridge.
    pub(crate) fn ports_with_fdb(&self) -> impl Iterator<Item = LinkName> {
        self.ports_with_fdb.iter().copied()
    }

    /// The declared forwarding entries for a place: a bridge has only one of them.
    pub(crate) fn fdb_at(&self, place: &fdb::Place) -> impl Iterator<Item = Key> {
        let (mac, table) = *place;
        let links = self.fdb.get(place).into_iter().flatten();
        links.map(move |link| Key::from(fdb::FdbKey { link: *link, mac, table }))
    }

    /// The declared groups that a nexthop is in.
    pub(crate) fn groups_with(&self, id: NexthopId) -> &[NexthopId] {
        self.groups_with.get(&id).map(Vec::as_slice).unwrap_or_default()
    }

    /// The templates of routes that are deleted with some links and nexthops: they name one of them, or rest on an
    /// address there.
    pub(crate) fn carried(
        &self,
        links: &BTreeSet<LinkName>,
        nexthops: &BTreeSet<NexthopId>,
    ) -> BTreeSet<u32> {
        let on_links = links.iter().filter_map(|link| self.templates.by_link.get(link));
        let through = nexthops.iter().filter_map(|id| self.templates.by_nexthop.get(id));
        on_links.chain(through).flatten().copied().collect()
    }

    /// Whether declared routes follow the gateway of a link.
    pub(crate) fn follow_gateway_of(&self, link: LinkName) -> bool {
        self.templates.by_followed.contains_key(&link)
    }

    /// The links whose gateways declared routes follow.
    pub(crate) fn followed_links(&self) -> impl Iterator<Item = LinkName> {
        self.templates.by_followed.keys().copied()
    }

    /// The templates of routes that follow the gateway of a link.
    pub(crate) fn following(&self, link: LinkName) -> impl Iterator<Item = u32> {
        self.templates.by_followed.get(&link).into_iter().flatten().copied()
    }

    /// The templates of routes that may be on any link.
    pub(crate) fn anywhere(&self) -> impl Iterator<Item = u32> {
        self.templates.anywhere.iter().copied()
    }

    /// The templates of routes that may be deleted with an address, or become possible with it.
    pub(crate) fn touched_by(
        &self,
        address: &AddressKey,
        desired: &DesiredState,
    ) -> impl Iterator<Item = u32> {
        let mut near = self.templates.near(address);
        near.extend(self.templates.by_link.get(&address.link).into_iter().flatten());
        let is_touched = |route: &Route| is_touched_by(route, address);
        near.into_iter().filter(move |number| {
            let template = desired.templates.get(*number as usize);
            template.is_some_and(|template| is_touched(&template.route))
        })
    }

    /// The templates of routes with this source address.
    pub(crate) fn with_src(&self, src: IpAddr) -> impl Iterator<Item = u32> {
        self.templates.by_src.get(&src).into_iter().flatten().copied()
    }

    /// The templates of routes with a gateway in this network.
    pub(crate) fn with_gateway_in(&self, net: Net) -> impl Iterator<Item = u32> {
        self.templates.by_gateway.range(net.addr()..=net.last()).flat_map(|(_, all)| all).copied()
    }
}

impl TemplateIndex {
    fn add_all(&mut self, templates: &[RouteTemplate]) {
        for (number, RouteTemplate { route, .. }) in (0..).zip(templates) {
            if let Some(id) = route.nexthop {
                self.by_nexthop.entry(id).or_default().push(number);
            }
            if let Some(src) = route.src {
                self.by_src.entry(src).or_default().push(number);
            }
            for gateway in route.gateways().collect::<BTreeSet<_>>() {
                self.by_gateway.entry(gateway).or_default().push(number);
            }
            if let Some(link) = route.rare.gateway_of {
                self.by_followed.entry(link).or_default().push(number);
            }
            self.has_mtu |= route.mtu.is_some();
        }
    }

    /// Once it is known what the template rests on.
    fn add_links(&mut self, number: u32, RouteTemplate { route, rests_on, .. }: &RouteTemplate) {
        let links = route.links().chain(rests_on.iter().map(|address| address.link));
        for link in links.collect::<BTreeSet<_>>() {
            self.by_link.entry(link).or_default().push(number);
        }
        if is_anywhere(route, rests_on) {
            self.anywhere.push(number);
        }
    }

    /// The templates with this source address, or with a gateway in its network.
    fn near(&self, address: &AddressKey) -> BTreeSet<u32> {
        let net = address.net();
        let gateways = self.by_gateway.range(net.addr()..=net.last()).flat_map(|(_, all)| all);
        gateways.chain(self.by_src.get(&address.ip).into_iter().flatten()).copied().collect()
    }
}

/// Whether it is unknown where a route is: its gateway is in a network that is not declared.
pub(crate) fn is_anywhere(route: &Route, rests_on: &[AddressKey]) -> bool {
    route.links().next().is_none() && route.gateways().next().is_some() && rests_on.is_empty()
}
