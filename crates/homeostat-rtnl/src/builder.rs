//! Builds a desired state from typed parts, and says why one is refused.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use homeostat_core::{DuplicateKey, Fingerprint};

use crate::address::{self, Address, AddressKey};
use crate::desired::{Declared, DesiredAddress, DesiredState, RouteTemplate};
use crate::key::Key;
use crate::link::desired::{DesiredField, DesiredLink};
use crate::link::model::{BadLink, Link, Settings};
use crate::link::{self, LinkName};
use crate::neighbour::{self, Neighbour, NeighbourKey};
use crate::nexthop::{self, Nexthop, NexthopId};
use crate::object::Object;
use crate::route::packed::{PackedRoute, TemplateCache};
use crate::route::{self, Route, RouteKey};
use crate::rule::{self, Rule, RuleKey};

/// Why a desired state is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesiredError {
    /// A key is declared twice.
    #[error(transparent)]
    Twice(#[from] DuplicateKey),
    /// An object that can never be.
    #[error("`{key}` cannot be")]
    Impossible {
        /// Its key.
        key: Key,
        /// Why.
        #[source]
        why: Impossible,
    },
}

/// A desired state in the making.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    desired: DesiredState,
    templates: HashMap<Route, u32>,
    recent: TemplateCache,
    adopt: BTreeSet<Key>,
}

impl Builder {
    /// Declares an address.
    pub fn address(
        &mut self,
        key: AddressKey,
        address: Address,
    ) -> Result<&mut Self, DesiredError> {
        let impossible = |why| DesiredError::Impossible { key: key.into(), why };
        let address = address::normalize(&key, address).map_err(impossible)?;
        self.desired.addresses.push(DesiredAddress { key, address, may_adopt: false });
        Ok(self)
    }

    /// Declares a route.
    pub fn route(&mut self, key: RouteKey, route: Route) -> Result<&mut Self, DesiredError> {
        let impossible = |why| DesiredError::Impossible { key: key.into(), why };
        let route = route::normalize(&key, route).map_err(impossible)?;
        self.push(&key, route, false);
        Ok(self)
    }

    /// Declares a route that may be taken from anybody. For lists: [`may_adopt`](Self::may_adopt)
    /// remembers key by key.
    pub fn adopting_route(
        &mut self,
        key: RouteKey,
        route: Route,
    ) -> Result<&mut Self, DesiredError> {
        let impossible = |why| DesiredError::Impossible { key: key.into(), why };
        let route = route::normalize(&key, route).map_err(impossible)?;
        self.push(&key, route, true);
        Ok(self)
    }

    fn push(&mut self, key: &RouteKey, route: Route, may_adopt: bool) {
        let template = self.template(route);
        match key.dst().addr() {
            IpAddr::V4(dst) => {
                self.desired.v4.push(PackedRoute {
                    may_adopt,
                    ..PackedRoute::new(key, dst.to_bits(), template)
                });
            }
            IpAddr::V6(dst) => {
                self.desired.v6.push(PackedRoute {
                    may_adopt,
                    ..PackedRoute::new(key, dst.to_bits(), template)
                });
            }
        }
    }

    /// Declares a nexthop.
    pub fn nexthop(&mut self, id: NexthopId, nexthop: Nexthop) -> Result<&mut Self, DesiredError> {
        self.other(Key::Nexthop(id), nexthop::normalize(id, nexthop).map(Object::Nexthop))
    }

    /// Declares a rule. Without a priority the kernel chooses one.
    pub fn rule(&mut self, key: RuleKey, rule: Rule) -> Result<&mut Self, DesiredError> {
        let rule = rule::normalize(&key, rule).map(Object::Rule);
        self.other(Key::Rule(Box::new(key)), rule)
    }

    /// Declares a permanent neighbour, or a proxy entry.
    pub fn neighbour(
        &mut self,
        key: NeighbourKey,
        neighbour: Neighbour,
    ) -> Result<&mut Self, DesiredError> {
        let neighbour = neighbour::normalize(&key, neighbour).map(Object::Neighbour);
        self.other(Key::Neighbour(key), neighbour)
    }

    fn other(
        &mut self,
        key: Key,
        object: Result<Object, Impossible>,
    ) -> Result<&mut Self, DesiredError> {
        let object = match object {
            Ok(object) => object,
            Err(why) => return Err(DesiredError::Impossible { key, why }),
        };
        self.desired.others.push(Declared { key, object, may_adopt: false });
        Ok(self)
    }

