//! The source: one set of files below one root.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_core::{ChangeList, Coverage, Draft, Fails, Failure, ScopeLock, Source};

use crate::apply::Writer;
use crate::brake::Brake;
use crate::check::{Check, Network};
use crate::counters::Counters;
use crate::disk::{Disk, Tap};
use crate::key::Key;
use crate::live::LiveInputs;
use crate::model::{DesiredState, Object};
use crate::observe::{Moment, Reader};
use crate::plan::{self, Step};
use crate::running::Program;
use crate::store::Store;

/// A set of files.
#[derive(Clone, Debug)]
pub struct Files {
    /// Its name, by which its originals are kept.
    pub set: String,
    /// The directory that paths begin in: `/`, but for tests.
    pub root: PathBuf,
    pub store: Store,
    /// The program that judges the set before it is written.
    pub check: Option<Check>,
    /// The program that reads the set.
    pub program: Option<Program>,
    /// What is done with files that lose most of their lines.
    pub shrinking: Shrinking,
    /// A certificate that is not valid for as many days is a finding.
    pub certificate_days: u16,
    /// The network whose links are facts.
    pub network: Network,
    /// The values that it is made of.
    pub inputs: LiveInputs,
    pub counters: Counters,
    pub(crate) disk: Disk,
    /// Shared by all that speak of the same set.
    pub(crate) brake: Arc<Mutex<Brake>>,
}

/// Time enough to renew a certificate by hand.
pub(crate) const CERTIFICATE_DAYS: u16 = 14;

/// What is done with files that lose most of their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrinking {
    Allow,
    /// They are held; this option allows them.
    Hold {
        option: &'static str,
    },
}

impl Files {
    /// A set of this machine.
    #[must_use]
    pub fn new(set: &str, store: Store) -> Self {
        Files {
            set: set.to_owned(),
            root: PathBuf::from("/"),
            store,
            check: None,
            program: None,
            shrinking: Shrinking::Allow,
            certificate_days: CERTIFICATE_DAYS,
            network: Network::Here,
            inputs: LiveInputs::default(),
            counters: Counters::default(),
            disk: Disk::default(),
            brake: Arc::default(),
        }
    }

    /// The same, with everything below another directory.
    #[must_use]
    pub fn below(self, root: impl Into<PathBuf>) -> Self {
        Files { root: root.into(), ..self }
    }

    /// The same, judged by a program before it is written. It sees the paths below `/` only.
    #[must_use]
    pub fn checked_by(self, check: Option<Check>) -> Self {
        Files { check, ..self }
    }

    /// The same, read by a program.
    #[must_use]
    pub fn read_by(self, program: Option<Program>) -> Self {
        let note = self.store.note(&self.set);
        let program = program.map(|program| Program { note: Some(note), ..program });
        Files { program, ..self }
    }

    /// The same, with values that outlive it.
    #[must_use]
    pub fn sharing(self, inputs: LiveInputs) -> Self {
        Files { inputs, ..self }
    }

    /// The same, with what is known of the reloads of its program.
    #[cfg(feature = "document")]
    pub(crate) fn braked_by(self, brake: Arc<Mutex<Brake>>) -> Self {
        Files { brake, ..self }
    }

    pub(crate) fn brake(&self) -> MutexGuard<'_, Brake> {
        self.brake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, which counts here.
    #[must_use]
    pub fn counted_by(self, counters: Counters) -> Self {
        Files { counters, ..self }
    }

    /// The same, with a function that is called after each system call that changes something.
    #[must_use]
    pub fn tapped(self, tap: Tap) -> Self {
        Files { disk: Disk { tap: Some(tap) }, ..self }
    }
}

impl Source for Files {
    const NAME: &'static str = "files";
    const FAILS: Fails = Fails::Atomic;
    // A file that is held open, or whose directory is missing, is not announced; nor is what a program runs.
    const COVERAGE: Coverage = Coverage::Some;

    type Key = Key;
    type Object = Object;
    type Desired = DesiredState;
    type Step = Step;
    type Moment = Moment;
    type Reader = Reader;
    type Writer = Writer;

    fn reader(&self) -> Result<Reader, Failure> {
        Ok(Reader::following(self.clone()))
    }

    fn reader_without_hints(&self) -> Result<Reader, Failure> {
        Ok(Reader::once(self.clone()))
    }

    fn writer(&self, _lock: &ScopeLock) -> Result<Writer, Failure> {
        Writer::open(self.clone())
    }

    fn is_same(&self, other: &Self) -> bool {
        self.set == other.set
            && self.root == other.root
            && self.store == other.store
            && self.check == other.check
            && self.program == other.program
            && self.shrinking == other.shrinking
            && self.network == other.network
    }

    fn plan(
        &self,
        desired: &DesiredState,
        moment: &Moment,
        changes: ChangeList<Key, Object>,
    ) -> Draft<Files> {
        plan::draft(desired, moment, self.shrinking, changes)
    }
}
