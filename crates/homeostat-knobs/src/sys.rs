//! Registers an inotify queue with the runtime.
#![expect(unsafe_code, reason = "tokio cannot know that a descriptor stays open; we do")]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A queue that can be waited for.
pub(crate) type Waiting = AsyncFd<Arc<OwnedFd>>;

/// Registers the queue with the current runtime, which must have its I/O enabled.
pub(crate) fn register(queue: &Arc<OwnedFd>) -> io::Result<Waiting> {
    // SAFETY: an `OwnedFd` is open and stays the same until it is dropped, and the `Arc` that is
    // handed over keeps it from being dropped for as long as the registration lives.
    let registered =
        unsafe { AsyncFd::register_with_interest(Arc::clone(queue), Interest::READABLE) };
    registered.map_err(|error| error.into_parts().1)
}
