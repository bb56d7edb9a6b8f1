//! Routes as netlink messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use homeostat_netlink::uapi::{
    RT_SCOPE_NOWHERE, RT_TABLE_COMPAT, RTA_CACHEINFO, RTA_DST, RTA_ENCAP, RTA_ENCAP_TYPE,
    RTA_EXPIRES, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_PREF,
    RTA_PREFSRC, RTA_PRIORITY, RTA_TABLE, RTA_VIA, RTAX_MTU, RTM_DELROUTE, RTM_F_CLONED,
    RTM_NEWROUTE, RTN_ANYCAST, RTN_BROADCAST, RTN_LOCAL, RTN_MULTICAST, RTN_UNICAST, RTN_UNSPEC,
    RTNH_F_ONLINK,
};
use homeostat_netlink::{Attr, Attrs, Malformed, Message, MessageWriter, Result};

use crate::link::IfIndex;
use crate::link::kinds::options::{AttrValue as _, OptionTable as _};
use crate::message::{AF_INET, AF_INET6, Encoded, Encoder, LinkNames, Put, put_ip, read_ip};
use crate::net::{Family, Net};
use crate::nexthop::NexthopId;
use crate::number::{Metric, Protocol, Scope, Table, Tos};
use crate::route::encap::{Encap, SeenEncap};
use crate::route::rare::{PathMetrics, Preference, expires};
use crate::route::{Hop, Route, RouteKey, RouteKind};

/// Puts a route there.
pub(crate) fn put(encoder: &mut Encoder<'_>, key: &RouteKey, route: &Route, put: Put) -> Encoded {
    let scope = route.scope.unwrap_or_else(|| usual_route_scope(key, route));
    let dev = route.dev.map(|dev| encoder.index(dev)).transpose()?;
    let indexes = route.hops.iter().map(|hop| hop.dev.map(|dev| encoder.index(dev)).transpose());
    let indexes: Vec<Option<IfIndex>> = indexes.collect::<std::result::Result<_, _>>()?;
    let mut message = encoder.batch.message(RTM_NEWROUTE, put.flags() | encoder.echo);
    let flags = onlink_flag(route.onlink);
    route_head(&mut message, key, encoder.protocol, scope.0, route.kind.0, flags);
    way(&mut message, key, route.via, dev);
    if !route.hops.is_empty() {
        multipath(&mut message, key, route.hops.iter().zip(indexes));
    }
    route.nexthop.map(|nexthop| message.attr_u32(RTA_NH_ID, nexthop.0));
    route.src.map(|src| put_ip(&mut message, RTA_PREFSRC, src));
    let rare = &route.rare;
    if route.mtu.is_some() || rare.metrics != PathMetrics::default() {
        message.nest_unmarked(RTA_METRICS, |metrics| {
            route.mtu.map(|mtu| metrics.attr_u32(RTAX_MTU, mtu));
            rare.metrics.put_attrs(metrics);
        });
    }
    if let Some(pref) = &rare.pref {
        pref.put(&mut message, RTA_PREF);
    }
    rare.expires.map(|expires| message.attr_u32(RTA_EXPIRES, expires));
    if let Some(encap) = &rare.encap {
        encap.put(&mut message);
    }
    Ok(message.finish())
}

/// Takes a route away that is still ours and still goes the way it was seen to go. Without
/// them a metric of 0 would match a route of ours with any other metric.
pub(crate) fn delete(encoder: &mut Encoder<'_>, key: &RouteKey, before: &Route) -> Encoded {
    let dev = before.dev.filter(|_| before.kind.accepts_nexthop());
    let dev = dev.map(|dev| encoder.index(dev)).transpose()?;
    // The type of a route through a nexthop object is the object's, which may have changed.
    let kind = if before.nexthop.is_some() { RTN_UNSPEC } else { before.kind.0 };
    let mut message = encoder.batch.message(RTM_DELROUTE, 0);
    route_head(&mut message, key, encoder.protocol, RT_SCOPE_NOWHERE, kind, 0);
    way(&mut message, key, before.via, dev);
    before.nexthop.map(|nexthop| message.attr_u32(RTA_NH_ID, nexthop.0));
    Ok(message.finish())
}

/// As `ip` has it. What is directly on a link is nearer than what is behind a gateway; a gateway is only accepted
/// if the route to it is nearer than the one that goes through it. What is on this host is nearest.
fn usual_route_scope(key: &RouteKey, route: &Route) -> Scope {
    let has_way = route.via.is_some() || !route.hops.is_empty() || route.nexthop.is_some();
    match route.kind.0 {
        _ if !key.is_ipv4() => Scope::GLOBAL,
        RTN_LOCAL => Scope::HOST,
        RTN_BROADCAST | RTN_ANYCAST | RTN_MULTICAST => Scope::LINK,
        RTN_UNICAST if !has_way => Scope::LINK,
        _ => Scope::GLOBAL,
    }
}

