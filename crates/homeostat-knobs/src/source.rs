//! The source: where the files are, in which namespace they are opened, and what ties its parts to the contract.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, Retry, ScopeLock, Source};
use homeostat_netns::Netns;
use tokio::sync::watch;

use crate::absence::Absence;
use crate::apply::Writer;
use crate::cgroup;
use crate::gate::Gate;
use crate::key::Key;
use crate::model::{DesiredState, Value};
use crate::observe::{Moment, Reader};
use crate::plan::{self, Step};

/// The directories below which all knobs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Where kernel parameters are.
    pub sysctl: PathBuf,
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
            cgroup: cgroup::root(),
            // The directory that systemd itself makes to say that it is running.
            systemd: Path::new("/run/systemd/system").is_dir(),
        }
    }
}

/// Whether knobs may be touched that belong to the whole host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostWide {
    /// They may.
    #[default]
    Allowed,
    /// They may not, in this scope.
    Refused {
        /// Why, for people ("a sandbox has no host-wide knobs").
        why: String,
    },
}

/// The knobs of one scope.
#[derive(Clone, Debug)]
pub struct Knobs {
    pub(crate) roots: Roots,
    pub(crate) place: Place,
    pub(crate) host_wide: HostWide,
    pub(crate) others: BTreeMap<Key, String>,
    pub(crate) gate: Option<Gate>,
}

impl Knobs {
    /// The knobs below `roots`, as seen from `place`.
    #[must_use]
    pub fn new(roots: Roots, place: Place) -> Self {
        Knobs { roots, place, host_wide: HostWide::Allowed, others: BTreeMap::new(), gate: None }
    }

    /// Says whether host-wide knobs may be touched.
    #[must_use]
    pub fn with_host_wide(mut self, host_wide: HostWide) -> Self {
        self.host_wide = host_wide;
        self
    }

    /// Says which knobs other owners hold, each with its owner: they are foreign to us.
    #[must_use]
    pub fn with_others(mut self, others: BTreeMap<Key, String>) -> Self {
        self.others = others;
        self
    }

    /// Holds forwarding back until `is_open` is true; `on` says in words what it waits for.
    #[must_use]
    pub fn behind(mut self, is_open: watch::Receiver<bool>, on: &str) -> Self {
        self.gate = Some(Gate { is_open, on: on.into() });
        self
    }

    /// The root below which a knob is, or why there is none.
    pub(crate) fn root(&self, key: &Key) -> Result<&Path, Absence> {
        if let (HostWide::Refused { why }, true) = (&self.host_wide, key.is_host_wide()) {
            return Err(Absence::HostWide { why: why.clone() });
        }
        match key {
            Key::Sysctl(_) => Ok(&self.roots.sysctl),
            Key::Cgroup(_) => self.roots.cgroup.as_deref().ok_or(Absence::NoHierarchy),
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
        Ok(Writer::new(self.clone()))
    }

    fn is_same(&self, other: &Self) -> bool {
        let gates = match (&self.gate, &other.gate) {
            (Some(gate), Some(other)) => gate.is(other),
            (None, None) => true,
            _ => false,
        };
        gates
            && self.place.is(&other.place)
            && self.roots == other.roots
            && self.host_wide == other.host_wide
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

/// Whose `/proc/sys/net` is meant: that directory follows the thread which opens it.
#[derive(Clone, Debug, Default)]
pub enum Place {
    /// That of the calling thread.
    #[default]
    Here,
    /// That of another namespace, which is kept alive by this.
    In(Arc<Netns>),
}

impl Place {
    /// Whether both mean the same namespace; one that cannot be compared is another.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Place::Here, Place::Here) => true,
            (Place::In(netns), Place::In(other)) => netns.same_as(other).unwrap_or(false),
            _ => false,
        }
    }

    /// Runs `work` there and waits for it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match self {
            Place::Here => Ok(work()),
            Place::In(netns) => netns.run(work).map_err(|error| Failure {
                help: error.help(),
                ..Failure::from_error(&error, Retry::Soon)
            }),
        }
    }
}
