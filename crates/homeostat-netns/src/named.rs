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
use crate::{Error, Name, Netns, Result};

/// Makes a namespace of this name. Its `lo` is down, as the kernel leaves it.
///
/// On failure nothing of it remains.
pub fn create(name: &Name) -> Result<Netns> {
    prepare_directory().map_err(|source| Error::PrepareDirectory { source })?;
    let path = reserve(name)?;
    let made = Netns::anonymous().and_then(|netns| match bind(&netns, &path) {
        Ok(()) => Ok(netns),
        Err(source) => Err(Error::Create { name: name.clone(), source }),
    });
    if made.is_err() {
        // The first error is the one to report; a file that stays is reported by the next `create`.
        let _ = fs::remove_file(&path);
    }
    made
}

/// Takes the name away; false if there was none. The namespace itself lives on while anybody holds it.
pub fn remove(name: &Name) -> Result<bool> {
    let path = name.path();
    match detach(&path).and_then(|()| fs::remove_file(&path)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Error::Remove { name: name.clone(), source }),
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
fn prepare_directory() -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(DIRECTORY)?;
    // `ip netns` takes the same lock: two makers at once would stack two mounts.
    let lock = File::open(DIRECTORY)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    match share() {
        Err(Errno::INVAL) => {
            mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            Ok(share()?)
        }
        shared => Ok(shared?),
    }
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

fn bind(netns: &Netns, path: &Path) -> io::Result<()> {
    let pinned = format!("/proc/thread-self/fd/{}", netns.as_fd().as_raw_fd());
    Ok(mount_bind(pinned, path)?)
}

fn detach(path: &Path) -> io::Result<()> {
    match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // Nothing is mounted there: a leftover file, to be removed like any other name.
        Err(Errno::INVAL) => Ok(()),
        detached => Ok(detached?),
    }
}
