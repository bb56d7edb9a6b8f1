//! The source: where the files are, in which namespace they are opened, and what ties its parts to the contract.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};
use homeostat_netns::Netns;

use crate::absence::Absence;
use crate::apply::Writer;
use crate::cgroup;
use crate::gate::Gate;
use crate::key::Key;
use crate::model::{DesiredState, Value};
use crate::observe::{Moment, Reader};
use crate::plan::{self, Step};
use crate::sysfs::{OwnSysfs, Root, Sysfs};

/// The directories below which all knobs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Where kernel parameters are.
    pub sysctl: PathBuf,
    pub sysfs: Sysfs,
    /// Where version 2 of the cgroup hierarchy is, if there is one.
    pub cgroup: Option<PathBuf>,
    /// Whether systemd manages the hierarchy.
    pub systemd: bool,
}

impl Roots {
    /// Those of the running system.
    #[must_use]
    pub fn of_the_system() -> Self {
        Roots {
            sysctl: PathBuf::from("/proc/sys"),
            sysfs: Sysfs::OfTheSystem(OwnSysfs::default()),
            cgroup: cgroup::root(),
            // The directory that systemd itself makes to say that it is running.
            systemd: Path::new("/run/systemd/system").is_dir(),
        }
    }
}

/// The knobs of one scope.
#[derive(Clone, Debug)]
pub struct Knobs {
    pub roots: Roots,
    /// Whose `net` knobs are meant; without one, those of the calling thread's namespace. `/proc/sys/net` shows the
    /// namespace of the thread that opens it.
    pub netns: Option<Arc<Netns>>,
    /// Why knobs of the whole host may not be touched in this scope, for people ("a sandbox has none of its own");
    /// none, if they may.
    pub host_wide_refusal: Option<String>,
    /// Knobs that other owners hold, each with its owner: they are foreign to us.
    pub others: BTreeMap<Key, String>,
    /// What turning forwarding on waits for.
    pub gate: Option<Gate>,
}

impl Knobs {
    /// The knobs below `roots` in a namespace, without restrictions.
    #[must_use]
    pub fn new(roots: Roots, netns: Option<Arc<Netns>>) -> Self {
        Knobs { roots, netns, host_wide_refusal: None, others: BTreeMap::new(), gate: None }
    }

    /// Runs `work` in the namespace and waits for it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        let Some(netns) = &self.netns else { return Ok(work()) };
        netns.run(work).map_err(|error| Failure::soon(&error).with_known_help(error.help()))
    }

    /// The root below which a knob is, or why there is none.
    pub(crate) fn root(&self, key: &Key) -> Result<Root<'_>, Absence> {
        if let Some(why) = self.host_wide_refusal.clone().filter(|_| key.is_host_wide()) {
            return Err(Absence::HostWide { why });
        }
        match key {
            Key::Sysctl(_) => Ok(Root::Directory(&self.roots.sysctl)),
            Key::Cgroup(_) => {
                let root = self.roots.cgroup.as_deref();
                root.map(Root::Directory).ok_or(Absence::NoHierarchy)
            }
            Key::Sysfs(_) => Ok(self.roots.sysfs.root(key)),
        }
    }
}

impl Source for Knobs {
    const NAME: &'static str = "knobs";
    const FAILS: Fails = Fails::Independent;
    // Quirk `coupled-changes-are-silent`: see `hints`.
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Key;
    type Object = Value;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::new(self.clone()))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer { knobs: self.clone() })
    }

    fn is_same(&self, other: &Self) -> bool {
        let is_same_netns = match (&self.netns, &other.netns) {
            // Namespaces that cannot be compared are different.
            (Some(netns), Some(other)) => netns.same_as(other).unwrap_or(false),
            (netns, other) => netns.is_none() && other.is_none(),
        };
        is_same_netns
            && self.gate == other.gate
            && self.roots == other.roots
            && self.host_wide_refusal == other.host_wide_refusal
            && self.others == other.others
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Key, Value>,
    ) -> Draft<Self> {
        plan::draft(desired, moment, changes)
    }
}
