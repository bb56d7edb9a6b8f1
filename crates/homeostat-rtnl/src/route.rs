//! Routes: key, managed part, and when what is seen agrees with what is declared. Pure.

pub(crate) mod encap;
pub(crate) mod gateways;
#[cfg(feature = "document")]
pub(crate) mod line;
#[cfg(feature = "document")]
pub(crate) mod list;
pub(crate) mod message;
pub(crate) mod observe;
pub(crate) mod packed;
pub(crate) mod rare;
#[cfg(feature = "document")]
pub(crate) mod section;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use homeostat_netlink::uapi::{
    RTN_ANYCAST, RTN_BLACKHOLE, RTN_BROADCAST, RTN_LOCAL, RTN_MULTICAST, RTN_PROHIBIT, RTN_THROW,
    RTN_UNICAST, RTN_UNREACHABLE,
};
use serde::{Deserialize, Serialize};

use crate::address::AddressKey;
use crate::builder::Impossible;
use crate::link::LinkName;
use crate::net::Net;
use crate::nexthop::NexthopId;
use crate::number::{Metric, Scope, Table, Tos, named_number, serde_as_text};
use crate::object::agrees;
use crate::route::encap::Encap;
use crate::route::rare::{Rare, RareAttributes};

/// The managed part of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// What happens to its packets.
    #[serde(rename = "type")]
    pub kind: RouteKind,
    /// The gateway; an IPv4 route may have an IPv6 one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
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
    /// What few routes have.
    #[serde(flatten)]
    pub rare: Rare,
}

/// One way of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hop {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<LinkName>,
    /// Its share of the traffic, from 1 to 256.
    pub weight: u16,
    /// Whether the gateway counts as reachable on the link whatever its address is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onlink: Option<bool>,
    /// What its packets are wrapped into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encap: Option<Encap>,
}

/// What happens to the packets of a route, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteKind(pub u8);

impl RouteKind {
    /// They are sent on.
    pub const UNICAST: Self = RouteKind(RTN_UNICAST);
    /// They vanish.
    pub const BLACKHOLE: Self = RouteKind(RTN_BLACKHOLE);
    /// They are refused: the host is unreachable.
    pub const UNREACHABLE: Self = RouteKind(RTN_UNREACHABLE);
    /// They are refused: it is forbidden.
    pub const PROHIBIT: Self = RouteKind(RTN_PROHIBIT);
    /// The next rule decides.
    pub const THROW: Self = RouteKind(RTN_THROW);

    /// Whether its packets go to a nexthop or to this host.
    #[must_use]
    pub fn accepts_nexthop(self) -> bool {
        !matches!(self, Self::BLACKHOLE | Self::UNREACHABLE | Self::PROHIBIT | Self::THROW)
    }
}

impl Default for RouteKind {
    fn default() -> Self {
        RouteKind::UNICAST
    }
}

pub(crate) const ROUTE_KINDS: [(&str, u8); 9] = [
    ("unicast", RTN_UNICAST),
    ("local", RTN_LOCAL),
    ("broadcast", RTN_BROADCAST),
    ("anycast", RTN_ANYCAST),
    ("multicast", RTN_MULTICAST),
    ("blackhole", RTN_BLACKHOLE),
    ("unreachable", RTN_UNREACHABLE),
    ("prohibit", RTN_PROHIBIT),
    ("throw", RTN_THROW),
];

named_number!(RouteKind(u8), ROUTE_KINDS, 0);
serde_as_text!(RouteKind);

impl Route {
    /// A route through a gateway.
    #[must_use]
    pub fn via(gateway: IpAddr) -> Self {
        Route { via: Some(gateway), ..Route::default() }
    }

