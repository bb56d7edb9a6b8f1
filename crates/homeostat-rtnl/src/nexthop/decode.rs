//! Reads nexthops out of the kernel's messages.

use homeostat_netlink::uapi::{
    NEXTHOP_GRP_TYPE_RES, NHA_BLACKHOLE, NHA_ENCAP, NHA_FDB, NHA_GATEWAY, NHA_GROUP,
    NHA_GROUP_TYPE, NHA_ID, NHA_OIF, RTNH_F_ONLINK,
};
use homeostat_netlink::{Attr, Malformed, Message};

use crate::decode::ip;
use crate::family::Family;
use crate::link::{IfIndex, Links};
use crate::nexthop::{Member, Nexthop, NexthopId, Unusual};
use crate::number::Protocol;

/// A nexthop as the kernel tells it.
pub(crate) struct SeenNexthop {
    pub(crate) id: NexthopId,
    pub(crate) nexthop: Nexthop,
    pub(crate) protocol: Protocol,
}

/// A nexthop; none, if it has no number.
pub(crate) fn nexthop(
    message: &Message<'_>,
    links: &Links,
) -> Result<Option<SeenNexthop>, Malformed> {
    let (fixed, attrs) = message.split::<8>()?;
    let [family, _scope, protocol, _, f0, f1, f2, f3] = *fixed;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let mut nexthop = Nexthop { family: Family::from_kernel(family), ..Nexthop::default() };
    let mut id = None;
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            NHA_ID => id = Some(NexthopId(attr.u32()?)),
            NHA_OIF => nexthop.dev = Some(links.name(IfIndex(attr.u32()?))),
            NHA_GATEWAY => nexthop.via = Some(ip(&attr)?),
            NHA_BLACKHOLE => nexthop.blackhole = true,
            NHA_GROUP => nexthop.group = members(&attr)?,
            NHA_ENCAP => nexthop.unusual = Some(Unusual::Encapsulated),
            NHA_FDB => nexthop.unusual = Some(Unusual::Fdb),
            NHA_GROUP_TYPE if attr.u16()? == NEXTHOP_GRP_TYPE_RES => {
                nexthop.unusual = Some(Unusual::Resilient);
            }
            _ => {}
        }
    }
    if nexthop.is_group() {
        nexthop.family = None;
    } else if !nexthop.blackhole {
        nexthop.onlink = Some(flags & RTNH_F_ONLINK != 0);
    }
    Ok(id.map(|id| SeenNexthop { id, nexthop, protocol: Protocol(protocol) }))
}

/// The kernel counts weights from zero, in a byte and, since 6.12, in a second one above it.
fn members(attr: &Attr<'_>) -> Result<Vec<Member>, Malformed> {
    let (entries, rest) = attr.value.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Malformed::Value { kind: attr.kind, len: attr.value.len() });
    }
    let member = |[i0, i1, i2, i3, low, high, ..]: &[u8; 8]| Member {
        id: NexthopId(u32::from_ne_bytes([*i0, *i1, *i2, *i3])),
        weight: u16::from_le_bytes([*low, *high]).saturating_add(1),
    };
    let mut members: Vec<Member> = entries.iter().map(member).collect();
    members.sort_unstable();
    Ok(members)
}
