//! The source: which systemd, and what ties its parts to the contract.

use std::collections::BTreeMap;
use std::path::PathBuf;

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::apply::Writer;
use crate::key::Key;
use crate::model::{DesiredState, State};
use crate::observe::{Moment, Reader};
use crate::plan;
use crate::step::Step;

/// The units of one systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Services {
    /// The root directory below which systemd listens.
    pub root: PathBuf,
    /// Values that other owners hold, each with its owner: they are foreign to us.
    pub others: BTreeMap<Key, String>,
}

impl Services {
    /// The units of this machine.
    #[must_use]
    pub fn of_the_system() -> Self {
        Services { root: "/".into(), others: BTreeMap::new() }
    }
}

impl Source for Services {
    const NAME: &'static str = "services";
    const FAILS: Fails = Fails::Independent;
    // A link that is made in /etc/systemd/system by hand sends no signal before systemd reads its files again.
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Key;
    type Object = State;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::new(self.clone()))
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Ok(Reader::without_signals(self.clone()))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Ok(Writer { root: self.root.clone() })
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Key, State>,
    ) -> Draft<Self> {
        plan::draft(desired, moment, changes)
    }
}
