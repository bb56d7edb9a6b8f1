//! The call for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(unsafe_code, reason = "AsyncFd has no safe wrapper for any descriptor")]

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