    /// Declares a link that is made and owned.
    pub fn link(&mut self, name: LinkName, link: Link) -> Result<&mut Self, DesiredError> {
        let impossible =
            |why| DesiredError::Impossible { key: Key::Link(name), why: Impossible::Link(why) };
        let link = link::model::normalize(name, link).map_err(impossible)?;
        self.desired.links.made.push(DesiredLink { name, link, may_adopt: false });
        Ok(self)
    }

    /// Declares some fields of a link that somebody else makes.
    pub fn configure(&mut self, name: LinkName, set: Settings) -> Result<&mut Self, DesiredError> {
        let impossible =
            |why| DesiredError::Impossible { key: Key::Link(name), why: Impossible::Link(why) };
        link::model::check_settings(name, &set).map_err(impossible)?;
        let fields = set.each().map(|(field, setting)| DesiredField { name, field, setting });
        self.desired.links.fields.extend(fields);
        Ok(self)
    }

    /// Gives standing leave to take a declared key from anybody.
    pub fn may_adopt(&mut self, key: impl Into<Key>) -> &mut Self {
        self.adopt.insert(key.into());
        self
    }

    /// Sorts the objects; refuses a key that is declared twice.
    pub fn build(mut self) -> Result<DesiredState, DesiredError> {
        self.desired.addresses.sort_unstable_by_key(|desired| desired.key);
        self.desired.v4.sort_unstable_by_key(PackedRoute::<u32>::sort_key);
        self.desired.v6.sort_unstable_by_key(PackedRoute::<u128>::sort_key);
        self.desired.others.sort_by(|a, b| a.key.cmp(&b.key));
        self.check_unique()?;
        self.check_links()?;
        self.link_templates_to_addresses();
        self.mark_adopted();
        self.index_templates();
        let DesiredState { addresses, v4, v6, others, templates, .. } = &mut self.desired;
        addresses.shrink_to_fit();
        v4.shrink_to_fit();
        v6.shrink_to_fit();
        others.shrink_to_fit();
        templates.shrink_to_fit();
        Ok(self.desired)
    }

    fn template(&mut self, route: Route) -> u32 {
        let known = &self.desired.templates;
        let is_known =
            |template: u32| known.get(template as usize).is_some_and(|s| s.route == route);
        let mut guess = self.recent.guess(&route);
        if let Some(template) = guess.as_deref().copied().filter(|template| is_known(*template)) {
            return template;
        }
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let template = *self.templates.entry(route.clone()).or_insert(next);
        if template == next {
            let print = Fingerprint::of_object(&route);
            self.desired.templates.push(RouteTemplate {
                route,
                print,
                rests_on: Vec::new(),
                routes: 0..0,
            });
        }
        if let Some(guess) = &mut guess {
            **guess = template;
        }
        template
    }

    fn check_unique(&self) -> Result<(), DuplicateKey> {
        let DesiredState { addresses, v4, v6, others, .. } = &self.desired;
        let address = addresses.array_windows().find(|[a, b]| a.key == b.key);
        let v4 = v4.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let v6 = v6.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let other = others.array_windows().find(|[a, b]| a.key == b.key);
        let other = other.map(|[one, _]| one.key.clone());
        let address = address.map(|[one, _]| Key::from(one.key));
        let route = v4.map(|[one, _]| one.key()).or_else(|| v6.map(|[one, _]| one.key()));
        match address.or_else(|| route.map(Key::from)).or(other) {
            Some(key) => Err(DuplicateKey { key: key.to_string() }),
            None => Ok(()),
        }
    }

    fn check_links(&mut self) -> Result<(), DesiredError> {
        if let Some(key) = self.desired.links.sort() {
            return Err(DuplicateKey { key: key.to_string() }.into());
        }
        match self.desired.links.made_twice() {
            Some(key) => {
                let why = Impossible::Link(BadLink::MadeElsewhere);
                Err(DesiredError::Impossible { key, why })
            }
            None => Ok(()),
        }
    }

    fn link_templates_to_addresses(&mut self) {
        let DesiredState { addresses, templates, .. } = &mut self.desired;
        for RouteTemplate { route, rests_on, .. } in templates {
            let keys = addresses.iter().map(|desired| desired.key);
            *rests_on = keys.filter(|key| route::route_rests_on(route, key)).collect();
        }
    }

