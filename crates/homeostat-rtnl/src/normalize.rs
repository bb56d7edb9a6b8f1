//! What a wish means to the kernel, and when what is seen agrees with it. Pure.

use std::net::IpAddr;

use crate::key::{AddressKey, RouteKey};
use crate::links::normalize::BadLink;
use crate::model::{Address, Hop, Lifetime, Object, Route, RouteKind};
use crate::nexthop;

/// Why a wish can never be.
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
    #[error("an action that we do not know cannot be wished")]
    RuleAction,
    #[error("a neighbour has a hardware address, and a proxy entry has none")]
    NeighbourMac,
    #[error(transparent)]
    Link(BadLink),
}

/// Brings a wished address to the form in which it is compared.
pub(crate) fn address(key: &AddressKey, mut wish: Address) -> Result<Address, Impossible> {
    let seconds = |life: Option<Lifetime>| life.unwrap_or(Lifetime::Forever).to_kernel();
    if seconds(wish.preferred) > seconds(wish.valid) && wish.preferred.is_some() {
        return Err(Impossible::PreferredBeyondValid);
    }
    // An address that ends and says no more is preferred until then.
    wish.preferred = wish.preferred.or(wish.valid);
    if key.ip().is_ipv6() {
        if wish.label.is_some() {
            return Err(Impossible::LabelOnIpv6);
        }
        if wish.broadcast.is_some() {
            return Err(Impossible::BroadcastOnIpv6);
        }
        wish.scope = None;
    }
    Ok(wish)
}

/// Brings a wished route to the form in which it is compared.
pub(crate) fn route(key: &RouteKey, mut wish: Route) -> Result<Route, Impossible> {
    check_way(&wish)?;
    collapse(&mut wish);
    let is_v6 = !key.is_ipv4();
    if is_v6 && wish.gateways().any(|gateway| gateway.is_ipv4()) {
        return Err(Impossible::GatewayFamily);
    }
    if wish.src.is_some_and(|src| src.is_ipv6() != is_v6) {
        return Err(Impossible::SourceFamily);
    }
    if is_v6 && key.tos().0 != 0 {
        return Err(Impossible::TosOnIpv6);
    }
    if is_v6 {
        wish.scope = None;
    }
    Ok(wish)
}

fn check_way(wish: &Route) -> Result<(), Impossible> {
    let has_way = wish.via.is_some() || wish.dev.is_some();
    if wish.nexthop.is_some() {
        let stands_alone = !has_way && wish.hops.is_empty() && wish.onlink.is_none();
        let leads_on = wish.kind == RouteKind::Unicast;
        return (stands_alone && leads_on).then_some(()).ok_or(Impossible::NexthopAndWay);
    }
    let weighs = |hop: &Hop| (1..=256).contains(&hop.weight);
    match (wish.kind.leads_on(), has_way, !wish.hops.is_empty()) {
        (false, false, false) | (true, true, false) => Ok(()),
        (true, false, true) if wish.hops.iter().all(weighs) => Ok(()),
        (true, false, true) => Err(Impossible::Weight),
        (true, false, false) => Err(Impossible::LeadsNowhere),
        (true, true, true) => Err(Impossible::ManyWays),
        (false, ..) => Err(Impossible::GoesNowhere),
    }
}

/// The kernel keeps a single way as if it had never been one of several.
fn collapse(wish: &mut Route) {
    if let [only] = wish.hops.as_slice() {
        (wish.via, wish.dev) = (only.via, only.dev);
        wish.onlink = wish.onlink.or(only.onlink);
        wish.hops.clear();
    }
    wish.hops.sort();
}

/// Whether a declared attribute is as wished.
fn agrees<T: PartialEq>(wish: Option<&T>, seen: Option<&T>) -> bool {
    wish.is_none() || wish == seen
}

/// Whether an address is as wished.
pub(crate) fn address_agrees(wish: &Address, seen: &Address) -> bool {
    lifetime_agrees(wish.valid, seen.valid)
        && lifetime_agrees(wish.preferred, seen.preferred)
        && is_fixed_alike(wish, seen)
}

