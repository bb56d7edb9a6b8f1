//! The control socket: where it is, who may speak, and how much.
//!
//! A slow or hostile client costs one of a few places and some time of its own: it never blocks the
//! daemon. Start at [`ControlSocket::open`].

mod conversation;

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use homeostat_engine::is_exiting;
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::answers::Answers;
use super::clients;
use super::readers::Readers;
use crate::failure::helped;
use crate::referenced_files::directory;
use conversation::Admission;

/// How many clients are served at once.
const CLIENTS: usize = 64;

/// How often is looked whether a daemon that was killed has closed its socket, and how many times: five seconds.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 5000;

/// How many of them may be of the group that only reads: the others find room whatever those do.
const READERS: usize = 32;

/// The open socket. Its file goes with it.
pub(super) struct ControlSocket {
    path: PathBuf,
    /// What distinguishes our file from another one in its place.
    file: (u64, u64),
    accepting: tokio::task::JoinHandle<()>,
}

impl ControlSocket {
    /// Listens at `path`; what a dead daemon left there is replaced, a live one is refused.
    pub(super) fn open(path: &Path, answers: Answers, readers: Option<Readers>) -> Result<Self> {
        let listener = match listen(path) {
            Ok(Bound::Ours(listener)) => {
                // A client that connects before this is refused, or may only read, by its user.
                give_to(path, readers).map(|file| (listener, file))
            }
            Ok(Bound::Held(stream)) => {
                return Err(helped(
                    format!("{} is held by {}", path.display(), holder(stream)),
                    "one daemon an owner and state directory: stop it, or speak with it, as with \
                     `homeostat status` and `homeostat reload`",
                ));
            }
            Err(error) => Err(error),
        };
        let (listener, file) = listener
            .with_context(|| format!("cannot open the control socket {}", path.display()))?;
        let room = Arc::new(Semaphore::new(READERS));
        let accepting = tokio::spawn(clients::serve(
            CLIENTS,
            async move || Ok(listener.accept().await?.0),
            move |stream, asked| {
                let (answers, room) = (answers.clone(), Arc::clone(&room));
                let admission = Admission { readers, room, asked };
                // An error of the connection is the client's own.
                async move { drop(conversation::hold(stream, &answers, &admission).await) }
            },
        ));
        Ok(ControlSocket { path: path.to_owned(), file, accepting })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.accepting.abort();
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // The next daemon replaces a socket without a listener.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Who listens at a path.
enum Bound {
    Ours(UnixListener),
    Held(std::os::unix::net::UnixStream),
}

/// One at a time: of two daemons that find a dead one's socket, the second would remove the first's.
fn listen(path: &Path) -> io::Result<Bound> {
    fs::create_dir_all(directory(path))?;
    let turn = fs::File::open(directory(path))?;
    flock(&turn, FlockOperation::LockExclusive)?;
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {}
        other => return other.map(Bound::Ours),
    }
    let mut looks = 0;
    loop {
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
                return UnixListener::bind(path).map(Bound::Ours);
            }
            Ok(stream) if looks < LOOKS && is_of_exiting(&stream) => {
                looks += 1;
                std::thread::sleep(LOOK);
            }
            other => return other.map(Bound::Held),
        }
    }
}

/// Whether the process that listens at the other end was killed a moment ago.
fn is_of_exiting(stream: &std::os::unix::net::UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|listener| is_exiting(listener.pid))
}

/// Lets the readers connect, and no one else. Returns the identity of the file.
fn give_to(path: &Path, readers: Option<Readers>) -> io::Result<(u64, u64)> {
    if let Some(Readers(group)) = readers {
        std::os::unix::fs::lchown(path, None, Some(group))?;
    }
    let mode = if readers.is_some() { 0o660 } else { 0o600 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    identity(path)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Who listens at the other end.
fn holder(stream: std::os::unix::net::UnixStream) -> String {
    let peer =
        stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)?.peer_cred());
    match peer.map(|peer| (peer.pid(), peer.uid())) {
        Ok((Some(pid), uid)) => format!("a daemon: process {pid} of user {uid}"),
        _ => "a daemon that cannot be named".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener as Other, UnixStream as Client};

    use super::*;

    #[test]
    fn a_socket_that_another_daemon_is_just_replacing_is_left_to_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("default.sock");
        drop(Other::bind(&path).unwrap());
        let turn = fs::File::open(directory.path()).unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _inside = runtime.enter();
                listen(&path).map(|bound| matches!(bound, Bound::Held(_)))
            });
            // Long enough for a thread that does not wait for its turn.
            (0..10_000).for_each(|_| std::thread::yield_now());
            assert!(!second.is_finished(), "it is not its turn");
            fs::remove_file(&path).unwrap();
            let first = Other::bind(&path).unwrap();
            drop(turn);
            assert!(second.join().unwrap().unwrap(), "the first holds it");
            drop((Client::connect(&path).unwrap(), first));
        });
    }
}
