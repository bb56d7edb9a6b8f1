//! A network namespace, pinned by an open descriptor.
//!
//! The descriptor keeps the namespace alive even when its name and its last process are gone:
//! who watches for that has to drop the [`Netns`] too.

use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::fs::{Mode, OFlags, fstat, fstatfs, open};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::named::names;
use crate::sys::{self, Detach};
use crate::{Cookie, Error, Name, Place, Result};

/// The magic of the file system that namespaces live on: "nsfs".
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// A network namespace that lives at least as long as this value.
#[derive(Debug)]
pub struct Netns {
    file: File,
}

impl Netns {
    /// The namespace of the calling *thread*, which may differ from that of its process.
    pub fn current() -> Result<Self> {
        Self::at("/proc/thread-self/ns/net")
    }

    /// The namespace that `ip netns` knows by this name.
    pub fn named(name: &Name) -> Result<Self> {
        Self::open(&Place::Named(name.clone()))
    }

    /// The namespace that the file at `path` is.
    pub fn at(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(&Place::At(path.as_ref().into()))
    }

    /// The namespace that a descriptor refers to, such as one that a container runtime passed on.
    pub fn of_fd(fd: impl AsFd) -> Result<Self> {
        Self::at(format!("/proc/thread-self/fd/{}", fd.as_fd().as_raw_fd()))
    }

    /// Pins the namespace at `place`; what is there must be a network namespace.
    pub fn open(place: &Place) -> Result<Self> {
        let found = locate(&place.path()).map_err(|source| refused(place, source))?;
        let pinned = pin(&found).map_err(|source| Error::Open { place: place.clone(), source })?;
        pinned.map(|file| Self { file }).ok_or_else(|| Error::NotNetns { place: place.clone() })
    }

    /// A fresh namespace without a name: it goes when this value and all who entered it are gone.
    pub fn anonymous() -> Result<Self> {
        on_thread(|| {
            sys::detach(Detach::Network).map_err(|source| Error::Detach { source })?;
            Self::current()
        })?
    }

