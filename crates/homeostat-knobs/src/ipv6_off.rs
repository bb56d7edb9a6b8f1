//! The foreign objects that the kernel deletes when IPv6 is turned off on a link.
//!
//! Quirk `disabling-takes-ipv6` (Linux 6.18): writing 1 to `net/ipv6/conf/va/disable_ipv6` deletes all IPv6 addresses,
//! routes, neighbours and proxy entries of `va`, those of other owners too, and 0 does not bring them back; `all` does so
//! on every link. Routes that reject are on `lo`. A route through a nexthop with an id stays, and so does one with several
//! gateways as long as one of them is on another link.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use homeostat_core::{Owner, Taken};
use homeostat_netlink::uapi::{
    IFA_ADDRESS, IFA_F_PERMANENT, IFA_LOCAL, NDA_DST, NTF_EXT_LEARNED, NTF_PROXY, NUD_PERMANENT,
    RT_TABLE_MAIN, RTA_DST, RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_PRIORITY, RTA_TABLE,
    RTM_GETADDR, RTM_GETNEIGH, RTM_GETROUTE, RTPROT_KERNEL, RTPROT_RA, RTPROT_REDIRECT,
};
use homeostat_netlink::{
    Attr, Batch, Connection, Dumped, Error, Family, Malformed, Message, Result,
};
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketType, socket};

use crate::key::Key;
use crate::model::{DesiredState, Value};

/// The link whose IPv6 a knob can turn off; `all` for every one. What `default` says is for links to come.
fn link(key: &Key) -> Option<&str> {
    let Key::Sysctl(path) = key else { return None };
    let link = path.as_str().strip_prefix("net/ipv6/conf/")?.strip_suffix("/disable_ipv6")?;
    Some(link).filter(|link| *link != "default")
}

/// Whether this value turns IPv6 off.
pub(crate) fn turns_off(key: &Key, value: &Value) -> bool {
    link(key).is_some() && value.as_str() != "0"
}

/// Whether a step for this knob may turn IPv6 off: it is declared so, or its original may come back.
pub(crate) fn may_turn_off(desired: &DesiredState, key: &Key) -> bool {
    link(key).is_some() && desired.wanted(key).is_none_or(|wanted| turns_off(key, &wanted.value))
}

/// The IPv6 objects that other owners would lose. Link-local addresses, and what the kernel makes of router advertisements,
/// come back by themselves. Whose the others are is not known here: a document that turns IPv6 off declares none, so that
/// they are another owner's, or go before. Of each kind on the same links one is enough to hold a step.
#[derive(Debug, Default)]
pub(crate) struct Ipv6Objects(BTreeMap<Links, Vec<Object>>);

/// The numbers of the links that an object is on; it is lost if it is on no other one.
type Links = BTreeSet<u32>;

#[derive(Debug)]
enum Object {
    Address { ip: Ipv6Addr, len: u8 },
    Route { to: Ipv6Addr, len: u8, table: u32, metric: u32 },
    Neighbour { ip: Ipv6Addr, is_proxy: bool },
}

/// An object, if it is one that others lose.
type Found = Result<Option<(Links, Object)>, Malformed>;

