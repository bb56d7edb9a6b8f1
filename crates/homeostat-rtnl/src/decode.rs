//! Reads links, addresses and routes out of the kernel's messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_BROADCAST, IFA_CACHEINFO, IFA_F_NOPREFIXROUTE, IFA_F_SECONDARY, IFA_FLAGS,
    IFA_LABEL, IFA_LOCAL, IFA_PROTO, IFF_LOWER_UP, IFF_UP, IFLA_IFNAME, RTA_DST, RTA_GATEWAY,
    RTA_METRICS, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_PREFSRC, RTA_PRIORITY, RTA_TABLE, RTA_VIA,
    RTAX_MTU, RTM_F_CLONED, RTNH_F_ONLINK,
};
use homeostat_netlink::{Attr, Attrs, Malformed, Message};

use crate::address::{Address, Lifetime};
use crate::key::{AddressKey, RouteKey};
use crate::link::{IfIndex, LinkName, Links};
use crate::net::Net;
use crate::nexthop::NexthopId;
use crate::number::{Metric, Protocol, Scope, Table, Tos};
use crate::route::{Hop, Route, RouteKind};

pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
const AF_UNSPEC: u8 = 0;

/// Gives links their names, and the same link its name again at once.
pub(crate) struct Names<'a> {
    links: &'a Links,
    last: (IfIndex, LinkName),
}

impl<'a> Names<'a> {
    pub(crate) fn new(links: &'a Links) -> Self {
        let nothing = IfIndex(0);
        Names { links, last: (nothing, links.name(nothing)) }
    }

    fn name(&mut self, index: u32) -> LinkName {
        let index = IfIndex(index);
        if self.last.0 != index {
            self.last = (index, self.links.name(index));
        }
        self.last.1
    }
}

/// A link's number and name. A name that is no text is one that no desired state can hold.
pub(crate) fn link(message: &Message<'_>) -> Result<(IfIndex, LinkName), Malformed> {
    let (fixed, attrs) = message.split::<16>()?;
    let [_, _, _, _, i0, i1, i2, i3, ..] = *fixed;
    let index = IfIndex(u32::from_ne_bytes([i0, i1, i2, i3]));
    let name = attrs.first(IFLA_IFNAME)?.and_then(|attr| attr.str().ok());
    Ok((index, name.map_or_else(|| Links::default().name(index), LinkName::padded)))
}

/// Whether a message about a link is about the link itself, not about its part in something else.
pub(crate) fn is_of_any_family(message: &Message<'_>) -> Result<bool, Malformed> {
    let ([family, ..], _) = message.split::<16>()?;
    Ok(*family == AF_UNSPEC)
}

/// Whether a link is up, and what it leads to is, too.
pub(crate) fn has_carrier(message: &Message<'_>) -> Result<bool, Malformed> {
    let ([_, _, _, _, _, _, _, _, f0, f1, f2, f3, ..], _) = message.split::<16>()?;
    let flags = u32::from_ne_bytes([*f0, *f1, *f2, *f3]);
    Ok(flags & IFF_UP != 0 && flags & IFF_LOWER_UP != 0)
}

/// An address as the kernel tells it.
pub(crate) struct SeenAddress {
    pub(crate) key: AddressKey,
    pub(crate) address: Address,
    pub(crate) protocol: Protocol,
    pub(crate) is_secondary: bool,
}

/// The number of the link that an address is on.
pub(crate) fn address_index(message: &Message<'_>) -> Result<IfIndex, Malformed> {
    let ([_, _, _, _, i0, i1, i2, i3], _) = message.split::<8>()?;
    Ok(IfIndex(u32::from_ne_bytes([*i0, *i1, *i2, *i3])))
}

/// An address; none, if it is of a family that is not kept here.
pub(crate) fn address(
    message: &Message<'_>,
    links: &Links,
) -> Result<Option<SeenAddress>, Malformed> {
    let (fixed, attrs) = message.split::<8>()?;
    let [family, prefix_len, flags, scope, i0, i1, i2, i3] = *fixed;
    if family != AF_INET && family != AF_INET6 {
        return Ok(None);
    }
    let link = links.name(IfIndex(u32::from_ne_bytes([i0, i1, i2, i3])));
    let mut address = Address { scope: Some(Scope(scope)), ..Address::default() };
    let (mut local, mut peer, mut protocol, mut flags) = (None, None, 0, u32::from(flags));
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            IFA_LOCAL => local = Some(ip(&attr)?),
            IFA_ADDRESS => peer = Some(ip(&attr)?),
            IFA_BROADCAST => address.broadcast = attr.array().ok().map(Ipv4Addr::from_octets),
            IFA_LABEL => address.label = attr.str().ok().map(str::to_owned),
            IFA_FLAGS => flags = attr.u32()?,
            IFA_PROTO => protocol = attr.u8()?,
            IFA_CACHEINFO => (address.preferred, address.valid) = lifetimes(&attr)?,
            _ => {}
        }
    }
    address.noprefixroute = Some(flags & IFA_F_NOPREFIXROUTE != 0);
    let Some(ip) = local.or(peer) else { return Ok(None) };
    let key = AddressKey::new(link, ip, prefix_len);
    let key = key.and_then(|key| key.with_peer(peer.unwrap_or(ip)));
    let (protocol, is_secondary) = (Protocol(protocol), flags & IFA_F_SECONDARY != 0);
    Ok(key.map(|key| SeenAddress { key, address, protocol, is_secondary }))
}

