//! The calls for which no safe wrapper exists. Nothing else in this crate is unsafe.
#![expect(
    unsafe_code,
    reason = "`unshare` can pull descriptors from under other threads, tokio cannot know that one stays open, and rustix has no fanotify"
)]

use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::{io, ptr};

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

/// What is watched for in a directory.
const MASK: u64 = libc::FAN_CLOSE_WRITE
    | libc::FAN_ATTRIB
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_MOVE_SELF
    | libc::FAN_DELETE_SELF
    | libc::FAN_EVENT_ON_CHILD
    | libc::FAN_ONDIR;

/// A queue of notices with names and processes.
pub(crate) fn fanotify() -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_REPORT_DFID_NAME
        | libc::FAN_REPORT_PIDFD;
    // SAFETY: the call takes numbers only.
    let raw = unsafe { libc::fanotify_init(flags, libc::O_RDONLY.cast_unsigned()) };
    received(raw).ok_or_else(io::Error::last_os_error)
}

/// Takes a descriptor that the kernel has just opened for us; none, if it is an error.
pub(crate) fn received(raw: RawFd) -> Option<OwnedFd> {
    // SAFETY: the two callers have it from the kernel, which has made it for them, and nobody else knows it.
    (raw >= 0).then(|| unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Watches a directory.
pub(crate) fn watch(queue: &OwnedFd, directory: impl AsFd) -> io::Result<()> {
    let directory = directory.as_fd().as_raw_fd();
    // SAFETY: both descriptors are open, and without a path the directory itself is meant.
    let marked = unsafe {
        libc::fanotify_mark(queue.as_raw_fd(), libc::FAN_MARK_ADD, MASK, directory, ptr::null())
    };
    if marked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives up all that is watched.
pub(crate) fn watch_nothing(queue: &OwnedFd) {
    // SAFETY: the queue is open; nothing else is looked at.
    unsafe {
        libc::fanotify_mark(
            queue.as_raw_fd(),
            libc::FAN_MARK_FLUSH,
            0,
            libc::AT_FDCWD,
            ptr::null(),
        );
    }
}

/// What distinguishes a directory from all others, as notices name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle {
    file_system: u64,
    kind: i32,
    bytes: Vec<u8>,
}

/// The most bytes that a handle has.
const LONGEST: usize = 128;

/// A handle as the kernel writes it.
#[repr(C)]
struct RawHandle {
    length: u32,
    kind: i32,
    bytes: [u8; LONGEST],
}

impl Handle {
    pub(crate) fn of(directory: &OwnedFd) -> io::Result<Self> {
        /// For comparison only, which more file systems can.
        const FOR_COMPARISON: i32 = 0x200;
        let file_system = rustix::fs::fstatvfs(directory)?.f_fsid;
        let plain = libc::AT_EMPTY_PATH;
        let raw = raw_handle(directory, plain | FOR_COMPARISON);
        // Kernels before 6.5 do not know it.
        let raw = raw.or_else(|_| raw_handle(directory, plain))?;
        let length = usize::try_from(raw.length).unwrap_or(LONGEST).min(LONGEST);
        let bytes = raw.bytes.get(..length).unwrap_or_default().to_vec();
        Ok(Handle { file_system, kind: raw.kind, bytes })
    }

    /// From a notice: file system, length, kind, bytes; and what follows.
    pub(crate) fn parse(record: &[u8]) -> Option<(Self, &[u8])> {
        let (file_system, rest) = record.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (kind, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
        let (bytes, rest) = rest.split_at_checked(length)?;
        let (file_system, kind) = (u64::from_ne_bytes(*file_system), i32::from_ne_bytes(*kind));
        Some((Handle { file_system, kind, bytes: bytes.to_vec() }, rest))
    }
}

fn raw_handle(directory: &OwnedFd, flags: i32) -> io::Result<RawHandle> {
    let most = u32::try_from(LONGEST).unwrap_or_default();
    let (mut raw, mut mount) = (RawHandle { length: most, kind: 0, bytes: [0; LONGEST] }, 0);
    // SAFETY: the handle has the layout that the kernel expects and says how many bytes follow; the path is empty.
    let named = unsafe {
        libc::name_to_handle_at(
            directory.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut raw).cast(),
            &raw mut mount,
            flags,
        )
    };
    if named == 0 { Ok(raw) } else { Err(io::Error::last_os_error()) }
}
