//! The managed part of objects, and of addresses and routes in full. In a wish, what is not declared agrees with anything.

use std::net::{IpAddr, Ipv4Addr};

use homeostat_netlink::uapi::{
    RTN_ANYCAST, RTN_BLACKHOLE, RTN_BROADCAST, RTN_LOCAL, RTN_MULTICAST, RTN_PROHIBIT, RTN_THROW,
    RTN_UNICAST, RTN_UNREACHABLE,
};
use serde::{Deserialize, Serialize};

use crate::link::LinkName;
use crate::links::field::Configured;
use crate::links::model::Link;
use crate::neighbour::Neighbour;
use crate::nexthop::{Nexthop, NexthopId};
use crate::number::Scope;
use crate::rule::Rule;

/// The managed part of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Object {
    /// Of a route.
    Route(Route),
    /// Of a nexthop.
    Nexthop(Nexthop),
    /// Of a rule.
    Rule(Rule),
    /// Of a neighbour.
    Neighbour(Neighbour),
    /// Of a link.
    Link(Box<Link>),
    /// Of an address.
    Address(Address),
    /// Of a field of a link.
    Setting(Configured),
}

/// The managed part of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// How far it is valid. The kernel derives it for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// How long it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<Lifetime>,
    /// How long it is used for new connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<Lifetime>,
    /// Its old-style interface name; IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// The address of everybody in its network; IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Ipv4Addr>,
    /// Whether the kernel is kept from making a route for its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noprefixroute: Option<bool>,
}

/// An address's label: a link's name, often with a colon and a number behind it.
pub type Label = String;

/// How long something lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// It does not end.
    Forever,
    /// So many seconds from the moment that it is written.
    Seconds(u32),
}

impl Lifetime {
    pub(crate) fn from_kernel(seconds: u32) -> Self {
        if seconds == u32::MAX { Lifetime::Forever } else { Lifetime::Seconds(seconds) }
    }

    pub(crate) fn to_kernel(self) -> u32 {
        match self {
            Lifetime::Forever => u32::MAX,
            Lifetime::Seconds(seconds) => seconds,
        }
    }
}

/// The managed part of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// What happens to its packets.
    #[serde(rename = "type")]
    pub kind: RouteKind,
    /// The gateway; an IPv4 route may have an IPv6 one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<LinkName>,
    /// Whether the gateway counts as reachable on the link whatever its address is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onlink: Option<bool>,
    /// The ways, where there are more than one; in place of `via` and `dev`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
    /// The nexthop object; in place of all of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nexthop: Option<NexthopId>,
    /// The address that our own packets get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// The largest packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// How far the destination is; IPv4 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// One way of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hop {
    /// The gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<LinkName>,
    /// Its share of the traffic, from 1 to 256.
    pub weight: u16,
    /// Whether the gateway counts as reachable on the link whatever its address is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onlink: Option<bool>,
}

/// What happens to the packets of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// They are sent on.
    #[default]
    Unicast,
    /// They are for us.
    Local,
    /// They are for everybody on the link.
    Broadcast,
    /// They are for the nearest.
    Anycast,
    /// They are for a group.
    Multicast,
    /// They vanish.
    Blackhole,
    /// They are refused: the host is unreachable.
    Unreachable,
    /// They are refused: it is forbidden.
    Prohibit,
    /// The next rule decides.
    Throw,
    /// Something that the kernel knows and we do not.
    Other(u8),
}

const KINDS: [(RouteKind, u8); 9] = [
    (RouteKind::Unicast, RTN_UNICAST),
    (RouteKind::Local, RTN_LOCAL),
    (RouteKind::Broadcast, RTN_BROADCAST),
    (RouteKind::Anycast, RTN_ANYCAST),
    (RouteKind::Multicast, RTN_MULTICAST),
    (RouteKind::Blackhole, RTN_BLACKHOLE),
    (RouteKind::Unreachable, RTN_UNREACHABLE),
    (RouteKind::Prohibit, RTN_PROHIBIT),
    (RouteKind::Throw, RTN_THROW),
];

impl RouteKind {
    pub(crate) fn from_kernel(number: u8) -> Self {
        let known = KINDS.iter().find(|(_, known)| *known == number);
        known.map_or(RouteKind::Other(number), |(kind, _)| *kind)
    }

    pub(crate) fn to_kernel(self) -> u8 {
        match self {
            RouteKind::Other(number) => number,
            known => KINDS.iter().find(|(kind, _)| *kind == known).map_or(0, |(_, number)| *number),
        }
    }

    /// Whether its packets go anywhere.
    #[must_use]
    pub fn leads_on(self) -> bool {
        use RouteKind::{Blackhole, Prohibit, Throw, Unreachable};
        !matches!(self, Blackhole | Unreachable | Prohibit | Throw)
    }
}

impl Route {
    /// A route through a gateway.
    #[must_use]
    pub fn via(gateway: IpAddr) -> Self {
        Route { via: Some(gateway), ..Route::default() }
    }

    /// A route to what is directly on a link.
    #[must_use]
    pub fn dev(link: LinkName) -> Self {
        Route { dev: Some(link), ..Route::default() }
    }

    /// A route through a nexthop object.
    #[must_use]
    pub fn through(nexthop: NexthopId) -> Self {
        Route { nexthop: Some(nexthop), ..Route::default() }
    }

    /// A route that leads nowhere.
    #[must_use]
    pub fn of_kind(kind: RouteKind) -> Self {
        Route { kind, ..Route::default() }
    }

    /// A route with several ways.
    #[must_use]
    pub fn multipath(hops: Vec<Hop>) -> Self {
        Route { hops, ..Route::default() }
    }

    /// The links that it names.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkName> {
        self.dev.into_iter().chain(self.hops.iter().filter_map(|hop| hop.dev))
    }

    /// The gateways that it names.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.via.into_iter().chain(self.hops.iter().filter_map(|hop| hop.via))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::neighbour::Mac;
    use crate::nexthop::Member;
    use crate::number::Table;
    use crate::rule::RuleAction;

    #[test]
    fn what_is_recorded_of_an_object_reads_back_as_the_same_kind() {
        let member = Member { id: NexthopId(7), weight: 256 };
        let (link, gateway) = (LinkName::new("va").unwrap(), IpAddr::from([10, 0, 0, 2]));
        let rule = Rule { suppress_prefixlength: Some(0), ..Rule::table(Table(1000)) };
        for object in [
            Object::Address(Address::default()),
            Object::Address(Address { scope: Some(Scope::LINK), ..Address::default() }),
            Object::Route(Route::default()),
            Object::Route(Route::through(NexthopId(7))),
            Object::Nexthop(Nexthop::default()),
            Object::Nexthop(Nexthop { scope: Some(Scope::LINK), ..Nexthop::via(gateway, link) }),
            Object::Nexthop(Nexthop::blackhole(Family::V6)),
            Object::Nexthop(Nexthop::group(vec![member])),
            Object::Rule(rule),
            Object::Rule(Rule::of(RuleAction::L3mdev)),
            Object::Rule(Rule::of(RuleAction::Other(3))),
            Object::Neighbour(Neighbour::at(Mac([2, 0, 0, 0, 0, 9]))),
            Object::Neighbour(Neighbour::proxy()),
        ] {
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<Object>(&text).unwrap(), object, "{text}");
        }
    }
}