type Lifetimes = (Option<Lifetime>, Option<Lifetime>);

fn lifetimes(attr: &Attr<'_>) -> Result<Lifetimes, Malformed> {
    let [p0, p1, p2, p3, v0, v1, v2, v3, ..] = attr.array::<16>()?;
    let life = |bytes| Some(Lifetime::from_kernel(u32::from_ne_bytes(bytes)));
    Ok((life([p0, p1, p2, p3]), life([v0, v1, v2, v3])))
}

/// A route as the kernel tells it.
pub(crate) struct SeenRoute {
    pub(crate) key: RouteKey,
    pub(crate) route: Route,
    pub(crate) protocol: Protocol,
}

/// A route; none, if it is a cached answer, of another family, or bound to a source network.
pub(crate) fn route(
    message: &Message<'_>,
    names: &mut Names<'_>,
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
        kind: RouteKind::from_kernel(kind),
        scope: Some(Scope(scope)),
        onlink: Some(flags & RTNH_F_ONLINK != 0),
        ..Route::default()
    };
    // A default route carries no destination.
    let (mut dst, mut table, mut metric) = (unspecified, u32::from(table), 0);
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            RTA_DST => dst = ip(&attr)?,
            RTA_TABLE => table = attr.u32()?,
            RTA_PRIORITY => metric = attr.u32()?,
            _ => route_attr(&mut route, &attr, names)?,
        }
    }
    if route.nexthop.is_some() {
        forget_way(&mut route);
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
    route.kind = RouteKind::Unicast;
}

fn route_attr(route: &mut Route, attr: &Attr<'_>, names: &mut Names<'_>) -> Result<(), Malformed> {
    match attr.kind {
        RTA_OIF => route.dev = Some(names.name(attr.u32()?)),
        RTA_GATEWAY => route.via = Some(ip(attr)?),
        RTA_VIA => route.via = via(attr)?,
        RTA_PREFSRC => route.src = Some(ip(attr)?),
        RTA_METRICS => {
            route.mtu = attr.attrs().first(RTAX_MTU)?.map(|mtu| mtu.u32()).transpose()?;
        }
        RTA_MULTIPATH => route.hops = hops(attr, names)?,
        RTA_NH_ID => route.nexthop = Some(NexthopId(attr.u32()?)),
        _ => {}
    }
    Ok(())
}

fn hops(attr: &Attr<'_>, names: &mut Names<'_>) -> Result<Vec<Hop>, Malformed> {
    let (mut hops, mut rest) = (Vec::new(), attr.value);
    while let Some([l0, l1, flags, weight, i0, i1, i2, i3]) = rest.first_chunk::<8>().copied() {
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let attrs = rest.get(8..len).ok_or(Malformed::Attr)?;
        let dev = names.name(u32::from_ne_bytes([i0, i1, i2, i3]));
        let onlink = Some(u32::from(flags) & RTNH_F_ONLINK != 0);
        // The kernel counts weights from zero.
        let mut hop = Hop { via: None, dev: Some(dev), weight: u16::from(weight) + 1, onlink };
        for attr in Attrs::new(attrs) {
            let attr = attr?;
            match attr.kind {
                RTA_GATEWAY => hop.via = Some(ip(&attr)?),
                RTA_VIA => hop.via = via(&attr)?,
                _ => {}
            }
        }
        hops.push(hop);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(hops)
}

pub(crate) fn ip(attr: &Attr<'_>) -> Result<IpAddr, Malformed> {
    match attr.value.len() {
        4 => Ok(IpAddr::from(attr.array::<4>()?)),
        _ => Ok(IpAddr::from(attr.array::<16>()?)),
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use homeostat_netlink::Port;

    fn read_all(payload: &[u8]) {
        let message = Message { kind: 24, flags: 0, seq: 1, port: Port::KERNEL, payload };
        let links = Links::default();
        let _ = link(&message);
        let _ = crate::links::decode::link(&message);
        let _ = address(&message, &links);
        let _ = route(&message, &mut Names::new(&links));
        let _ = crate::nexthop::decode(&message, &links);
        let _ = crate::rule::decode(&message);
        let _ = crate::neighbour::event(&message, &links);
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_can_panic(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            read_all(&payload);
        }

        #[test]
        fn no_attribute_can_panic(
            family in prop_oneof![Just(AF_INET), Just(AF_INET6)],
            attrs in proptest::collection::vec((0u16..32, proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        ) {
            for head in [8, 12, 16] {
                let mut payload = vec![0; head];
                payload[0] = family;
                for (kind, value) in &attrs {
                    let len = u16::try_from(value.len() + 4).unwrap();
                    payload.extend(len.to_ne_bytes());
                    payload.extend(kind.to_ne_bytes());
                    payload.extend(value);
                    payload.resize(payload.len().next_multiple_of(4), 0);
                }
                read_all(&payload);
            }
        }
    }
}
