//! Writes requests for addresses and routes. Sends nothing.

use std::net::IpAddr;

use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_BROADCAST, IFA_CACHEINFO, IFA_F_NOPREFIXROUTE, IFA_FLAGS, IFA_LABEL,
    IFA_LOCAL, IFA_PROTO, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, RT_SCOPE_NOWHERE,
    RT_TABLE_COMPAT, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF,
    RTA_PREFSRC, RTA_PRIORITY, RTA_TABLE, RTA_VIA, RTAX_MTU, RTM_DELADDR, RTM_DELROUTE,
    RTM_NEWADDR, RTM_NEWROUTE, RTN_UNSPEC, RTNH_F_ONLINK,
};
use homeostat_netlink::{Batch, MessageWriter, Result};

use crate::address::{Address, Lifetime};
use crate::decode::{AF_INET, AF_INET6};
use crate::key::{AddressKey, RouteKey};
use crate::link::{IfIndex, LinkName, Links};
use crate::marks::AddressMarks;
use crate::number::{Protocol, Scope};
use crate::route::{Hop, Route};

/// How an object is put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Only if nothing is on its key.
    Create,
    /// In place of what is on its key.
    Replace,
}

impl Put {
    pub(crate) fn flags(self) -> u16 {
        match self {
            Put::Create => NLM_F_CREATE | NLM_F_EXCL,
            Put::Replace => NLM_F_CREATE | NLM_F_REPLACE,
        }
    }
}

/// Writes into a batch on behalf of one owner.
pub(crate) struct Encoder<'a> {
    pub(crate) batch: &'a mut Batch,
    pub(crate) links: &'a Links,
    pub(crate) protocol: Protocol,
    pub(crate) address_marks: AddressMarks,
    pub(crate) echo: Echo,
}

/// Whether the kernel is asked to send back what it made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// It is: where few objects are written, that saves a second look.
    Wanted,
    /// It is not: for very many, one look at everything costs less.
    Unwanted,
}

impl Echo {
    fn flags(self) -> u16 {
        match self {
            Echo::Wanted => NLM_F_ECHO,
            Echo::Unwanted => 0,
        }
    }
}

/// The link that a request needs is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoLink(pub(crate) LinkName);

/// Whether the request was written.
pub(crate) type Encoded = std::result::Result<Result<()>, NoLink>;

#[cfg(test)]
impl<'a> Encoder<'a> {
    /// Under our usual mark, on a kernel that keeps it, and without echoes.
    fn plain(batch: &'a mut Batch, links: &'a Links) -> Self {
        let (address_marks, echo) = (AddressMarks::Kernel, Echo::Unwanted);
        Encoder { batch, links, protocol: Protocol::HOMEOSTAT, address_marks, echo }
    }
}

impl Encoder<'_> {
    pub(crate) fn index(&self, link: LinkName) -> std::result::Result<IfIndex, NoLink> {
        self.links.index(link).ok_or(NoLink(link))
    }

    /// Puts an address there.
    pub(crate) fn put_address(&mut self, key: &AddressKey, address: &Address, put: Put) -> Encoded {
        let index = self.index(key.link())?;
        let mut message = self.batch.message(RTM_NEWADDR, put.flags() | self.echo.flags());
        let scope = address.scope.unwrap_or_else(|| usual_scope(key));
        address_head(&mut message, key, scope, index);
        if self.address_marks != AddressMarks::Ledger {
            message.attr_u8(IFA_PROTO, self.protocol.0);
        }
        if let Some(broadcast) = address.broadcast {
            ip(&mut message, IFA_BROADCAST, broadcast.into());
        }
        if let Some(label) = &address.label {
            message.attr(IFA_LABEL, &[label.as_bytes(), &[0]].concat());
        }
        if address.noprefixroute == Some(true) {
            message.attr_u32(IFA_FLAGS, IFA_F_NOPREFIXROUTE);
        }
        if address.valid.is_some() || address.preferred.is_some() {
            let seconds = |life: Option<Lifetime>| life.unwrap_or(Lifetime::Forever).to_kernel();
            let [preferred, valid] = [address.preferred, address.valid].map(seconds);
            let times = [preferred.to_ne_bytes(), valid.to_ne_bytes(), [0; 4], [0; 4]];
            message.attr(IFA_CACHEINFO, times.as_flattened());
        }
        Ok(message.finish())
    }

    /// Takes an address away.
    pub(crate) fn delete_address(&mut self, key: &AddressKey) -> Encoded {
        let index = self.index(key.link())?;
        let mut message = self.batch.message(RTM_DELADDR, 0);
        address_head(&mut message, key, Scope::GLOBAL, index);
        Ok(message.finish())
    }

    /// Puts a route there.
    pub(crate) fn put_route(&mut self, key: &RouteKey, route: &Route, put: Put) -> Encoded {
        let scope = route.scope.unwrap_or_else(|| usual_route_scope(key, route));
        let dev = route.dev.map(|dev| self.index(dev)).transpose()?;
        let indexes = route.hops.iter().map(|hop| hop.dev.map(|dev| self.index(dev)).transpose());
        let indexes: Vec<Option<IfIndex>> = indexes.collect::<std::result::Result<_, _>>()?;
        let flags = onlink_flag(route.onlink);
        let head = Head { scope: scope.0, kind: route.kind.to_kernel(), flags };
        let mut message = self.batch.message(RTM_NEWROUTE, put.flags() | self.echo.flags());
        route_head(&mut message, key, self.protocol, &head);
        way(&mut message, key, route.via, dev);
        if !route.hops.is_empty() {
            multipath(&mut message, key, route.hops.iter().zip(indexes));
        }
        if let Some(nexthop) = route.nexthop {
            message.attr_u32(RTA_NH_ID, nexthop.0);
        }
        if let Some(src) = route.src {
            ip(&mut message, RTA_PREFSRC, src);
        }
        if let Some(mtu) = route.mtu {
            message.nest_unmarked(RTA_METRICS, |metrics| _ = metrics.attr_u32(RTAX_MTU, mtu));
        }
        Ok(message.finish())
    }

    /// Takes a route away that is still ours and still goes the way it was seen to go. Without
    /// them a metric of 0 would match a route of ours with any other metric.
    pub(crate) fn delete_route(&mut self, key: &RouteKey, before: &Route) -> Encoded {
        let dev = before.dev.filter(|_| before.kind.leads_on());
        let dev = dev.map(|dev| self.index(dev)).transpose()?;
        // The type of a route through a nexthop object is the object's, which may have changed.
        let kind = if before.nexthop.is_some() { RTN_UNSPEC } else { before.kind.to_kernel() };
        let head = Head { scope: RT_SCOPE_NOWHERE, kind, flags: 0 };
        let mut message = self.batch.message(RTM_DELROUTE, 0);
        route_head(&mut message, key, self.protocol, &head);
        way(&mut message, key, before.via, dev);
        if let Some(nexthop) = before.nexthop {
            message.attr_u32(RTA_NH_ID, nexthop.0);
        }
        Ok(message.finish())
    }
}

