//! The four requests to `/dev/net/tun` for which no safe wrapper exists. Nothing else in this crate
//! is unsafe.
#![expect(unsafe_code, reason = "the requests of tun devices have no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use homeostat_netlink::uapi::{TUNSETGROUP, TUNSETIFF, TUNSETOWNER, TUNSETPERSIST};

/// Makes the link of this name and ties it to the open file.
pub(crate) fn set_link(file: &File, name: &[u8; 16], flags: u16) -> io::Result<()> {
    let name = name.map(u8::cast_signed).map(libc::c_char::from);
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: flags.cast_signed() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru };
    // SAFETY: the kernel reads and writes one `ifreq`, which outlives the call.
    let status =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(TUNSETIFF), &raw mut request) };
    answer(status)
}

/// Keeps the link when the file is closed.
pub(crate) fn persist(file: &File) -> io::Result<()> {
    set(file, TUNSETPERSIST, 1)
}

/// Lets a user open the link.
pub(crate) fn set_owner(file: &File, user: u32) -> io::Result<()> {
    set(file, TUNSETOWNER, user)
}

/// Lets a group open the link.
pub(crate) fn set_group(file: &File, group: u32) -> io::Result<()> {
    set(file, TUNSETGROUP, group)
}

fn set(file: &File, request: u32, value: u32) -> io::Result<()> {
    let value = libc::c_ulong::from(value);
    // SAFETY: the request takes its argument by value, so the kernel touches no memory of ours.
    answer(unsafe { libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(request), value) })
}

fn answer(status: libc::c_int) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
