//! The two calls for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(
    unsafe_code,
    reason = "`unshare` can pull descriptors from under other threads, and tokio cannot know that one stays open"
)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A queue that can be waited for.
pub(crate) type Waiting = AsyncFd<Arc<OwnedFd>>;

/// Registers the queue with the current runtime, which must have its I/O enabled.
pub(crate) fn register(queue: &Arc<OwnedFd>) -> io::Result<Waiting> {
    // SAFETY: an `OwnedFd` is open and stays the same until it is dropped, and the `Arc` that is handed over keeps it from
    // being dropped for as long as the registration lives.
    let registered =
        unsafe { AsyncFd::register_with_interest(Arc::clone(queue), Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}

/// Gives the calling thread mounts, a root directory and System V objects of its own, and its children processes of
/// their own.
pub(crate) fn detach() -> io::Result<()> {
    let flags = UnshareFlags::NEWNS
        | UnshareFlags::FS
        | UnshareFlags::NEWIPC
        | UnshareFlags::SYSVSEM
        | UnshareFlags::NEWPID;
    // SAFETY: descriptors are not among what is unshared, so no thread loses one.
    Ok(unsafe { unshare_unsafe(flags) }?)
}