impl Ipv6Objects {
    /// Those of the calling thread's namespace.
    pub(crate) fn list() -> Result<Self> {
        const INET6: u8 = 10;
        let mut connection = Connection::open(Family::Route)?;
        let mut objects = Self::default();
        let address = [INET6, 0, 0, 0, 0, 0, 0, 0];
        objects.dump(&mut connection, RTM_GETADDR, &address, self::address)?;
        let route = [INET6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        objects.dump(&mut connection, RTM_GETROUTE, &route, self::route)?;
        // The kernel dumps proxy entries only where the request asks for them.
        for flags in [0, NTF_PROXY] {
            let neighbour = [INET6, 0, 0, 0, 0, 0, 0, 0, 0, 0, flags, 0];
            objects.dump(&mut connection, RTM_GETNEIGH, &neighbour, self::neighbour)?;
        }
        Ok(objects)
    }

    fn dump(
        &mut self,
        connection: &mut Connection,
        kind: u16,
        fixed: &[u8],
        read: fn(&Message<'_>) -> Found,
    ) -> Result<()> {
        let mut request = Batch::new();
        let mut message = request.message(kind, 0);
        message.fixed(fixed);
        message.finish()?;
        let (mut first, mut bad) = (BTreeMap::new(), None);
        connection.dump(&mut request, &mut |dumped| match dumped {
            Dumped::Restart => first.clear(),
            // A kernel without IPv6 dumps other families.
            Dumped::Object(message) if message.payload.first() != fixed.first() => {}
            Dumped::Object(message) => match read(&message) {
                Ok(found) => {
                    if let Some((links, object)) = found {
                        first.entry(links).or_insert(object);
                    }
                }
                Err(error) => bad = Some(error),
            },
        })?;
        for (links, object) in first {
            self.0.entry(links).or_default().push(object);
        }
        bad.map_or(Ok(()), |bad| Err(Error::Malformed(bad)))
    }

    /// What turning IPv6 off by this knob removes.
    pub(crate) fn lost_with(&self, key: &Key) -> Vec<Taken> {
        let Ok(socket) = socket(AddressFamily::UNIX, SocketType::DGRAM, None) else {
            return Vec::new();
        };
        let only = match link(key) {
            None => return Vec::new(),
            Some("all") => None,
            // A link that is gone has lost everything already.
            Some(link) => match name_to_index(&socket, link) {
                Ok(number) => Some(Links::from([number])),
                Err(_) => return Vec::new(),
            },
        };
        let is_lost = |on: &Links| only.as_ref().is_none_or(|off| on.is_subset(off));
        let lost = self.0.iter().filter(|(on, _)| is_lost(on));
        let lost = lost.flat_map(|(on, objects)| objects.iter().map(move |object| (on, object)));
        let name = |number: u32| index_to_name(&socket, number);
        let taken = lost.map(|(on, object)| {
            let link = on.first().and_then(|number| name(*number).ok()).unwrap_or_default();
            Taken::new(object.key(&link), Owner::foreign("another owner"))
        });
        taken.collect()
    }
}

impl Object {
    /// The key, as the source of such objects writes it.
    fn key(&self, link: &str) -> String {
        const USUAL_METRIC: u32 = 1024;
        match self {
            Object::Address { ip, len } => format!("address {ip}/{len} dev {link}"),
            Object::Route { to, len, table, metric } => {
                let table = Some(table).filter(|table| **table != RT_TABLE_MAIN);
                let table = table.map(|table| format!(" table {table}")).unwrap_or_default();
                let metric = Some(metric).filter(|metric| **metric != USUAL_METRIC);
                let metric = metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
                format!("route {to}/{len}{table}{metric}")
            }
            Object::Neighbour { ip, is_proxy } => {
                let proxy = if *is_proxy { " proxy" } else { "" };
                format!("neighbour {ip} dev {link}{proxy}")
            }
        }
    }
}

fn address(message: &Message<'_>) -> Found {
    let ([_, len, flags, _, i0, i1, i2, i3], attrs) = message.split::<8>()?;
    let ip = attrs.clone().first(IFA_LOCAL)?.or(attrs.first(IFA_ADDRESS)?);
    let ip = ip.map(|ip| ip6(&ip)).transpose()?;
    let stays = |ip: &Ipv6Addr| ip.is_loopback() || ip.is_unicast_link_local();
    let is_permanent = u32::from(*flags) & IFA_F_PERMANENT != 0;
    let ip = ip.filter(|ip| is_permanent && !stays(ip));
    let links = Links::from([u32::from_ne_bytes([*i0, *i1, *i2, *i3])]);
    Ok(ip.map(|ip| (links, Object::Address { ip, len: *len })))
}

fn route(message: &Message<'_>) -> Found {
    let ([_, len, _, _, table, protocol, ..], attrs) = message.split::<12>()?;
    if matches!(*protocol, RTPROT_KERNEL | RTPROT_REDIRECT | RTPROT_RA) {
        return Ok(None);
    }
    // A default route carries no destination.
    let (mut to, mut table, mut metric) = (Ipv6Addr::UNSPECIFIED, u32::from(*table), 0);
    let mut links = Links::new();
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            RTA_DST => to = ip6(&attr)?,
            RTA_TABLE => table = attr.u32()?,
            RTA_PRIORITY => metric = attr.u32()?,
            RTA_OIF => _ = links.insert(attr.u32()?),
            RTA_MULTIPATH => links.extend(links_of_hops(&attr)?),
            RTA_NH_ID => return Ok(None),
            _ => {}
        }
    }
    Ok((!links.is_empty()).then_some((links, Object::Route { to, len: *len, table, metric })))
}

fn links_of_hops(attr: &Attr<'_>) -> Result<Links, Malformed> {
    let (mut links, mut rest) = (Links::new(), attr.value);
    while let Some([l0, l1, _, _, i0, i1, i2, i3]) = rest.first_chunk::<8>().copied() {
        links.insert(u32::from_ne_bytes([i0, i1, i2, i3]));
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        // A length below that of its own header would never end.
        if len < 8 {
            return Err(Malformed::Attr);
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(links)
}

/// One that the kernel learned by itself is learned again.
fn neighbour(message: &Message<'_>) -> Found {
    let ([_, _, _, _, i0, i1, i2, i3, s0, s1, flags, _], attrs) = message.split::<12>()?;
    let is_proxy = flags & NTF_PROXY != 0;
    let is_permanent = u16::from_ne_bytes([*s0, *s1]) & NUD_PERMANENT != 0;
    if !is_proxy && !is_permanent && flags & NTF_EXT_LEARNED == 0 {
        return Ok(None);
    }
    let ip = attrs.first(NDA_DST)?.map(|ip| ip6(&ip)).transpose()?;
    let links = Links::from([u32::from_ne_bytes([*i0, *i1, *i2, *i3])]);
    Ok(ip.map(|ip| (links, Object::Neighbour { ip, is_proxy })))
}

fn ip6(attr: &Attr<'_>) -> Result<Ipv6Addr, Malformed> {
    attr.array::<16>().map(Ipv6Addr::from)
}
