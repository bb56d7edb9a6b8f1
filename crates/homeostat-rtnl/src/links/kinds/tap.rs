//! A link whose other end is a program. Netlink shows it, but only `/dev/net/tun` makes it.

use homeostat_netlink::uapi::{
    IFF_TAP, IFLA_TUN_GROUP, IFLA_TUN_MULTI_QUEUE, IFLA_TUN_OWNER, IFLA_TUN_TYPE, IFLA_TUN_VNET_HDR,
};
use homeostat_netlink::{Attrs, Malformed};

use crate::links::kinds::{LinkKind, options};
#[cfg(feature = "document")]
use homeostat_document::Number;

#[cfg(feature = "document")]
const UID: Number<u32> =
    Number { what: "a numeric user or group id", least: 0, most: u32::MAX - 1 };

options! {
    /// Options of a tun or tap device.
    Tap [] {
        owner: u32 = "owner", "The user who may open it", UID;
        group: u32 = "group", "The group that may open it", UID;
        multi_queue: bool = "multi-queue", "Whether it has several queues";
        vnet_hdr: bool = "vnet-hdr", "Whether frames have a header for offloads";
    }
}

pub(crate) fn decode(data: Attrs<'_>) -> Result<LinkKind, Malformed> {
    let (mut tap, mut is_tap) = (Tap::default(), false);
    for attr in data {
        let attr = attr?;
        match attr.kind {
            IFLA_TUN_TYPE => is_tap = u16::from(attr.u8()?) == IFF_TAP,
            IFLA_TUN_OWNER => tap.owner = Some(attr.u32()?),
            IFLA_TUN_GROUP => tap.group = Some(attr.u32()?),
            IFLA_TUN_MULTI_QUEUE => tap.multi_queue = Some(attr.u8()? != 0),
            IFLA_TUN_VNET_HDR => tap.vnet_hdr = Some(attr.u8()? != 0),
            _ => {}
        }
    }
    Ok(if is_tap { LinkKind::Tap(tap) } else { LinkKind::Tun(tap) })
}
