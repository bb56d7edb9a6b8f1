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

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::answers::Answers;
use super::readers::Readers;
use crate::failure::Helped;
use crate::referenced_files::directory;

/// How many clients are served at once; others wait in the kernel's queue.
const CLIENTS: usize = 32;

/// The open socket. Its file goes with it.
pub(super) struct ControlSocket {
    path: PathBuf,
    /// What tells our file from one that somebody put in its place.
    file: (u64, u64),
    accepting: tokio::task::JoinHandle<()>,
}

impl ControlSocket {
    /// Listens at `path`; what a dead daemon left there is replaced, a live one is refused.
    pub(super) fn open(path: &Path, answers: Answers, readers: Option<Readers>) -> Result<Self> {
        let whole = || format!("cannot open the control socket {}", path.display());
        make_directory(path).with_context(whole)?;
        let listener = listen(path)?;
        // Whoever connects before this is refused, or may only read, by who they are.
        if let Some(Readers(group)) = readers {
            std::os::unix::fs::lchown(path, None, Some(group)).with_context(whole)?;
        }
        let mode = if readers.is_some() { 0o660 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(whole)?;
        let file = identity(path).with_context(whole)?;
        let accepting = tokio::spawn(accept(listener, answers, readers));
        Ok(ControlSocket { path: path.to_owned(), file, accepting })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.accepting.abort();
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            // Who finds a socket without a listener replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// One at a time: of two daemons that find a dead one's socket, the second would remove the first's.
fn listen(path: &Path) -> Result<UnixListener> {
    let whole = || format!("cannot open the control socket {}", path.display());
    let turn = fs::File::open(directory(path)).with_context(whole)?;
    flock(&turn, FlockOperation::LockExclusive).with_context(whole)?;
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => replace(path),
        other => other.with_context(whole),
    }
}

/// Listens in place of a daemon that is dead.
fn replace(path: &Path) -> Result<UnixListener> {
    let whole = || format!("cannot open the control socket {}", path.display());
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(whole)?;
            UnixListener::bind(path).with_context(whole)
        }
        Err(error) => Err(error).with_context(whole),
        Ok(stream) => Err(Helped::error(
            format!("{} is held by {}", path.display(), holder(stream)),
            "one daemon an owner and state directory: stop it, or speak with it, as with \
             `homeostat status` and `homeostat reload`",
        )),
    }
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

async fn accept(listener: UnixListener, answers: Answers, readers: Option<Readers>) {
    let places = Arc::new(Semaphore::new(CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let answers = answers.clone();
                tokio::spawn(async move {
                    // A client that cannot be spoken with is told nothing.
                    let _ = conversation::hold(stream, &answers, readers).await;
                    drop(place);
                });
            }
            // Out of descriptors: others will be closed.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
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
                listen(&path).map(drop)
            });
            // Long enough for whoever does not wait for their turn.
            (0..10_000).for_each(|_| std::thread::yield_now());
            assert!(!second.is_finished(), "it is not its turn");
            fs::remove_file(&path).unwrap();
            let first = Other::bind(&path).unwrap();
            drop(turn);
            let refused = second.join().unwrap().unwrap_err();
            assert!(refused.to_string().contains("is held by a daemon"), "{refused}");
            drop((Client::connect(&path).unwrap(), first));
        });
    }
}
