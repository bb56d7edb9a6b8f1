//! The source: where modules are seen, and what ties its parts to the contract.

use std::fs;
use std::path::PathBuf;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::apply::Writer;
use crate::key::Key;
use crate::model::{DesiredState, State};
use crate::observe::Reader;
use crate::plan;
use crate::step::Step;

/// Where modules are seen, and who loads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// A directory for each module that is loaded, and for most that are part of the kernel.
    pub loaded: PathBuf,
    /// The list of those that are part of the kernel.
    pub built_in: PathBuf,
    /// The program that loads.
    pub modprobe: PathBuf,
}

impl Roots {
    /// Those of the running system. The kernel says which program it starts itself.
    #[must_use]
    pub fn of_the_system() -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let modprobe = fs::read_to_string("/proc/sys/kernel/modprobe").unwrap_or_default();
        let modprobe = Some(modprobe.trim()).filter(|path| path.starts_with('/'));
        Roots {
            loaded: PathBuf::from("/sys/module"),
            built_in: PathBuf::from("/lib/modules").join(release).join("modules.builtin"),
            modprobe: PathBuf::from(modprobe.unwrap_or("/sbin/modprobe")),
        }
    }
}

/// The modules of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules {
    pub roots: Roots,
}

impl Modules {
    #[must_use]
    pub fn of_the_system() -> Self {
        Modules { roots: Roots::of_the_system() }
    }
}

impl Source for Modules {
    const NAME: &'static str = "modules";
    const FAILS: Fails = Fails::Independent;
    const COVERAGE: Coverage = Coverage::None;

    type Key = Key;
    type Object = State;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = ();
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader { roots: self.roots.clone() })
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer { roots: self.roots.clone() })
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    fn plan(
        &self,
        _: &DesiredState,
        (): &Self::Moment,
        changes: ChangeList<Key, State>,
    ) -> Draft<Self> {
        plan::draft(changes)
    }
}
