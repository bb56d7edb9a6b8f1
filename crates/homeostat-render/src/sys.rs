//! The one call for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(unsafe_code, reason = "tokio cannot know that a descriptor stays open")]

use std::fs::File;
use std::io;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a file with the current runtime, to wait for what the kernel announces as priority data.
pub(crate) fn register_for_priority(file: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: the file is open, and stays the same and open for as long as the registration owns it.
    let registered = unsafe { AsyncFd::register_with_interest(file, Interest::PRIORITY) };
    registered.map_err(|error| error.into_parts().1)
}