    /// A route through the gateway that a lease or a router advertisement has brought on a link, whichever that is.
    #[must_use]
    pub fn gateway_of(link: LinkName) -> Self {
        let rare = RareAttributes { gateway_of: Some(link), ..RareAttributes::default() };
        Route { rare: rare.into(), ..Route::default() }
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

    /// A route of a type, without a nexthop.
    #[must_use]
    pub fn of_kind(kind: RouteKind) -> Self {
        Route { kind, ..Route::default() }
    }

    /// A route with several ways.
    #[must_use]
    pub fn multipath(hops: Vec<Hop>) -> Self {
        Route { hops, ..Route::default() }
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = LinkName> {
        self.dev.into_iter().chain(self.hops.iter().filter_map(|hop| hop.dev))
    }

    /// The gateways that it names.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.via.into_iter().chain(self.hops.iter().filter_map(|hop| hop.via))
    }
}

/// Brings a declared route to the form in which it is compared.
pub(crate) fn normalize(key: &RouteKey, desired: &mut Route) -> Result<(), Impossible> {
    follow(desired)?;
    check_way(desired)?;
    collapse(desired);
    let is_v6 = !key.is_ipv4();
    if is_v6 && desired.gateways().any(|gateway| gateway.is_ipv4()) {
        return Err(Impossible::GatewayFamily);
    }
    if desired.src.is_some_and(|src| src.is_ipv6() != is_v6) {
        return Err(Impossible::SourceFamily);
    }
    if is_v6 && key.tos.0 != 0 {
        return Err(Impossible::TosOnIpv6);
    }
    if is_v6 && has_equal_ways(&desired.hops) {
        return Err(Impossible::EqualWays);
    }
    if is_v6 {
        desired.scope = None;
    }
    desired.rare.check(is_v6)?;
    desired
        .hops
        .iter()
        .filter_map(|hop| hop.encap.as_ref())
        .try_for_each(|encap| encap.check(is_v6))
}

/// A route that follows the gateway of a link is on that link.
fn follow(desired: &mut Route) -> Result<(), Impossible> {
    let Some(link) = desired.rare.gateway_of else { return Ok(()) };
    let is_elsewhere = desired.dev.is_some_and(|dev| dev != link);
    if is_elsewhere
        || desired.via.is_some()
        || !desired.hops.is_empty()
        || desired.nexthop.is_some()
    {
        return Err(Impossible::GatewayOfAndWay);
    }
    desired.dev = Some(link);
    Ok(())
}

fn check_way(desired: &Route) -> Result<(), Impossible> {
    let has_way = desired.via.is_some() || desired.dev.is_some();
    let has_encap = desired.rare.encap.is_some();
    if desired.nexthop.is_some() {
        let stands_alone =
            !has_way && !has_encap && desired.hops.is_empty() && desired.onlink.is_none();
        let has_nexthop = desired.kind == RouteKind::UNICAST;
        return (stands_alone && has_nexthop).then_some(()).ok_or(Impossible::NexthopAndWay);
    }
    let weighs = |hop: &Hop| (1..=256).contains(&hop.weight);
    match (desired.kind.accepts_nexthop(), has_way, !desired.hops.is_empty()) {
        (false, false, false) if !has_encap => Ok(()),
        (true, true, false) => Ok(()),
        (true, false, true) if has_encap => Err(Impossible::ManyWays),
        (true, false, true) if desired.hops.iter().all(weighs) => Ok(()),
        (true, false, true) => Err(Impossible::Weight),
        (true, false, false) => Err(Impossible::NoNexthop),
        (true, true, true) => Err(Impossible::ManyWays),
        (false, ..) => Err(Impossible::GoesNowhere),
    }
}

/// The kernel keeps a single way as if it had never been one of several.
fn collapse(desired: &mut Route) {
    if desired.hops.len() == 1
        && let Some(only) = desired.hops.pop()
    {
        (desired.via, desired.dev) = (only.via, only.dev);
        desired.onlink = desired.onlink.or(only.onlink);
        if only.encap.is_some() {
            desired.rare.edit().encap = only.encap;
        }
    }
    desired.hops.sort();
}

/// Quirk `v6-ways-differ` (Linux 6.18): `ip -6 route add 2001:db8:1::/48 nexthop via 2001:db8::9 nexthop via 2001:db8::9`
/// is refused because the route exists. IPv4 routes may have the same way twice.
pub(crate) fn has_equal_ways(hops: &[Hop]) -> bool {
    let mut ways = BTreeSet::new();
    !hops.iter().all(|hop| ways.insert((hop.via, hop.dev)))
}

/// Whether a route is as declared.
pub(crate) fn route_agrees(desired: &Route, seen: &Route) -> bool {
    desired.kind == seen.kind
        && (!desired.kind.accepts_nexthop() || way_agrees(desired, seen))
        && agrees(desired.src.as_ref(), seen.src.as_ref())
        && agrees(desired.mtu.as_ref(), seen.mtu.as_ref())
        && agrees(desired.scope.as_ref(), seen.scope.as_ref())
        && desired.rare.agree(&seen.rare)
}

/// A gateway and an encapsulation are always declared: a route without one leads somewhere else than a route with one.
fn way_agrees(desired: &Route, seen: &Route) -> bool {
    desired.nexthop == seen.nexthop
        && desired.via == seen.via
        && desired.rare.encap == seen.rare.encap
        && desired.rare.gateway_of == seen.rare.gateway_of
        && agrees(desired.dev.as_ref(), seen.dev.as_ref())
        && agrees(desired.onlink.as_ref(), seen.onlink.as_ref())
        && hops_agree(&desired.hops, &seen.hops)
}

/// The kernel may list ways in another order.
fn hops_agree(desired: &[Hop], seen: &[Hop]) -> bool {
    if desired.len() != seen.len() {
        return false;
    }
    let mut left: Vec<&Hop> = seen.iter().collect();
    desired.iter().all(|hop| match left.iter().position(|seen| hop_agrees(hop, seen)) {
        Some(at) => {
            left.swap_remove(at);
            true
        }
        None => false,
    })
}

fn hop_agrees(desired: &Hop, seen: &Hop) -> bool {
    desired.via == seen.via
        && desired.weight == seen.weight
        && desired.encap == seen.encap
        && agrees(desired.dev.as_ref(), seen.dev.as_ref())
        && agrees(desired.onlink.as_ref(), seen.onlink.as_ref())
}

/// Whether a declared address makes a route possible: its source, or the network of its gateway.
pub(crate) fn route_rests_on(route: &Route, address: &AddressKey) -> bool {
    let is_here = route.links().next().is_none() || route.links().any(|l| l == address.link);
    let reaches = |gateway: IpAddr| address.net().contains(gateway);
    route.src == Some(address.ip) || is_here && route.gateways().any(reaches)
}

/// Whether a route may go with an address, or become possible with it: by its source, by the network
/// of its gateway, or by the link, which loses its IPv4 routes with its last IPv4 address.
pub(crate) fn is_touched_by(route: &Route, address: &AddressKey) -> bool {
    route_rests_on(route, address) || route.links().any(|link| link == address.link)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RouteKey {
    pub dst: Net,
    pub table: Table,
    /// Never 0 for IPv6: there 0 stands for the kernel's default.
    pub metric: Metric,
    pub tos: Tos,
}

impl RouteKey {
    /// The route to a network in the main table, with the metric that the kernel gives by itself.
    #[must_use]
    pub fn new(dst: Net) -> Self {
        let metric = default_metric(dst.addr());
        RouteKey { dst, table: Table::MAIN, metric, tos: Tos::default() }
    }

    /// The same in another table.
    #[must_use]
    pub fn in_table(mut self, table: Table) -> Self {
        self.table = table;
        self
    }

    /// The same with another metric.
    ///
    /// Quirk `v6-metric-1024` (Linux 6.18): an IPv6 route sent with the metric 0, or without one,
    /// reads back as 1024, so that is what 0 means there.
    #[must_use]
    pub fn with_metric(mut self, metric: Metric) -> Self {
        self.metric = if metric.0 == 0 { default_metric(self.dst.addr()) } else { metric };
        self
    }

    /// The same for packets with this type of service.
    #[must_use]
    pub fn with_tos(mut self, tos: Tos) -> Self {
        self.tos = tos;
        self
    }

    pub(crate) fn is_ipv4(&self) -> bool {
        self.dst.addr().is_ipv4()
    }
}

fn default_metric(addr: IpAddr) -> Metric {
    Metric(if addr.is_ipv4() { 0 } else { 1024 })
}

impl Ord for RouteKey {
    /// Close to the order of a dump: families one after the other, then tables.
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |key: &Self| (!key.is_ipv4(), key.table, key.dst, key.tos, key.metric);
        place(self).cmp(&place(other))
    }
}

impl PartialOrd for RouteKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {}", self.dst)?;
        if self.table != Table::MAIN {
            write!(f, " table {}", self.table)?;
        }
        if self.metric != default_metric(self.dst.addr()) {
            write!(f, " metric {}", self.metric.0)?;
        }
        if self.tos != Tos::default() {
            write!(f, " tos {}", self.tos.0)?;
        }
        Ok(())
    }
}
