//! Builds a desired state from typed parts, and says why one is refused.

use std::collections::HashMap;
use std::net::IpAddr;

use homeostat_core::{DuplicateKey, Fingerprint};
use ipnet::IpNet;

use crate::address::{Address, AddressKey};
use crate::desired::{Declared, DesiredState, RouteTemplate};
use crate::key::Key;
use crate::link::LinkName;
use crate::link::matching::LinkMatch;
use crate::link::model::{Field, Setting};
use crate::object::Object;
use crate::relations::Relations;
use crate::route::packed::{PackedRoute, TemplateCache};
use crate::route::{self, Route, RouteKey};

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
        key: Key,
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
}

impl Builder {
    /// Declares an object of any kind. A rule without a priority gets one from the kernel.
    pub fn add(&mut self, key: Key, object: Object) -> Result<&mut Self, DesiredError> {
        self.declare(key, object, false)
    }

    /// The same for an object that may be taken over from any owner.
    pub fn adopt(&mut self, key: Key, object: Object) -> Result<&mut Self, DesiredError> {
        self.declare(key, object, true)
    }

    fn declare(
        &mut self,
        key: Key,
        object: Object,
        may_adopt: bool,
    ) -> Result<&mut Self, DesiredError> {
        let (key, mut object) = match (key, object) {
            (Key::Route(key), Object::Route(route)) => {
                return self.declare_route(&key, route, may_adopt);
            }
            (Key::Rule(key), object) => (Key::from(key.plain()), object),
            (key, object) => (key, object),
        };
        match object.normalize(&key) {
            Ok(()) => self.desired.others.push(Declared { key, object, may_adopt }),
            Err(why) => return Err(DesiredError::Impossible { key, why }),
        }
        Ok(self)
    }

    /// Declares an address of a link, by the name of the link.
    pub fn address(&mut self, link: LinkName, address: IpNet) -> Result<&mut Self, DesiredError> {
        let (ip, prefix_len, peer) = (address.addr(), address.prefix_len(), None);
        let key = AddressKey { link, ip, prefix_len, peer };
        self.add(Key::Address(key), Object::Address(Address::default()))
    }

    /// Says that a link may be absent: what waits for it counts as converged.
    pub fn optional_link(&mut self, link: LinkName) -> &mut Self {
        self.desired.optional.insert((None, link));
        self
    }

    /// The same for a link in another namespace, by the name that desired states use for that.
    pub fn optional_link_in(&mut self, namespace: impl Into<String>, link: LinkName) -> &mut Self {
        self.desired.optional.insert((Some(namespace.into()), link));
        self
    }

    /// Says what a link is known by that gets this name. It must not be one that is made.
    pub fn match_link(&mut self, name: LinkName, by: LinkMatch) -> Result<&mut Self, DesiredError> {
        self.desired.matches.insert(name, by);
        let setting = Setting::Text(name.to_string());
        self.add(Key::LinkField(name, Field::Name), Object::Setting(setting.into()))
    }

    pub fn route(&mut self, key: RouteKey, route: Route) -> Result<&mut Self, DesiredError> {
        self.declare_route(&key, route, false)
    }

    /// Declares a route that may be taken over from any owner.
    pub fn adopting_route(
        &mut self,
        key: RouteKey,
        route: Route,
    ) -> Result<&mut Self, DesiredError> {
        self.declare_route(&key, route, true)
    }

    fn declare_route(
        &mut self,
        key: &RouteKey,
        mut route: Route,
        may_adopt: bool,
    ) -> Result<&mut Self, DesiredError> {
        if let Err(why) = route::normalize(key, &mut route) {
            return Err(DesiredError::Impossible { key: Key::Route(*key), why });
        }
        let template = self.template(route);
        let DesiredState { v4, v6, .. } = &mut self.desired;
        match key.dst.addr() {
            IpAddr::V4(dst) => v4.push(PackedRoute::new(key, dst.to_bits(), template, may_adopt)),
            IpAddr::V6(dst) => v6.push(PackedRoute::new(key, dst.to_bits(), template, may_adopt)),
        }
        Ok(self)
    }

