//! Addresses, routes, rules, nexthops and neighbours that carry another mark than ours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use homeostat_core::{Owner, Taken};
use homeostat_netlink::uapi::{
    FRA_PRIORITY, FRA_PROTOCOL, IFA_ADDRESS, IFA_LOCAL, IFA_PROTO, NDA_DST, NDA_PROTOCOL, NHA_ID,
    NUD_PERMANENT, RTA_DST, RTM_GETADDR, RTM_GETNEIGH, RTM_GETNEXTHOP, RTM_GETROUTE, RTM_GETRULE,
};
use homeostat_netlink::{Attrs, Connection, Error, Malformed, Message};

use super::links::Links;
use super::{ENOUGH, dump, taken};
use crate::mark::{Mark, Protocol};

type Finding = Result<Option<Taken>, Malformed>;

/// Everything of these kinds that another owner put there.
pub(super) fn foreign(
    connection: &mut Connection,
    links: &Links,
    mark: &Mark,
) -> Result<Vec<Taken>, Error> {
    let mut found = Vec::new();
    let mut look = |kind: u16, fixed: &[u8], each: &dyn Fn(&Message<'_>) -> Finding| {
        found.extend(dump(connection, kind, fixed, ENOUGH, each)?);
        Ok::<(), Error>(())
    };
    look(RTM_GETADDR, &[0; 8], &|message| address(message, links, mark))?;
    look(RTM_GETROUTE, &[0; 12], &|message| route(message, mark))?;
    look(RTM_GETRULE, &[0; 12], &|message| rule(message, mark))?;
    look(RTM_GETNEXTHOP, &[0; 8], &|message| nexthop(message, mark))?;
    look(RTM_GETNEIGH, &[0; 12], &|message| neighbour(message, links, mark))?;
    Ok(found)
}

fn address(message: &Message<'_>, links: &Links, mark: &Mark) -> Finding {
    let ([_, prefix, _, _, i0, i1, i2, i3], attrs) = message.split::<8>()?;
    let local = attrs.clone().first(IFA_LOCAL)?.or(attrs.clone().first(IFA_ADDRESS)?);
    let Some(ip) = local.and_then(|attr| ip(attr.value)) else { return Ok(None) };
    let owner = match byte(&attrs, IFA_PROTO)? {
        // Kernels before 5.18 keep no mark: what they make by itself is known by its range.
        0 if is_made_by_kernel(ip) => Owner::Kernel,
        protocol => mark.address_owner(Protocol(protocol)),
    };
    let link = links.name(u32::from_ne_bytes([*i0, *i1, *i2, *i3]));
    Ok(taken(format!("address {ip}/{prefix} dev {link}"), owner))
}

fn is_made_by_kernel(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip == Ipv4Addr::LOCALHOST,
        IpAddr::V6(ip) => ip == Ipv6Addr::LOCALHOST || ip.is_unicast_link_local(),
    }
}

fn route(message: &Message<'_>, mark: &Mark) -> Finding {
    let ([_, prefix, _, _, _, protocol, ..], attrs) = message.split::<12>()?;
    let owner = mark.owner(Protocol(*protocol));
    // The text of a route is made only for the few that are foreign.
    if matches!(owner, Owner::Ours | Owner::Kernel) {
        return Ok(None);
    }
    let to = attrs.first(RTA_DST)?.and_then(|attr| ip(attr.value));
    let to = to.map_or_else(|| "default".to_owned(), |to| format!("{to}/{prefix}"));
    Ok(taken(format!("route {to}"), owner))
}

fn rule(message: &Message<'_>, mark: &Mark) -> Finding {
    let (_, attrs) = message.split::<12>()?;
    let protocol = Protocol(byte(&attrs, FRA_PROTOCOL)?);
    let priority = attrs.first(FRA_PRIORITY)?.map_or(Ok(0), |attr| attr.u32())?;
    Ok(taken(format!("rule priority {priority}"), mark.owner(protocol)))
}

fn nexthop(message: &Message<'_>, mark: &Mark) -> Finding {
    let ([_, _, protocol, ..], attrs) = message.split::<8>()?;
    let id = attrs.first(NHA_ID)?.map_or(Ok(0), |attr| attr.u32())?;
    Ok(taken(format!("nexthop {id}"), mark.owner(Protocol(*protocol))))
}

/// A neighbour that is neither permanent nor marked was learned by the kernel.
fn neighbour(message: &Message<'_>, links: &Links, mark: &Mark) -> Finding {
    let ([_, _, _, _, i0, i1, i2, i3, s0, s1, ..], attrs) = message.split::<12>()?;
    let protocol = byte(&attrs, NDA_PROTOCOL)?;
    let is_permanent = u16::from_ne_bytes([*s0, *s1]) & NUD_PERMANENT != 0;
    let Some(ip) = attrs.first(NDA_DST)?.and_then(|attr| ip(attr.value)) else { return Ok(None) };
    if protocol == 0 && !is_permanent {
        return Ok(None);
    }
    let link = links.name(u32::from_ne_bytes([*i0, *i1, *i2, *i3]));
    Ok(taken(format!("neighbour {ip} dev {link}"), mark.owner(Protocol(protocol))))
}

fn byte(attrs: &Attrs<'_>, kind: u16) -> Result<u8, Malformed> {
    attrs.clone().first(kind)?.map_or(Ok(0), |attr| attr.u8())
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