fn onlink_flag(onlink: Option<bool>) -> u32 {
    if onlink == Some(true) { RTNH_F_ONLINK } else { 0 }
}

fn route_head(
    message: &mut MessageWriter<'_>,
    key: &RouteKey,
    protocol: Protocol,
    scope: u8,
    kind: u8,
    flags: u32,
) {
    let (dst, table) = (key.dst, key.table.0);
    let short_table = u8::try_from(table).unwrap_or(u8::try_from(RT_TABLE_COMPAT).unwrap_or(0));
    let [f0, f1, f2, f3] = flags.to_ne_bytes();
    let (family, len, tos) = (Family::of(dst.addr()).to_kernel(), dst.prefix_len(), key.tos.0);
    message.fixed(&[family, len, 0, tos, short_table, protocol.0, scope, kind, f0, f1, f2, f3]);
    if dst.prefix_len() != 0 {
        put_ip(message, RTA_DST, dst.addr());
    }
    if u32::from(short_table) != table {
        message.attr_u32(RTA_TABLE, table);
    }
    if key.metric.0 != 0 {
        message.attr_u32(RTA_PRIORITY, key.metric.0);
    }
}

fn way(
    message: &mut MessageWriter<'_>,
    key: &RouteKey,
    gateway: Option<IpAddr>,
    dev: Option<IfIndex>,
) {
    match gateway {
        Some(gateway) if gateway.is_ipv4() == key.is_ipv4() => {
            put_ip(message, RTA_GATEWAY, gateway);
        }
        Some(IpAddr::V6(gateway)) => {
            let family = u16::from(AF_INET6).to_ne_bytes();
            message.attr(RTA_VIA, &[&family[..], &gateway.octets()].concat());
        }
        _ => {}
    }
    if let Some(IfIndex(index)) = dev {
        message.attr_u32(RTA_OIF, index);
    }
}

fn multipath<'h>(
    message: &mut MessageWriter<'_>,
    key: &RouteKey,
    hops: impl Iterator<Item = (&'h Hop, Option<IfIndex>)>,
) {
    message.nest_unmarked(RTA_MULTIPATH, |ways| {
        for (hop, index) in hops {
            let gateway = hop.via.map_or(0, |gateway| gateway_len(key, gateway));
            let encap = hop.encap.as_ref().map_or(0, Encap::len);
            let [l0, l1] = (8 + gateway + encap).to_ne_bytes();
            let flags = u8::try_from(onlink_flag(hop.onlink)).unwrap_or(0);
            let weight = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
            let [i0, i1, i2, i3] = index.map_or(0, |index| index.0).to_ne_bytes();
            ways.fixed(&[l0, l1, flags, weight, i0, i1, i2, i3]);
            way(ways, key, hop.via, None);
            if let Some(encap) = &hop.encap {
                encap.put(ways);
            }
        }
    });
}

/// How many bytes the attribute of a gateway takes.
fn gateway_len(key: &RouteKey, gateway: IpAddr) -> u16 {
    match (key.is_ipv4(), gateway.is_ipv4()) {
        (true, true) => 8,
        (true, false) => 24,
        (false, _) => 20,
    }
}

/// A route as the kernel reports it.
pub(crate) struct SeenRoute {
    pub(crate) key: RouteKey,
    pub(crate) route: Route,
    pub(crate) protocol: Protocol,
}

/// A route; none, if it is a cached answer, of another family, or bound to a source network.
pub(crate) fn decode(
    message: &Message<'_>,
    names: &mut LinkNames<'_>,
) -> Result<Option<SeenRoute>, Malformed> {
    let mut seen = decode_with_way(message, names)?;
    if let Some(SeenRoute { route, .. }) = &mut seen
        && route.nexthop.is_some()
    {
        forget_way(route);
    }
    Ok(seen)
}