    /// Sorts the objects; refuses a key that is declared twice.
    pub fn build(mut self) -> Result<DesiredState, DesiredError> {
        let DesiredState { others, v4, v6, templates, .. } = &mut self.desired;
        PackedRoute::<u32>::sort(v4);
        PackedRoute::<u128>::sort(v6);
        others.sort_by(|a, b| a.key.cmp(&b.key));
        others.shrink_to_fit();
        v4.shrink_to_fit();
        v6.shrink_to_fit();
        templates.shrink_to_fit();
        self.desired.address_count = self.desired.addresses().count();
        self.check_unique()?;
        if let Some(key) = self.desired.link_made_twice() {
            return Err(DesiredError::Impossible { key, why: Impossible::MadeElsewhere });
        }
        self.index_templates();
        self.desired.relations = Relations::of(&mut self.desired);
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
        let DesiredState { others, v4, v6, .. } = &self.desired;
        let other = others.array_windows().find(|[a, b]| a.key == b.key);
        let v4 = v4.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let v6 = v6.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let route = v4.map(|[one, _]| one.key()).or_else(|| v6.map(|[one, _]| one.key()));
        let other = other.map(|[one, _]| one.key.to_string());
        match other.or_else(|| route.map(|key| key.to_string())) {
            Some(key) => Err(DuplicateKey::new(key)),
            None => Ok(()),
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
}

/// Why a desired state can never be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's message is its documentation")]
pub enum Impossible {
    #[error("it has no nexthop: give it a gateway, a link or a type such as blackhole")]
    NoNexthop,
    #[error("a route of its type goes nowhere, so a gateway or a link has no place in it")]
    GoesNowhere,
    #[error(
        "it has several ways, so a gateway, a link or an encapsulation of its own has no place in it"
    )]
    ManyWays,
    #[error("an IPv6 route cannot go via an IPv4 gateway")]
    GatewayFamily,
    #[error("the source address is of another family")]
    SourceFamily,
    #[error(
        "only IPv6 routes have a preference: a metric says which of several IPv4 routes is taken"
    )]
    PrefOnIpv4,
    #[error("a route that follows the gateway of a link has no way of its own")]
    GatewayOfAndWay,
    #[error("only IPv6 routes expire")]
    ExpiresOnIpv4,
    #[error("a route expires in a second to 248 days")]
    Expires,
    #[error("the name of a way to avoid congestion has 1 to 15 characters")]
    CongestionControl,
    #[error(
        "a route gets 1 to 30 labels, each below 1048576 and none of them 3, which stands for no label"
    )]
    MplsLabels,
    #[error("a route gets 1 to 126 segments")]
    Segments,
    #[error("segments are added to IPv6 packets only: `inline` is for IPv6 routes")]
    InlineOnIpv4,
    #[error("an encapsulation that we do not know cannot be declared")]
    OtherEncap,
    #[error("IPv6 routes have no type of service")]
    TosOnIpv6,
    #[error("a weight is a number from 1 to 256")]
    Weight,
    #[error("it would be preferred for longer than it is valid")]
    PreferredBeyondValid,
    #[error("an address that lives for no time is gone already")]
    NoLifetime,
    #[error(
        "an IPv4 address that lives for ever is preferred for ever: give it a lifetime, too, or prefer it for 0s"
    )]
    NeverDeprecated,
    #[error(
        "an IPv6 route cannot have the same way twice: give one of them the sum of the weights"
    )]
    EqualWays,
    #[error("labels are for IPv4 only")]
    LabelOnIpv6,
    #[error("broadcast addresses are for IPv4 only")]
    BroadcastOnIpv6,
    #[error(
        "a nexthop object is for unicast routes, which then have no gateway, link, encapsulation or hops of their own"
    )]
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
    #[error("a DSCP is a number from 0 to 63")]
    Dscp,
    #[error("a DSCP is a part of the type of service: declare one of the two")]
    DscpAndTos,
    #[error("a rule for what does not match says what that is")]
    NotOfNothing,
    #[error("the first user id of a range is not above the last")]
    UidRange,
    #[error("a rule goes to a later one: to a priority above its own")]
    GotoBackwards,
    #[error("an action that we do not know cannot be declared")]
    RuleAction,
    #[error("a neighbour has a hardware address, and a proxy entry has none")]
    NeighbourMac,
    #[error("{0}")]
    Fdb(&'static str),
    #[error("its key is that of another kind of object")]
    OtherKind,
    #[error("a link of kind `{0}` cannot be made")]
    Unmakable(String),
    #[error("a link of its kind needs a parent")]
    NoParent,
    #[error("a link of its kind stands on no other")]
    NeedlessParent,
    #[error("a link of its kind has no hardware address of its own")]
    NoMac,
    #[error("its hardware address is that of a group or all zero")]
    UnusableMac,
    #[error("an MTU is at least 1")]
    Mtu,
    #[error("it refers to itself")]
    Itself,
    #[error(
        "the alias has more than 200 bytes, a control character or our mark `homeostat:` in it"
    )]
    Alias,
    #[error("{0}")]
    Options(&'static str),
    #[error("the value of `{0}` is not one that a port of a bridge can have")]
    PortOption(&'static str),
    #[error("VLAN ids are from 1 to 4094, and only a single id can be the pvid")]
    VlanId,
    #[error("a VLAN id is in the list twice")]
    VlanTwice,
    #[error("two VLANs are the pvid: frames without a tag are of one VLAN")]
    TwoPvids,
    #[error("another entry creates it: declare its fields there")]
    MadeElsewhere,
}