/// What `ip` takes where nothing is said.
fn usual_scope(key: &AddressKey) -> Scope {
    if key.ip().is_loopback() { Scope::HOST } else { Scope::GLOBAL }
}

/// What is directly on a link is nearer than what is behind a gateway; a gateway is only accepted
/// if the route to it is nearer than the one that goes through it.
fn usual_route_scope(key: &RouteKey, route: &Route) -> Scope {
    let has_way = route.via.is_some() || !route.hops.is_empty() || route.nexthop.is_some();
    let is_direct = !has_way && route.kind.leads_on();
    if key.is_ipv4() && is_direct { Scope::LINK } else { Scope::GLOBAL }
}

fn onlink_flag(onlink: Option<bool>) -> u32 {
    if onlink == Some(true) { RTNH_F_ONLINK } else { 0 }
}

fn family(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

pub(crate) fn ip(message: &mut MessageWriter<'_>, kind: u16, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => message.attr(kind, &ip.octets()),
        IpAddr::V6(ip) => message.attr(kind, &ip.octets()),
    };
}

fn address_head(message: &mut MessageWriter<'_>, key: &AddressKey, scope: Scope, index: IfIndex) {
    let [i0, i1, i2, i3] = index.0.to_ne_bytes();
    message.fixed(&[family(key.ip()), key.prefix_len(), 0, scope.0, i0, i1, i2, i3]);
    ip(message, IFA_LOCAL, key.ip());
    ip(message, IFA_ADDRESS, key.peer().unwrap_or(key.ip()));
}

struct Head {
    scope: u8,
    kind: u8,
    flags: u32,
}

fn route_head(message: &mut MessageWriter<'_>, key: &RouteKey, protocol: Protocol, head: &Head) {
    let (dst, table) = (key.dst(), key.table().0);
    let Head { scope, kind, flags } = *head;
    let short_table = u8::try_from(table).unwrap_or(u8::try_from(RT_TABLE_COMPAT).unwrap_or(0));
    let [f0, f1, f2, f3] = flags.to_ne_bytes();
    let (family, len, tos) = (family(dst.addr()), dst.prefix_len(), key.tos().0);
    message.fixed(&[family, len, 0, tos, short_table, protocol.0, scope, kind, f0, f1, f2, f3]);
    if dst.prefix_len() != 0 {
        ip(message, RTA_DST, dst.addr());
    }
    if u32::from(short_table) != table {
        message.attr_u32(RTA_TABLE, table);
    }
    if key.metric().0 != 0 {
        message.attr_u32(RTA_PRIORITY, key.metric().0);
    }
}

fn way(
    message: &mut MessageWriter<'_>,
    key: &RouteKey,
    gateway: Option<IpAddr>,
    dev: Option<IfIndex>,
) {
    match gateway {
        Some(gateway) if gateway.is_ipv4() == key.is_ipv4() => ip(message, RTA_GATEWAY, gateway),
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
            let [l0, l1] = (8 + gateway).to_ne_bytes();
            let flags = u8::try_from(onlink_flag(hop.onlink)).unwrap_or(0);
            let weight = u8::try_from(hop.weight.saturating_sub(1)).unwrap_or(u8::MAX);
            let [i0, i1, i2, i3] = index.map_or(0, |index| index.0).to_ne_bytes();
            ways.fixed(&[l0, l1, flags, weight, i0, i1, i2, i3]);
            way(ways, key, hop.via, None);
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

#[cfg(test)]
mod tests;

#[cfg(test)]
mod bytes;
