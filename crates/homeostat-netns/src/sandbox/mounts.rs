//! The sandbox's view of the file system: an own `/run`, and host-wide knobs read-only.

use std::fs;

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};

use super::Switch;
use crate::name::DIRECTORY;
use crate::{Error, Result};

const KNOBS: &str = "/proc/sys";
const NET_KNOBS: &str = "/proc/sys/net";

pub(super) fn fence_off() -> Result<()> {
    step("/ as private", || {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
    })?;
    step("an empty /run", || {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("homeostat", "/run", "tmpfs", flags, Some(c"mode=0755"))
    })?;
    step(DIRECTORY, || fs::create_dir(DIRECTORY))?;
    step("/proc/sys read-only", protect_knobs)
}

/// The order matters: `net` is bound on top before what is below it becomes read-only.
fn protect_knobs() -> rustix::io::Result<()> {
    mount_bind_recursive(KNOBS, KNOBS)?;
    mount_bind_recursive(NET_KNOBS, NET_KNOBS)?;
    // A remount in a user namespace may add restrictions but not lift one that the host's /proc
    // has, so all that /proc commonly has are asked for.
    let restricted =
        MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_remount(KNOBS, MountFlags::BIND | restricted, "")
}

fn step<E: Into<std::io::Error>>(
    what: &'static str,
    make: impl FnOnce() -> Result<(), E>,
) -> Result<()> {
    make().map_err(Into::into).map_err(|source| Error::SandboxMount {
        what,
        switch: Switch::behind(&source),
        source,
    })
}
