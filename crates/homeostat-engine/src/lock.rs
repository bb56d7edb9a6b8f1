//! Ways to be the only writer of a scope. Each lock dies with its holder and names it to others.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use homeostat_core::{Excludes, ScopeLock};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen,
    shutdown, socket_with,
};
use rustix::process::{Pid, Uid};

use crate::error::Error;

/// How many may ask for the holder's name in its life: they are never taken out of the queue.
const QUEUE: i32 = 4096;
/// `PF_EXITING` of the kernel.
const EXITING: u64 = 4;
/// How often is looked whether a holder that ends has let go, and how many times: five seconds.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 5000;
const UNNAMED: &str = "a process that cannot be named";

/// The lock of a network namespace: abstract unix sockets, whose names are per namespace and
/// vanish with the process.
pub struct NetnsLock {
    sockets: Vec<OwnedFd>,
}

impl Excludes for NetnsLock {}

impl Drop for NetnsLock {
    /// A process that another thread is about to start has copies of the sockets until it runs its program. Who meets such
    /// a copy sees that nobody listens any more.
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = shutdown(socket, Shutdown::Both);
        }
    }
}

impl NetnsLock {
    /// Takes all of these names in the calling thread's network namespace, or none: a process that asks for one of them
    /// is refused.
    pub fn take(names: &[impl AsRef<str>]) -> Result<ScopeLock, Error> {
        let sockets: Result<_, Error> = names.iter().map(|name| hold(name.as_ref())).collect();
        Ok(ScopeLock::holding(NetnsLock { sockets: sockets? }))
    }

    /// The names of an owner and of its mark: who shares one of them with another would undo its work.
    #[must_use]
    pub fn names(owner: &str, protocol: u8) -> [String; 2] {
        [format!("owner/{owner}"), format!("protocol/{protocol}")]
    }
}

fn hold(name: &str) -> Result<OwnedFd, Error> {
    let failed = |error: Errno| Error::Lock(error.into());
    let name = address(name).map_err(failed)?;
    let socket = open(SocketFlags::CLOEXEC).map_err(failed)?;
    let mut looks = 0;
    loop {
        match bind(&socket, &name).and_then(|()| listen(&socket, QUEUE)) {
            Ok(()) => return Ok(socket),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(failed(error)),
        }
        let holder = holder_of(&name);
        let is_let_go = match &holder {
            Ok(holder) => holder.is_exiting(),
            Err(error) => *error == Errno::CONNREFUSED,
        };
        if looks == LOOKS || !is_let_go {
            let holder = holder.map_or_else(|_| UNNAMED.to_owned(), |holder| holder.to_string());
            return Err(Error::Locked { holder });
        }
        looks += 1;
        std::thread::sleep(LOOK);
    }
}

fn address(name: &str) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("homeostat/{name}").as_bytes())
}

fn open(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The process that holds a lock.
struct Holder {
    pid: Pid,
    uid: Uid,
}

impl Holder {
    fn is_exiting(&self) -> bool {
        is_exiting(self.pid)
    }
}

/// Whether a process has ended or was killed. The kernel closes its files and sockets in a moment, and then releases what
/// they lock.
#[must_use]
pub fn is_exiting(pid: Pid) -> bool {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let Ok(stat) = std::fs::read_to_string(path) else { return true };
    // Behind the name, which may hold anything: state, five ids, flags.
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6));
    flags.and_then(|flags| flags.parse().ok()).is_some_and(|flags: u64| flags & EXITING != 0)
}

impl fmt::Display for Holder {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, uid) = (self.pid.as_raw_nonzero(), self.uid.as_raw());
        let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match program.trim_end() {
            "" => write!(to, "process {pid} of user {uid}"),
            program => write!(to, "process {pid} ({program}) of user {uid}"),
        }
    }
}

/// Asks the kernel who listens: connecting needs no answer from the other side. It must not wait, since a queue that is
/// full of those who asked before never empties.
fn holder_of(name: &SocketAddrUnix) -> rustix::io::Result<Holder> {
    let socket = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    connect(&socket, name)?;
    let listener = socket_peercred(&socket)?;
    Ok(Holder { pid: listener.pid, uid: listener.uid })
}

/// The lock of a state directory: a locked file in it, which says who holds it. For targets that are not a network
/// namespace of this machine.
pub struct FileLock {
    file: File,
}

impl Excludes for FileLock {}