/// The same; a route through a nexthop object comes with the way of that.
pub(crate) fn decode_with_way(
    message: &Message<'_>,
    names: &mut LinkNames<'_>,
) -> Result<Option<SeenRoute>, Malformed> {
    let (fixed, attrs) = message.split::<12>()?;
    let [family, dst_len, src_len, tos, table, protocol, scope, kind, f0, f1, f2, f3] = *fixed;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let unspecified: IpAddr = match family {
        AF_INET => Ipv4Addr::UNSPECIFIED.into(),
        AF_INET6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return Ok(None),
    };
    if flags & RTM_F_CLONED != 0 || src_len != 0 {
        return Ok(None);
    }
    let mut route = Route {
        kind: RouteKind(kind),
        scope: Some(Scope(scope)),
        onlink: Some(flags & RTNH_F_ONLINK != 0),
        ..Route::default()
    };
    // A default route carries no destination.
    let (mut dst, mut table, mut metric) = (unspecified, u32::from(table), 0);
    let mut encap = SeenEncap::default();
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            RTA_DST => dst = read_ip(&attr)?,
            RTA_TABLE => table = attr.u32()?,
            RTA_PRIORITY => metric = attr.u32()?,
            RTA_ENCAP | RTA_ENCAP_TYPE => encap.take(&attr)?,
            _ => route_attr(&mut route, &attr, names)?,
        }
    }
    if let Some(encap) = encap.read()?.filter(|_| route.nexthop.is_none()) {
        route.rare.edit().encap = Some(encap);
    }
    let key = RouteKey::new(Net::masked(dst, dst_len)).in_table(Table(table)).with_tos(Tos(tos));
    let key = key.with_metric(Metric(metric));
    Ok(Some(SeenRoute { key, route, protocol: Protocol(protocol) }))
}

/// Quirk `nexthop-route-tells-the-way-too` (Linux 6.18): a route through a nexthop object comes with
/// the object's gateway, link and weights spelled out, and with the type `blackhole` if that is a
/// hole. They are the nexthop's, not the route's.
fn forget_way(route: &mut Route) {
    (route.via, route.dev, route.onlink) = (None, None, None);
    route.hops.clear();
    route.kind = RouteKind::UNICAST;
}

fn route_attr(
    route: &mut Route,
    attr: &Attr<'_>,
    names: &mut LinkNames<'_>,
) -> Result<(), Malformed> {
    match attr.kind {
        RTA_OIF => route.dev = Some(names.name(attr.u32()?)),
        RTA_GATEWAY => route.via = Some(read_ip(attr)?),
        RTA_VIA => route.via = via(attr)?,
        RTA_PREFSRC => route.src = Some(read_ip(attr)?),
        RTA_METRICS => {
            for metric in attr.attrs() {
                let metric = metric?;
                match metric.kind {
                    RTAX_MTU => route.mtu = Some(metric.u32()?),
                    _ => route.rare.edit().metrics.read_attr(&metric)?,
                }
            }
        }
        RTA_PREF => {
            // Every IPv6 route says it, and nearly all say this.
            let pref = Preference::read(attr)?.filter(|pref| *pref != Preference::Medium);
            if pref.is_some() {
                route.rare.edit().pref = pref;
            }
        }
        RTA_CACHEINFO => {
            if let Some(left) = expires(attr) {
                route.rare.edit().expires = Some(left);
            }
        }
        RTA_MULTIPATH => route.hops = hops(attr, names)?,
        RTA_NH_ID => route.nexthop = Some(NexthopId(attr.u32()?)),
        _ => {}
    }
    Ok(())
}

fn hops(attr: &Attr<'_>, names: &mut LinkNames<'_>) -> Result<Vec<Hop>, Malformed> {
    let (mut hops, mut rest) = (Vec::new(), attr.value);
    while let Some([l0, l1, flags, weight, i0, i1, i2, i3]) = rest.first_chunk::<8>().copied() {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let attrs = rest.get(8..len).ok_or(Malformed::Attr)?;
        let dev = names.name(u32::from_ne_bytes([i0, i1, i2, i3]));
        let onlink = Some(u32::from(flags) & RTNH_F_ONLINK != 0);
        // The kernel counts weights from zero.
        let mut hop =
            Hop { via: None, dev: Some(dev), weight: u16::from(weight) + 1, onlink, encap: None };
        let mut encap = SeenEncap::default();
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                RTA_GATEWAY => hop.via = Some(read_ip(&attr)?),
                RTA_VIA => hop.via = via(&attr)?,
                _ => encap.take(&attr)?,
            }
        }
        hop.encap = encap.read()?;
        hops.push(hop);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(hops)
}

/// A gateway of the other family: its number, then its bytes.
fn via(attr: &Attr<'_>) -> Result<Option<IpAddr>, Malformed> {
    let (family, bytes) = attr.value.split_first_chunk().ok_or(Malformed::Attr)?;
    Ok(match u16::from_ne_bytes(*family) {
        family if family == u16::from(AF_INET6) => {
            bytes.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes))
        }
        family if family == u16::from(AF_INET) => {
            bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes))
        }
        _ => None,
    })
}
