//! Ways to be the only writer of a scope. Each lock dies with its holder and names it to others.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use homeostat_core::{Excludes, ScopeLock};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;

use crate::error::Error;

/// The lock of a network namespace: an abstract unix socket, whose names are per namespace and
/// vanish with the process.
pub struct NetnsLock {
    _socket: UnixListener,
}

impl Excludes for NetnsLock {}

impl NetnsLock {
    /// Takes the lock of `mark` in the calling thread's network namespace.
    pub fn take(mark: &str) -> Result<ScopeLock, Error> {
        let name =
            SocketAddr::from_abstract_name(format!("homeostat/{mark}")).map_err(Error::Lock)?;
        match UnixListener::bind_addr(&name) {
            Ok(socket) => Ok(ScopeLock::holding(NetnsLock { _socket: socket })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(Error::Locked { holder: listener_of(&name) })
            }
            Err(error) => Err(Error::Lock(error)),
        }
    }
}

/// Asks the kernel who listens: connecting needs no answer from the other side.
fn listener_of(name: &SocketAddr) -> String {
    let holder = UnixStream::connect_addr(name)
        .and_then(|stream| Ok(socket_peercred(stream.as_fd())?))
        .map(|cred| describe(cred.pid.as_raw_nonzero().get(), cred.uid.as_raw()));
    holder.unwrap_or_else(|_| "a process that cannot be named".to_owned())
}

fn describe(pid: i32, uid: u32) -> String {
    let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match program.trim_end() {
        "" => format!("process {pid} of user {uid}"),
        program => format!("process {pid} ({program}) of user {uid}"),
    }
}

/// The lock of a scope without a network namespace: a locked file that holds the process id.
pub struct FileLock {
    _file: std::fs::File,
}

impl Excludes for FileLock {}

impl FileLock {
    /// Takes the lock; makes the file if it is missing.
    pub fn take(path: &Path) -> Result<ScopeLock, Error> {
        use std::io::{Read as _, Write as _};
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(Error::Lock)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            file.read_to_string(&mut holder).map_err(Error::Lock)?;
            return Err(Error::Locked { holder: holder.trim_end().to_owned() });
        }
        let uid = rustix::process::getuid().as_raw();
        let own = describe(std::process::id().cast_signed(), uid);
        file.set_len(0).and_then(|()| writeln!(file, "{own}")).map_err(Error::Lock)?;
        Ok(ScopeLock::holding(FileLock { _file: file }))
    }
}

/// No lock at all, said aloud: for callers whose target has one writer by construction.
pub struct Alone(());

impl Excludes for Alone {}

impl Alone {
    /// The caller vouches that no other process writes in the scope.
    #[must_use]
    pub fn i_am_the_only_writer() -> ScopeLock {
        ScopeLock::holding(Alone(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_of_a_file_lock_is_refused_and_told_who_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = FileLock::take(&path).unwrap();
        let Err(Error::Locked { holder }) = FileLock::take(&path) else { panic!("not refused") };
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        drop(held);
        assert!(FileLock::take(&path).is_ok());
    }

    #[test]
    fn a_second_holder_of_a_namespace_lock_is_refused_and_told_who_holds_it() {
        let mark = format!("test-{}", std::process::id());
        let held = NetnsLock::take(&mark).unwrap();
        let Err(Error::Locked { holder }) = NetnsLock::take(&mark) else { panic!("not refused") };
        assert!(holder.contains(&format!("process {}", std::process::id())), "{holder}");
        assert!(NetnsLock::take(&format!("{mark}-other")).is_ok());
        drop(held);
        assert!(NetnsLock::take(&mark).is_ok());
    }
}