    /// Lists the routes of each template, in one sweep over all of them.
    fn index_templates(&mut self) {
        let DesiredState { v4, v6, templates, by_template, .. } = &mut self.desired;
        let of = || {
            v4.iter().map(|packed| packed.template).chain(v6.iter().map(|packed| packed.template))
        };
        let mut counts = vec![0_usize; templates.len()];
        for template in of() {
            if let Some(count) = counts.get_mut(template as usize) {
                *count += 1;
            }
        }
        let mut start = 0;
        for (template, count) in templates.iter_mut().zip(counts) {
            template.routes = start..start;
            start += count;
        }
        *by_template = vec![0; start];
        for (number, template) in (0_u32..).zip(of()) {
            let Some(template) = templates.get_mut(template as usize) else { continue };
            if let Some(place) = by_template.get_mut(template.routes.end) {
                *place = number;
            }
            template.routes.end += 1;
        }
    }

    fn mark_adopted(&mut self) {
        let (adopt, desired) = (&self.adopt, &mut self.desired);
        if adopt.is_empty() {
            return;
        }
        let is_adopted = |key: Key| adopt.contains(&key);
        desired
            .addresses
            .iter_mut()
            .for_each(|desired| desired.may_adopt = is_adopted(desired.key.into()));
        desired
            .v4
            .iter_mut()
            .for_each(|packed| packed.may_adopt |= is_adopted(packed.key().into()));
        desired
            .v6
            .iter_mut()
            .for_each(|packed| packed.may_adopt |= is_adopted(packed.key().into()));
        desired
            .others
            .iter_mut()
            .for_each(|desired| desired.may_adopt = is_adopted(desired.key.clone()));
        let links = desired.links.made.iter_mut();
        links.for_each(|desired| desired.may_adopt = is_adopted(Key::Link(desired.name)));
    }
}

/// Why a desired state can never be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum Impossible {
    #[error("it leads nowhere: give it a gateway, a link or a type such as blackhole")]
    LeadsNowhere,
    #[error("a route of its type goes nowhere, so a gateway or a link has no place in it")]
    GoesNowhere,
    #[error("it has several ways, so a gateway or a link of its own has no place in it")]
    ManyWays,
    #[error("an IPv6 route cannot go via an IPv4 gateway")]
    GatewayFamily,
    #[error("the source address is of another family")]
    SourceFamily,
    #[error("IPv6 routes have no type of service")]
    TosOnIpv6,
    #[error("a weight is a number from 1 to 256")]
    Weight,
    #[error("it would be preferred for longer than it is valid")]
    PreferredBeyondValid,
    #[error("labels are for IPv4 only")]
    LabelOnIpv6,
    #[error("broadcast addresses are for IPv4 only")]
    BroadcastOnIpv6,
    #[error("a nexthop object says where it goes, so nothing else has a place beside it")]
    NexthopAndWay,
    #[error("a nexthop is a way, a hole or a group, with a number above zero")]
    NotANexthop,
    #[error("a nexthop needs a link, unless it is a hole or a group")]
    NexthopWithoutLink,
    #[error("the gateway is of another family")]
    NexthopFamily,
    #[error("the kernel derives the scope of a nexthop, and this is another")]
    NexthopScope,
    #[error("a hole has no gateway and no link")]
    HoleWithWay,
    #[error("a group has members and nothing else")]
    GroupWithWay,
    #[error("a group has each member once, and is none of its own")]
    GroupMember,
    #[error("`from` and `to` are of one family, the rule's")]
    RuleFamily,
    #[error("ports need an IP protocol that has them: tcp, udp, dccp or sctp")]
    PortsWithoutProtocol,
    #[error("ports are from 1 to 65534 in a rule, and go upwards")]
    RulePorts,
    #[error("the two lowest bits of a type of service are not for rules")]
    TosOfRule,
    #[error("only a rule that asks a table can suppress routes")]
    SuppressWithoutTable,
    #[error("a prefix of its family is not that long")]
    SuppressLength,
    #[error("an action that we do not know cannot be declared")]
    RuleAction,
    #[error("a neighbour has a hardware address, and a proxy entry has none")]
    NeighbourMac,
    #[error(transparent)]
    Link(BadLink),
}
