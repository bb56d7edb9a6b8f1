//! Makes and removes named namespaces, so that `ip netns` and we see the same ones.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount,
};

use crate::name::DIRECTORY;
use crate::netns::on_thread;
use crate::sys::{self, Detach};
use crate::{Error, Name, Netns, Result};

/// Makes a namespace of this name. Its `lo` is down, as the kernel leaves it.
///
/// On failure nothing of it remains. A process that is killed in the middle leaves at most an empty file:
/// [`create_over_leftover`] goes on from there, [`remove_leftover`] goes back.
pub fn create(name: &Name) -> Result<Netns> {
    let _lock = prepare_directory().map_err(|source| Error::PrepareDirectory { source })?;
    let path = reserve(name)?;
    let made = mount_fresh(name, &path);
    if made.is_err() {
        // The first error is the one to report; a file that stays is reported by the next `create`.
        let _ = fs::remove_file(&path);
    }
    made
}

/// Makes a namespace on the empty file that an interrupted [`create`] left. On failure the file stays.
///
/// Only for a file that the caller knows to be its own: `ip netns add` has one like it for a moment.
pub fn create_over_leftover(name: &Name) -> Result<Netns> {
    let _lock = prepare_directory().map_err(|source| Error::PrepareDirectory { source })?;
    if !is_leftover(name) {
        return Err(Error::NotLeftover { name: name.clone() });
    }
    mount_fresh(name, &name.path())
}

/// Whether this name is only a file, as an interrupted [`create`] leaves it: empty, with nothing mounted on it.
#[must_use]
pub fn is_leftover(name: &Name) -> bool {
    let is_empty_file = |file: &fs::Metadata| file.is_file() && file.len() == 0;
    // Namespaces look like empty files, too.
    fs::symlink_metadata(name.path()).is_ok_and(|file| is_empty_file(&file))
        && matches!(Netns::named(name), Err(Error::NotNetns { .. }))
}

/// Removes the empty file that an interrupted [`create`] left; false if there is nothing of this name.
pub fn remove_leftover(name: &Name) -> Result<bool> {
    let path = name.path();
    if !is_leftover(name) {
        let is_gone = fs::symlink_metadata(&path).is_err_and(|error| is_missing(&error));
        return if is_gone { Ok(false) } else { Err(Error::NotLeftover { name: name.clone() }) };
    }
    // Never unmounts: a namespace that was mounted meanwhile keeps the file busy.
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(Error::NotLeftover { name: name.clone() })
        }
        removed => removed_or_missing(name, removed),
    }
}

/// Takes the name away; false if there was none. The namespace itself lives on while a process or a descriptor holds it.
///
/// The mount and the file go in one step, so that a kill leaves the whole name or nothing.
pub fn remove(name: &Name) -> Result<bool> {
    let path = name.path();
    removed_or_missing(name, on_thread(|| unlink_with_mount(&path))?)
}

fn removed_or_missing(name: &Name, removed: io::Result<()>) -> Result<bool> {
    match removed {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(source) => Err(Error::Remove { name: name.clone(), source }),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Unlinks a file together with what is mounted on it. For a thread of its own: it keeps its view of the mounts.
///
/// The kernel refuses to unlink a file on which the caller's mount namespace has a mount (EBUSY). Mounts of other
/// mount namespaces do not hinder it: they are detached together with the unlink (since Linux 3.18). So the mount
/// is taken away in a private copy of the mount namespace, and the unlink takes it away everywhere else.
fn unlink_with_mount(path: &Path) -> io::Result<()> {
    sys::detach(Detach::Mounts)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // Nothing is mounted there: a leftover file, to be removed like any other name.
        Ok(()) | Err(Errno::INVAL) => fs::remove_file(path),
        Err(error) => Err(error.into()),
    }
}

/// Lets a file be this namespace until [`unpin`], whatever becomes of its name and of its processes. What a process left at
/// `path` that was killed is replaced.
pub fn pin(netns: &Netns, path: &Path) -> Result<()> {
    unpin(path)?;
    let failed = |source| Error::Pin { path: path.to_owned(), source };
    let file = OpenOptions::new().write(true).create_new(true).mode(0o000).open(path);
    file.map_err(failed)?;
    let descriptor = format!("/proc/thread-self/fd/{}", netns.as_fd().as_raw_fd());
    mount_bind(descriptor, path).map_err(|source| {
        // The first error is the one to report.
        let _ = fs::remove_file(path);
        failed(source.into())
    })
}

/// Takes away what [`pin`] made; nothing, if there is no such file.
pub fn unpin(path: &Path) -> Result<()> {
    if fs::symlink_metadata(path).is_err_and(|error| is_missing(&error)) {
        return Ok(());
    }
    match on_thread(|| unlink_with_mount(path))? {
        Err(error) if !is_missing(&error) => {
            Err(Error::Unpin { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// The names that exist, sorted. Files that are not UTF-8 are left out: no [`Name`] can point at them.
pub fn names() -> Result<Vec<Name>> {
    let failed = |source| Error::List { source };
    let entries = match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let file_name = entry.map_err(failed)?.file_name();
        names.extend(file_name.to_str().and_then(|name| Name::new(name).ok()));
    }
    names.sort();
    Ok(names)
}

/// Makes `/run/netns` a shared mount point once, so that names reach all mount namespaces of the host.
///
/// Returns the lock that `ip netns` takes, too: two makers at once would stack two mounts.
fn prepare_directory() -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY)?;
    let lock = File::open(DIRECTORY)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    match share() {
        Err(Errno::INVAL) => {
            mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            share()?;
        }
        shared => shared?,
    }
    Ok(lock)
}

/// EINVAL if the directory is no mount point yet.
fn share() -> rustix::io::Result<()> {
    mount_change(DIRECTORY, MountPropagationFlags::SHARED | MountPropagationFlags::REC)
}

/// Makes the file that the namespace will be mounted on; of two makers at once, one gets the name.
fn reserve(name: &Name) -> Result<PathBuf> {
    let path = name.path();
    let exclusively = OpenOptions::new().write(true).create_new(true).mode(0o000).open(&path);
    match exclusively {
        Ok(_) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Error::AlreadyExists { name: name.clone() })
        }
        Err(source) => Err(Error::Create { name: name.clone(), source }),
    }
}

fn mount_fresh(name: &Name, path: &Path) -> Result<Netns> {
    let netns = Netns::anonymous()?;
    let pinned = format!("/proc/thread-self/fd/{}", netns.as_fd().as_raw_fd());
    match mount_bind(pinned, path) {
        Ok(()) => Ok(netns),
        Err(source) => Err(Error::Create { name: name.clone(), source: source.into() }),
    }
}
