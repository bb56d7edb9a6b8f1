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
use homeostat_engine::journal::{Clock, End, Fact, JournalError, Millis, Subject, follow};
use homeostat_engine::{Fence, Journal, Limits, Operations, ScopeLock, Source as _};
use homeostat_guests::{Endpoint, Guests, Key};

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
    journal: Option<Arc<Journal>>,
    /// The lanes of each cluster that was named, by what the journal files its steps under. A cluster that
    /// is left may still be at work, and what is in flight there is followed to its end.
    clusters: BTreeMap<String, Operations<Key>>,
    /// The cluster that the document names.
    source: Option<Guests>,
    /// Its lanes.
    operations: Option<Operations<Key>>,
    /// Why there are none: another process writes the journal.
    busy: Option<JournalError>,
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
        let filed = filed(scope, source.endpoint());
        let opened = self.open(&filed, limits);
        let mut state = self.state();
        state.source = Some(source.clone());
        state.operations = opened.as_ref().ok().cloned().flatten();
        state.busy = None;
        match opened {
            Ok(Some(operations)) => Ok(Fence::Kept(operations)),
            Ok(None) => Ok(Fence::Absent),
            Err(error @ JournalError::Busy { .. }) => {
                state.busy = Some(error);
                Ok(Fence::Absent)
            }
            Err(error) => Err(told(&error)),
        }
    }

    /// The document names no cluster any more.
    pub(crate) fn leave(&self) {
        self.state().source = None;
    }

    /// The lanes of a cluster; nothing, for who only reads.
    fn open(&self, filed: &str, limits: Limits) -> Result<Option<Operations<Key>>, JournalError> {
        let mut state = self.state();
        if let Some(operations) = state.clusters.get(filed) {
            operations.limit(limits);
            return Ok(Some(operations.clone()));
        }
        let Some(journal) = state.journal()? else { return Ok(None) };
        let operations = Operations::new(journal, (Guests::NAME, filed), limits);
        state.clusters.insert(filed.to_owned(), operations.clone());
        Ok(Some(operations))
    }

    /// What commands need, once a document with a cluster is bound.
    pub(crate) fn commands(&self, lock: &ScopeLock) -> Result<Option<Commands>> {
        let state = self.state();
        if let Some(busy) = &state.busy {
            return Err(busy.clone().into());
        }
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

    /// The keys of the cluster whose last step did not end well, and why.
    pub(crate) fn failures(&self) -> BTreeMap<String, String> {
        let state = self.state();
        let (directory, operations) = (state.directory.clone(), state.operations.clone());
        drop(state);
        let is_here = |subject: &Subject| {
            let key = subject.key.parse().ok();
            key.zip(operations.as_ref()).is_some_and(|(key, all)| all.subject(&key) == *subject)
        };
        // What cannot be read is told as pending.
        let records = directory.and_then(|directory| follow(&directory).more().ok());
        let (mut keys, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for record in records.into_iter().flatten() {
            match record.fact {
                Fact::Intent(intent) if !is_here(&intent.subject) => {}
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

impl State {
    /// The journal, opened when it is first needed; nothing, for who only reads.
    fn journal(&mut self) -> Result<Option<Arc<Journal>>, JournalError> {
        if self.journal.is_none() {
            let Some(directory) = &self.directory else { return Ok(None) };
            let made = fs::create_dir_all(directory);
            let failed =
                |source| JournalError::Open { path: directory.clone(), source: Arc::new(source) };
            made.map_err(failed)?;
            let (journal, recovered) = Journal::open(directory, clock())?;
            tell_torn(recovered.cut);
            self.journal = Some(Arc::new(journal));
        }
        Ok(self.journal.clone())
    }
}

/// What the journal files the steps of a cluster under. A number means another guest in another cluster: what
/// was begun in one is never asked of the other, whichever the document names by then.
fn filed(scope: &str, endpoint: &Endpoint) -> String {
    format!("{scope} at {endpoint}")
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
