//! User ids: unprivileged outside the sandbox, uid 0 inside.

use std::fs;
use std::io;

use rustix::process::{DumpableBehavior, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use rustix::{fs::Gid, fs::Uid, io::Errno};

use super::Switch;
use crate::{Error, Result};

/// The user and group that own nothing, by convention also the kernel's overflow ids.
const NOBODY: u32 = 65534;

/// What `/proc/self/status` says that matters for entering.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) threads: usize,
    /// Any of the real, effective, saved and file system uids is 0.
    pub(super) is_root: bool,
}

impl Status {
    pub(super) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/status");
        let text = text.map_err(|source| Error::Status { source })?;
        Self::parse(&text)
            .ok_or_else(|| Error::Status { source: io::Error::from(io::ErrorKind::InvalidData) })
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |key| text.lines().find_map(|line: &str| line.strip_prefix(key));
        let threads = field("Threads:")?.trim().parse().ok()?;
        let is_root = field("Uid:")?.split_whitespace().any(|uid| uid == "0");
        Some(Self { threads, is_root })
    }
}

/// Gives up root for good: groups first, because without uid 0 they could not be changed.
///
/// In a user namespace that knows no nobody (EINVAL) the process stays who it is; the probe of the
/// host's knobs then decides whether that is harmless.
pub(super) fn become_nobody() -> Result<()> {
    match drop_ids() {
        Err(Errno::INVAL) => Ok(()),
        dropped => dropped.map_err(|source| Error::BecomeNobody { source: source.into() }),
    }
}

fn drop_ids() -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    // The thread-wide calls are process-wide here: there is only one thread.
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_groups(&[])?;
    set_thread_res_uid(uid, uid, uid)?;
    // Quirk `undumpable-after-setuid`: a change of uid makes /proc/self belong to root, and then
    // uid_map cannot be opened for writing (EACCES).
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// The ids that the host sees, taken before the user namespace hides them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    uid: Uid,
    gid: Gid,
}

impl Outside {
    pub(super) fn current() -> Self {
        Self { uid: geteuid(), gid: getegid() }
    }

    /// Makes them uid and gid 0 of the user namespace that the process has just got.
    pub(super) fn map_to_root(self) -> Result<()> {
        // Without privileges a gid may be mapped only after setgroups is given up.
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("0 {} 1", self.uid.as_raw()))?;
        write("/proc/self/gid_map", &format!("0 {} 1", self.gid.as_raw()))
    }
}

fn write(file: &'static str, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|source| Error::SandboxIds {
        file,
        switch: Switch::behind(&source),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uids: &str, is_root: bool) {
        let text = format!("Name:\tx\nUid:\t{uids}\nGid:\t0\t0\t0\t0\nThreads:\t3\n");
        assert_eq!(Status::parse(&text), Some(Status { threads: 3, is_root }), "{uids}");
    }

    #[test]
    fn any_uid_of_zero_is_root_also_a_saved_one() {
        check("1000\t1000\t1000\t1000", false);
        check("0\t0\t0\t0", true);
        check("1000\t0\t0\t0", true);
        check("1000\t1000\t0\t1000", true);
    }

    #[test]
    fn a_status_without_the_fields_is_not_guessed() {
        assert_eq!(Status::parse("Name:\tx\n"), None);
        assert_eq!(Status::parse("Uid:\t0\t0\t0\t0\n"), None);
    }
}