    /// Moves the calling thread into the namespace, for good: for threads that spend their whole life there.
    ///
    /// Entering the namespace that the thread is already in needs no privileges.
    pub fn enter(&self) -> Result<()> {
        if self.same_as(&Self::current()?)? {
            return Ok(());
        }
        move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|source| Error::Enter { source: source.into() })
    }

    /// Runs `work` on a fresh thread inside the namespace and waits for it; the caller's thread stays where it is.
    ///
    /// The thread is a fresh one also when the namespace is the caller's own, so that `work` never
    /// meets the caller's thread-local state in one case and not in the other. A panic becomes
    /// [`Error::Panicked`].
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_thread(|| self.enter().map(|()| work()))?
    }

    /// What identifies the namespace until the next boot (Linux 5.14).
    ///
    /// Since Linux 6.18 the cookie is the id of the namespace, which an open descriptor is enough to read. Before,
    /// only a socket inside knows it, and for that a thread has to enter.
    pub fn cookie(&self) -> Result<Cookie> {
        if let Ok(id) = sys::namespace_id(self.as_fd()) {
            return Ok(Cookie(id));
        }
        self.run(own_cookie)?.map(Cookie).map_err(|source| Error::Cookie { source })
    }

    /// Whether both are one namespace. Sound because both are pinned: an inode in use is not reused.
    pub fn same_as(&self, other: &Self) -> Result<bool> {
        Ok(self.inode()? == other.inode()?)
    }

    fn inode(&self) -> Result<(u64, u64)> {
        let stat = fstat(&self.file).map_err(|source| Error::Stat { source: source.into() })?;
        Ok((stat.st_dev, stat.st_ino))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn refused(place: &Place, source: io::Error) -> Error {
    match place {
        _ if source.kind() != io::ErrorKind::NotFound => {
            Error::Open { place: place.clone(), source }
        }
        Place::Named(name) => {
            // The list only helps; failing to read it must not hide what was asked for.
            Error::NoSuchName { name: name.clone(), known: names().unwrap_or_default() }
        }
        Place::At(path) => Error::NoSuchPath { path: path.clone() },
        Place::OfPid(pid) => Error::NoSuchProcess { pid: *pid },
    }
}

/// Finds the file without opening it: opening a pipe would wait, and opening a device may act.
fn locate(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens what was found if it is a network namespace.
fn pin(found: &OwnedFd) -> io::Result<Option<File>> {
    if u64::try_from(fstatfs(found)?.f_type) != Ok(NSFS_MAGIC) {
        return Ok(None);
    }
    let file = File::open(format!("/proc/thread-self/fd/{}", found.as_raw_fd()))?;
    Ok(sys::is_netns(file.as_fd())?.then_some(file))
}

fn own_cookie() -> io::Result<u64> {
    let socket = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    sys::netns_cookie(socket.as_fd())
}

/// Runs `work` on a fresh thread that ends with it.
pub(crate) fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)
            .map_err(|source| Error::Thread { source })?;
        thread.join().map_err(|panic| Error::Panicked { message: message(panic.as_ref()) })
    })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let literal = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    literal
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_own_namespace_is_entered_without_privileges_and_lends_its_locals() {
        let mut seen = Vec::new();
        let here = Netns::current().unwrap();
        here.run(|| seen.push(Netns::current().unwrap())).unwrap();
        assert!(here.same_as(&seen[0]).unwrap());
    }

    #[test]
    fn a_cookie_is_the_one_that_a_socket_inside_has() {
        let here = Netns::current().unwrap();
        assert_eq!(here.cookie().unwrap(), Cookie(own_cookie().unwrap()));
    }

    #[test]
    fn a_panic_inside_is_an_error_that_carries_its_message() {
        let here = Netns::current().unwrap();
        let message = |error| match error {
            Error::Panicked { message } => message,
            other => panic!("{other}"),
        };
        let literal = here.run::<()>(|| panic!("plain")).unwrap_err();
        assert_eq!(message(literal), "plain");
        let formatted = here.run::<()>(|| panic!("number {}", 7)).unwrap_err();
        assert_eq!(message(formatted), "number 7");
    }

    #[test]
    fn only_a_network_namespace_is_taken_for_one() {
        for path in ["/proc/self/status", "/proc/self/ns/user", "/dev/null", "/"] {
            let error = Netns::at(path).unwrap_err();
            assert!(matches!(error, Error::NotNetns { .. }), "{path}: {error}");
        }
    }

    #[test]
    fn a_descriptor_is_taken_if_it_is_one_of_a_network_namespace() {
        let other = Netns::anonymous().unwrap();
        assert!(Netns::of_fd(&other).unwrap().same_as(&other).unwrap());
        let null = File::open("/dev/null").unwrap();
        assert!(matches!(Netns::of_fd(&null), Err(Error::NotNetns { .. })));
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_its_writer() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).unwrap();
        assert!(matches!(Netns::at(&pipe), Err(Error::NotNetns { .. })));
    }

    #[test]
    fn what_is_not_there_is_said_by_its_kind() {
        let gone = Netns::open(&Place::OfPid(u32::MAX)).unwrap_err();
        assert!(matches!(gone, Error::NoSuchProcess { .. }), "{gone}");
        assert!(gone.help().unwrap().contains("/run/netns/4294967295"), "{:?}", gone.help());
        let missing = Netns::at("/proc/self/ns/blue").unwrap_err();
        assert!(matches!(missing, Error::NoSuchPath { .. }), "{missing}");
    }

    #[test]
    fn a_processs_namespace_is_found_by_its_pid() {
        let by_pid = Netns::open(&Place::OfPid(std::process::id())).unwrap();
        assert!(by_pid.same_as(&Netns::current().unwrap()).unwrap());
    }
}
