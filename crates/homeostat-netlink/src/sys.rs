//! The kernel calls for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(unsafe_code, reason = "netlink options, filters and AsyncFd have no safe wrapper")]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::Instruction;

/// Sets an option of `SOL_NETLINK` that takes a number.
pub(crate) fn set_netlink(socket: BorrowedFd<'_>, option: u32, value: u32) -> io::Result<()> {
    set(socket, libc::SOL_NETLINK, option.cast_signed(), &value)
}

/// Sets the send buffer beyond the system's limit.
pub(crate) fn force_send_buffer(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
}

/// Puts a classic BPF program in front of the socket's queue.
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let len = program.len().try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // The kernel only reads through the pointer, although its type is a mutable one.
    let filter = program.as_ptr().cast_mut().cast::<libc::sock_filter>();
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &libc::sock_fprog { len, filter })
}

// `attach_filter` hands the kernel one as the other.
const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
const _: () = assert!(align_of::<Instruction>() == align_of::<libc::sock_filter>());

fn set<T>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let value = std::ptr::from_ref(value).cast::<c_void>();
    // SAFETY: `value` points to `len` readable bytes, and what a filter points to outlives the call too.
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Registers a listener's socket with the runtime that this is called in. The listener must live longer.
#[cfg(feature = "tokio")]
pub(crate) fn watch(socket: c_int) -> io::Result<tokio::io::unix::AsyncFd<c_int>> {
    // SAFETY: `AsyncListener` drops this before the listener, which never replaces its open descriptor.
    let watched = unsafe {
        tokio::io::unix::AsyncFd::register_with_interest(socket, tokio::io::Interest::READABLE)
    };
    watched.map_err(Into::into)
}