impl Drop for FileLock {
    /// Also for the copies in processes that another thread is about to start.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl FileLock {
    /// Takes the lock of an owner and a source in a directory, which is made if it is missing. The file stays
    /// when the lock is let go: another process may wait for this very file.
    pub fn take(directory: &Path, owner: &str, source: &str) -> Result<ScopeLock, Error> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(Error::Lock)?;
        let path = directory.join(format!("{}.lock", file_name(&[owner, source])));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(Error::Lock)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // A holder that has not written its name yet cannot be named.
                let _ = file.read_to_string(&mut holder);
                let is_named = !holder.trim().is_empty();
                return Err(Error::Locked {
                    holder: if is_named { holder } else { UNNAMED.to_owned() },
                });
            }
            Err(error) => return Err(Error::Lock(error.into())),
        }
        let holder = format!("process {}", std::process::id());
        let written = file.set_len(0).and_then(|()| file.rewind());
        written.and_then(|()| file.write_all(holder.as_bytes())).map_err(Error::Lock)?;
        Ok(ScopeLock::holding(FileLock { file }))
    }
}

/// One name of a file for several names, none of which can lead out of the directory or be taken for another.
fn file_name(parts: &[&str]) -> String {
    let plain = |part: &&str| -> String {
        let letter = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => char::from(byte).to_string(),
            other => format!("_{other:02x}"),
        };
        part.bytes().map(letter).collect()
    };
    parts.iter().map(plain).collect::<Vec<_>>().join(".")
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

    fn name(of: &str) -> String {
        format!("test-{}/{of}", std::process::id())
    }

    /// As another thread has it that starts a program at this moment.
    #[test]
    fn a_copy_of_a_lock_that_was_let_go_holds_nobody_up_for_long() {
        for round in 0..200 {
            let name = name("copied");
            let lock = NetnsLock { sockets: vec![hold(&name).unwrap()] };
            let copy = lock.sockets[0].try_clone().unwrap();
            drop(lock);
            let runs_its_program = std::thread::spawn(move || drop(copy));
            let again = NetnsLock::take(&[&name]);
            assert!(again.is_ok(), "round {round}: {:?}", again.err());
            runs_its_program.join().unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let _copy = file.try_clone().unwrap();
        drop(FileLock { file });
        let again = File::open(directory.path().join("file")).unwrap();
        flock(again, FlockOperation::NonBlockingLockExclusive).unwrap();
    }

    #[test]
    fn a_second_holder_of_a_namespace_lock_is_refused_and_learns_who_holds_it() {
        let (mine, other) = (name("second"), name("other"));
        let held = NetnsLock::take(&[&mine]).unwrap();
        let Err(Error::Locked { holder }) = NetnsLock::take(&[&mine]) else {
            panic!("not refused")
        };
        assert!(holder.contains(&format!("process {}", std::process::id())), "{holder}");
        assert!(NetnsLock::take(&[&other]).is_ok());
        drop(held);
        assert!(NetnsLock::take(&[&mine]).is_ok());
    }

    #[test]
    fn a_second_holder_of_a_directory_is_refused_and_learns_who_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let take = |owner: &str| FileLock::take(directory.path(), owner, "lamps");
        let held = take("me").unwrap();
        let Err(Error::Locked { holder }) = take("me") else { panic!("not refused") };
        assert_eq!(holder, format!("process {}", std::process::id()));
        assert!(take("../me").is_ok(), "another owner, and a name that is no path");
        drop(held);
        assert!(take("me").is_ok());
    }

    #[test]
    fn of_several_names_all_are_held_or_none() {
        let [one, two, three] = ["one", "two", "three"].map(name);
        let held = NetnsLock::take(&[&one, &two]).unwrap();
        assert!(NetnsLock::take(&[&one]).is_err());
        assert!(matches!(NetnsLock::take(&[&three, &two]), Err(Error::Locked { .. })));
        assert!(NetnsLock::take(&[&three]).is_ok(), "a refused try held on to its first name");
        drop(held);
        assert!(NetnsLock::take(&[&one, &two, &three]).is_ok());
    }

    #[test]
    fn a_holder_whose_queue_is_full_of_askers_is_not_waited_for() {
        let mine = name("full");
        let holder = open(SocketFlags::CLOEXEC).unwrap();
        bind(&holder, &address(&mine).unwrap()).unwrap();
        listen(&holder, 0).unwrap();
        let ask = || match NetnsLock::take(&[&mine]) {
            Err(Error::Locked { holder }) => holder,
            other => panic!("not refused: {:?}", other.err()),
        };
        assert!(ask().starts_with("process "), "a queue of no length takes one");
        assert_eq!(ask(), "a process that cannot be named");
    }
}
