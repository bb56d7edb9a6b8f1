//! The rootless sandbox: the whole process moves into its own user, network and mount namespace.
//!
//! What holds it apart from the host, outermost first:
//! 1. Started by root, it first becomes nobody: a uid that owns none of the host's knobs. Capabilities do not
//!    help there: `/proc/sys` asks for the *global* root's uid.
//! 2. Its capabilities count only in its own user namespace, so it cannot enter the host's namespaces again.
//! 3. `/run` is an empty tmpfs, so names and sockets made inside never reach the host.
//! 4. A host-wide knob is opened for writing (never written) as a probe; if that succeeds, entering fails.
//! 5. As a second fence, `/proc/sys` but for `net` is mounted read-only. What runs inside could unmount it.

mod ids;
mod mounts;
mod switch;

pub use switch::Switch;

use std::fs::OpenOptions;
use std::path::Path;

use crate::sys::{self, Detach};
use crate::{Error, Netns, Result};

/// Knobs that belong to the whole host; each kernel has at least one of them.
const HOST_KNOBS: [&str; 3] =
    ["/proc/sys/vm/swappiness", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/panic"];

/// The sandbox that this process lives in from now on. There is no way back; dropping it changes nothing.
#[derive(Debug)]
pub struct Sandbox {
    netns: Netns,
}

impl Sandbox {
    /// Moves the process into a fresh sandbox. Call it first thing in `main`, before any thread exists.
    ///
    /// Inside, the process is uid 0 of its own user namespace and, seen from outside, the user that
    /// started it, or nobody if that was root: files that only root may read are out of reach.
    /// The network namespace is empty, with `lo` down. After an error the process may be half-way: end it.
    pub fn enter() -> Result<Self> {
        let status = ids::Status::read()?;
        if status.threads != 1 {
            return Err(Error::Threaded { threads: status.threads });
        }
        if status.is_root {
            ids::become_nobody()?;
        }
        let outside = ids::Outside::current();
        sys::detach(Detach::Sandbox)
            .map_err(|source| Error::SandboxDetach { switch: Switch::behind(&source), source })?;
        outside.map_to_root()?;
        refuse_if_writable(&HOST_KNOBS)?;
        mounts::fence_off()?;
        Ok(Self { netns: Netns::current()? })
    }

    /// The sandbox's own network namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }
}

fn refuse_if_writable(knobs: &[impl AsRef<Path>]) -> Result<()> {
    // Opening without truncation changes nothing, and the kernel judges it exactly as it would a write.
    let is_writable = |path: &Path| OpenOptions::new().write(true).open(path).is_ok();
    match knobs.iter().map(AsRef::as_ref).find(|path| is_writable(path)) {
        Some(path) => Err(Error::HostReachable { path: path.into() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writable_host_knob_refuses_the_sandbox_and_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let knob = root.path().join("swappiness");
        std::fs::write(&knob, "60\n").unwrap();
        let missing = root.path().join("overcommit_memory");
        let error = refuse_if_writable(&[&missing, &knob]).unwrap_err();
        assert!(matches!(error, Error::HostReachable { path } if path == knob));
        assert_eq!(std::fs::read_to_string(&knob).unwrap(), "60\n");
        assert!(refuse_if_writable(&[&missing]).is_ok());
    }
}
