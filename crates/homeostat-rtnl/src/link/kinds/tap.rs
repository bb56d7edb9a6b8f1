//! A link whose other end is a program. Netlink shows it, but only `/dev/net/tun` creates it.

use std::fs::OpenOptions;

use homeostat_core::{Failure, Retry};
use homeostat_netlink::uapi::{
    IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, IFF_TUN, IFF_TUN_EXCL, IFF_VNET_HDR, IFLA_TUN_GROUP,
    IFLA_TUN_MULTI_QUEUE, IFLA_TUN_OWNER, IFLA_TUN_TYPE, IFLA_TUN_VNET_HDR,
};
use homeostat_netlink::{Attrs, Malformed, MessageWriter};
use homeostat_netns::Netns;

use crate::link::kinds::behaviour::{Behaviour, OwnMac};
use crate::link::kinds::options::{Options, options};
use crate::link::kinds::{LinkKind, Refs};
use crate::link::{LinkName, tun_sys};

options! {
    /// Options of a tun or tap device.
    Tap [] {
        owner: u32 = "owner", "The user who may open it", ("a numeric user or group id", 0..=u32::MAX - 1) => IFLA_TUN_OWNER;
        group: u32 = "group", "The group that may open it", ("a numeric user or group id", 0..=u32::MAX - 1) => IFLA_TUN_GROUP;
        multi_queue: bool = "multi-queue", "Whether it has several queues" => IFLA_TUN_MULTI_QUEUE;
        vnet_hdr: bool = "vnet-hdr", "Whether frames have a header for offloads" => IFLA_TUN_VNET_HDR;
    }
}

pub(crate) const TUN: Behaviour = Behaviour { mac: OwnMac::None, ..TAP };

pub(crate) const TAP: Behaviour = Behaviour { is_tun: true, ..Behaviour::PLAIN };

impl Options for Tap {
    /// Both kinds have one name in the kernel.
    fn kernel_name(&self) -> Option<&'static str> {
        Some("tun")
    }

    /// Netlink takes none of them.
    fn encode(&self, _data: &mut MessageWriter<'_>, _refs: &Refs) {}
}

/// Reads which of the two kinds it is.
pub(crate) fn decode_kind(data: Attrs<'_>) -> Result<LinkKind, Malformed> {
    let kind = data.clone().first(IFLA_TUN_TYPE)?.map(|attr| attr.u8()).transpose()?;
    let tap = Tap::decode(data, &mut Refs::default())?;
    let is_tap = kind.is_some_and(|kind| u16::from(kind) == IFF_TAP);
    Ok(if is_tap { LinkKind::Tap(tap) } else { LinkKind::Tun(tap) })
}

const DEVICE: &str = "/dev/net/tun";

/// Creates a link that stays without a program at its other end. Fails if there is one of that name.
pub(crate) fn create(netns: &Netns, name: LinkName, kind: &LinkKind) -> Result<(), Failure> {
    let (kind, tap) = match kind {
        LinkKind::Tun(tap) => (IFF_TUN, tap),
        LinkKind::Tap(tap) => (IFF_TAP, tap),
        _ => return Ok(()),
    };
    let queues = if tap.multi_queue == Some(true) { IFF_MULTI_QUEUE } else { 0 };
    let header = if tap.vnet_hdr == Some(true) { IFF_VNET_HDR } else { 0 };
    let flags = kind | IFF_NO_PI | IFF_TUN_EXCL | queues | header;
    // The namespace of a link is that of the thread that opened the device.
    netns
        .run(|| create_here(name, flags, tap))
        .unwrap_or_else(|error| Err(Failure::from_error(&error, Retry::Soon)))
}

fn create_here(name: LinkName, flags: u16, tap: &Tap) -> Result<(), Failure> {
    let file = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|error| {
        let message =
            format!("tun and tap links are made through {DEVICE}, which cannot be opened: {error}");
        Failure::new(message, Retry::OnChange)
            .with_help(format!("modprobe tun, or make the device: mknod {DEVICE} c 10 200"))
    })?;
    let made = tun_sys::set_link(&file, name.bytes(), flags)
        .and_then(|()| tap.owner.map_or(Ok(()), |user| tun_sys::set_owner(&file, user)))
        .and_then(|()| tap.group.map_or(Ok(()), |group| tun_sys::set_group(&file, group)))
        .and_then(|()| tun_sys::persist(&file));
    made.map_err(|error| {
        Failure::new(format!("{DEVICE} refused to make the link: {error}"), Retry::Soon)
    })
}
