//! The four kernel calls for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(
    unsafe_code,
    reason = "unshare, NS_GET_NSTYPE, NS_GET_ID and SO_NETNS_COOKIE have no safe wrapper"
)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// `_IO(0xb7, 3)` of `linux/nsfs.h`; the libc crate does not carry it.
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;

/// `_IOR(0xb7, 13, __u64)` of `linux/nsfs.h`.
const NS_GET_ID: libc::Ioctl = libc::_IOR::<u64>(0xb7, 13);

/// The namespaces that this crate detaches from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Detach {
    /// The calling thread gets an empty network namespace.
    Network,
    /// The calling thread gets its own view of the file system.
    Mounts,
    /// The process gets its own user, network and mount namespace.
    Sandbox,
}

/// Moves the caller into fresh namespaces.
pub(crate) fn detach(what: Detach) -> io::Result<()> {
    let flags = match what {
        Detach::Network => UnshareFlags::NEWNET,
        Detach::Mounts => UnshareFlags::NEWNS,
        Detach::Sandbox => UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS,
    };
    // SAFETY: only `CLONE_FILES` is unsound (it splits the descriptor table), and it is in none of these sets.
    unsafe { unshare_unsafe(flags) }.map_err(Into::into)
}

/// Whether an nsfs descriptor is a *network* namespace.
pub(crate) fn is_netns(nsfs: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: the request takes no argument, so the kernel writes to no memory of ours.
    let kind = unsafe { libc::ioctl(nsfs.as_raw_fd(), NS_GET_NSTYPE) };
    if kind < 0 { Err(io::Error::last_os_error()) } else { Ok(kind == libc::CLONE_NEWNET) }
}

/// The number by which the kernel knows a namespace (Linux 6.18); an error on older kernels.
pub(crate) fn namespace_id(nsfs: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel writes a 64-bit number to `id`, which outlives the call.
    let status = unsafe { libc::ioctl(nsfs.as_raw_fd(), NS_GET_ID, &raw mut id) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}

/// The cookie of the namespace that `socket` lives in (Linux 5.14).
pub(crate) fn netns_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut len: libc::socklen_t = u64::BITS / 8;
    // SAFETY: `cookie` and `len` outlive the call, and `len` is the size of `cookie`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast::<c_void>(),
            &raw mut len,
        )
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}
