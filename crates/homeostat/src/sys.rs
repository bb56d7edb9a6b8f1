//! The calls for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(
    unsafe_code,
    reason = "neither AsyncFd for any descriptor nor adjtimex has a safe wrapper"
)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor whose readiness is waited for.
pub(crate) fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    Ok(registered?)
}

/// Whether the kernel takes its clock for synchronized.
pub(crate) fn is_clock_synchronized() -> bool {
    // SAFETY: all bytes zero is a valid `timex`, and says that nothing is to be changed.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to the structure, which lives longer than the call.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    result >= 0 && result != libc::TIME_ERROR
}
