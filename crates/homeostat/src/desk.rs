//! Writes that must not be sent twice: the owner's journal, opened when it is first needed, and the
//! lanes of the guests, which loops and commands share.

pub(crate) mod command;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use homeostat_document::DEFAULT_OWNER;
use homeostat_engine::journal::{Clock, End, Fact, JournalError, Millis, follow};
use homeostat_engine::{Fence, Journal, Limits, Operations, ScopeLock, Source as _};
use homeostat_guests::{Guests, Key};

use crate::cli::Color;
use crate::daemon::clock::Stamp;
use crate::failure::Helped;
use crate::output::stream;

/// Where the journal of an owner is. Owners may share a state directory, but not a journal.
pub(crate) fn directory(state_dir: &Path, owner: &str) -> PathBuf {
    match owner {
        DEFAULT_OWNER => state_dir.to_owned(),
        owner => state_dir.join(format!("{owner}.journal")),
    }
}

/// The journal and the lanes of one process.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where a journal may be opened; nowhere, for who only reads.
    directory: Option<PathBuf>,
    operations: Option<Operations<Key>>,
    /// The cluster that the document names.
    source: Option<Guests>,
}

impl Desk {
    /// Lets a journal be opened: this process writes.
    pub(crate) fn allow(&self, directory: PathBuf) {
        self.state().directory = Some(directory);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps writes to guests from being sent twice. Whoever finds the journal in use by another
    /// process will not get the scope's lock either, and need not be told twice.
    pub(crate) fn fence(
        &self,
        source: &Guests,
        (scope, limits): (&str, Limits),
    ) -> Result<Fence<Key>> {
        self.state().source = Some(source.clone());
        match self.open(scope, limits) {
            Ok(Some(operations)) => Ok(Fence::Kept(operations)),
            Ok(None) | Err(JournalError::Busy { .. }) => Ok(Fence::Absent),
            Err(error) => Err(told(&error)),
        }
    }

    /// The document names no cluster any more.
    pub(crate) fn leave(&self) {
        self.state().source = None;
    }

    /// The lanes; nothing, for who only reads.
    fn open(&self, scope: &str, limits: Limits) -> Result<Option<Operations<Key>>, JournalError> {
        let mut state = self.state();
        if let Some(operations) = &state.operations {
            operations.limit(limits);
        } else {
            let Some(directory) = &state.directory else { return Ok(None) };
            let made = fs::create_dir_all(directory);
            let failed =
                |source| JournalError::Open { path: directory.clone(), source: Arc::new(source) };
            made.map_err(failed)?;
            let (journal, recovered) = Journal::open(directory, clock())?;
            tell_torn(recovered.cut);
            let named = (Guests::NAME, scope);
            state.operations = Some(Operations::new(Arc::new(journal), named, limits));
        }
        Ok(state.operations.clone())
    }

    /// What commands need, once a document with a cluster is bound.
    pub(crate) fn commands(&self, lock: &ScopeLock) -> Result<Option<Commands>> {
        let state = self.state();
        let (Some(source), Some(operations)) = (&state.source, &state.operations) else {
            return Ok(None);
        };
        let writer = source.writer(lock).context("cannot write to the cluster")?;
        Ok(Some(Commands { writer: Arc::new(writer), operations: operations.clone() }))
    }

    /// Whether the target works on nothing of ours.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().operations.as_ref().is_none_or(|operations| operations.in_flight().is_empty())
    }

    /// The keys whose last step did not end well, and why.
    pub(crate) fn failures(&self) -> BTreeMap<String, String> {
        let directory = self.state().directory.clone();
        // What cannot be read is told as pending.
        let records = directory.and_then(|directory| follow(&directory).more().ok());
        let (mut keys, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for record in records.into_iter().flatten() {
            match record.fact {
                Fact::Intent(intent) => {
                    failed.remove(&intent.subject.key);
                    keys.insert(record.id, intent.subject.key);
                }
                Fact::Ended(End::Failed { why } | End::Unknown { why }) => {
                    failed.extend(keys.remove(&record.id).map(|key| (key, why)));
                }
                Fact::Dispatched { .. } | Fact::Ended(End::Succeeded { .. }) => {}
            }
        }
        failed
    }

    /// Waits until one of the tasks that the target works on has ended, and says what is waited for.
    /// Tells which keys ended; nothing, if there was none.
    pub(crate) async fn wait(
        &self,
        told: &mut BTreeSet<String>,
        color: Option<Color>,
    ) -> Result<Option<BTreeSet<String>>> {
        let operations = self.state().operations.clone();
        let Some(operations) = operations else { return Ok(None) };
        let flying = operations.in_flight();
        if flying.is_empty() {
            return Ok(None);
        }
        for (key, task) in &flying {
            if let Some(color) = color.filter(|_| told.insert(task.clone())) {
                writeln!(stream::stderr(color), "Waiting for {key}: task {task}")?;
            }
        }
        operations.news().await;
        let still = operations.in_flight();
        let ended = flying.keys().filter(|key| !still.contains_key(key));
        Ok(Some(ended.map(ToString::to_string).collect()))
    }
}

/// What commands need: hands, and the lanes.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    pub(crate) writer: Arc<homeostat_guests::Writer>,
    pub(crate) operations: Operations<Key>,
}

/// Says that the last write was torn: what it was about is looked up in the target.
fn tell_torn(bytes: u64) {
    if bytes > 0 {
        let words = "warning: the end of the journal was torn, and cut off";
        // There is nobody left to tell if stderr is closed.
        let _ = writeln!(stream::stderr(Color::Auto), "{words}: {bytes} bytes");
    }
}

/// A journal's error, with its way out.
pub(crate) fn told(error: &JournalError) -> anyhow::Error {
    match error.help() {
        Some(help) => Helped::error(error.to_string(), help),
        None => anyhow::anyhow!("{error}"),
    }
}

/// The time of day.
pub(crate) fn clock() -> Clock {
    Arc::new(|| Millis(Stamp::now().as_millis()))
}