/// Whether the attributes are as wished that IPv4 addresses keep as long as they are there.
///
/// Quirk `v4-address-fixed-attributes` (Linux 6.18): `ip address change` sets lifetimes and the
/// protocol of an IPv4 address, and silently leaves scope, label, broadcast and noprefixroute as they
/// were.
pub(crate) fn is_fixed_alike(wish: &Address, seen: &Address) -> bool {
    agrees(wish.scope.as_ref(), seen.scope.as_ref())
        && agrees(wish.label.as_ref(), seen.label.as_ref())
        && agrees(wish.broadcast.as_ref(), seen.broadcast.as_ref())
        && agrees(wish.noprefixroute.as_ref(), seen.noprefixroute.as_ref())
}

/// A lifetime runs down by itself: one that has not grown is as wished.
fn lifetime_agrees(wish: Option<Lifetime>, seen: Option<Lifetime>) -> bool {
    match (wish, seen) {
        (None, _) => true,
        (Some(Lifetime::Seconds(wish)), Some(Lifetime::Seconds(seen))) => seen <= wish,
        (wish, seen) => wish == seen,
    }
}

/// Whether a route is as wished.
pub(crate) fn route_agrees(wish: &Route, seen: &Route) -> bool {
    wish.kind == seen.kind
        && (!wish.kind.leads_on() || way_agrees(wish, seen))
        && agrees(wish.src.as_ref(), seen.src.as_ref())
        && agrees(wish.mtu.as_ref(), seen.mtu.as_ref())
        && agrees(wish.scope.as_ref(), seen.scope.as_ref())
}

/// Whether a nexthop, rule or neighbour is as wished.
pub(crate) fn other_agrees(wish: &Object, seen: &Object) -> bool {
    match (wish, seen) {
        (Object::Nexthop(wish), Object::Nexthop(seen)) => nexthop::agrees(wish, seen),
        (wish, seen) => wish == seen,
    }
}

/// A gateway is always declared: a route without one leads somewhere else than a route with one.
fn way_agrees(wish: &Route, seen: &Route) -> bool {
    wish.nexthop == seen.nexthop
        && wish.via == seen.via
        && agrees(wish.dev.as_ref(), seen.dev.as_ref())
        && agrees(wish.onlink.as_ref(), seen.onlink.as_ref())
        && hops_agree(&wish.hops, &seen.hops)
}

/// The kernel may list ways in another order.
fn hops_agree(wish: &[Hop], seen: &[Hop]) -> bool {
    if wish.len() != seen.len() {
        return false;
    }
    let mut left: Vec<&Hop> = seen.iter().collect();
    wish.iter().all(|hop| match left.iter().position(|seen| hop_agrees(hop, seen)) {
        Some(at) => {
            left.swap_remove(at);
            true
        }
        None => false,
    })
}

fn hop_agrees(wish: &Hop, seen: &Hop) -> bool {
    wish.via == seen.via
        && wish.weight == seen.weight
        && agrees(wish.dev.as_ref(), seen.dev.as_ref())
        && agrees(wish.onlink.as_ref(), seen.onlink.as_ref())
}

/// Whether a wished address makes a route possible: its source, or the network of its gateway.
pub(crate) fn route_rests_on(route: &Route, address: &AddressKey) -> bool {
    let is_here = route.links().next().is_none() || route.links().any(|l| l == address.link());
    let reaches = |gateway: IpAddr| address.net().contains(gateway);
    route.src == Some(address.ip()) || is_here && route.gateways().any(reaches)
}

/// Whether a route may go with an address, or become possible with it: by its source, by the network
/// of its gateway, or by the link, which loses its IPv4 routes with its last IPv4 address.
pub(crate) fn is_touched_by(route: &Route, address: &AddressKey) -> bool {
    route_rests_on(route, address) || route.links().any(|link| link == address.link())
}

#[cfg(test)]
mod tests;
