//! Makes tun and tap links, which netlink shows and does not make.

use std::fs::{File, OpenOptions};
use std::io;

use homeostat_core::{Failure, Retry};
use homeostat_netlink::uapi::{
    IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, IFF_TUN, IFF_TUN_EXCL, IFF_VNET_HDR,
};
use homeostat_netns::Netns;

use crate::link::LinkName;
use crate::links::kinds::LinkKind;
use crate::links::kinds::tap::Tap;
use crate::links::tun_sys;

const DEVICE: &str = "/dev/net/tun";

/// Makes a link that stays without a program at its other end. Fails if there is one of that name.
pub(crate) fn create(netns: &Netns, name: LinkName, kind: &LinkKind) -> Result<(), Failure> {
    let (kind, tap) = match kind {
        LinkKind::Tun(tap) => (IFF_TUN, tap),
        LinkKind::Tap(tap) => (IFF_TAP, tap),
        _ => return Ok(()),
    };
    // The namespace of a link is that of the thread that opened the device.
    let made = netns.run(|| make(name, kind | flags(tap), tap));
    match made {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(failure),
        Err(error) => Err(Failure::from_error(&error, Retry::Soon)),
    }
}

fn flags(tap: &Tap) -> u16 {
    let queues = if tap.multi_queue == Some(true) { IFF_MULTI_QUEUE } else { 0 };
    let header = if tap.vnet_hdr == Some(true) { IFF_VNET_HDR } else { 0 };
    IFF_NO_PI | IFF_TUN_EXCL | queues | header
}

fn make(name: LinkName, flags: u16, tap: &Tap) -> Result<(), Failure> {
    let file = open().map_err(|error| missing(&error))?;
    let made = tun_sys::set_link(&file, name.bytes(), flags)
        .and_then(|()| tap.owner.map_or(Ok(()), |user| tun_sys::set_owner(&file, user)))
        .and_then(|()| tap.group.map_or(Ok(()), |group| tun_sys::set_group(&file, group)))
        .and_then(|()| tun_sys::persist(&file));
    made.map_err(|error| {
        Failure::new(format!("{DEVICE} refused to make the link: {error}"), Retry::Soon)
    })
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

fn missing(error: &io::Error) -> Failure {
    let words =
        format!("tun and tap links are made through {DEVICE}, which cannot be opened: {error}");
    Failure::new(words, Retry::OnChange)
        .with_help(format!("modprobe tun, or make the device: mknod {DEVICE} c 10 200"))
}
