//! Writes that must not be sent twice: the owner's journal, opened when it is first needed, and the
//! lanes of the guests, which loops and commands share.

pub(crate) mod command;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use homeostat_document::DEFAULT_OWNER;
use homeostat_engine::journal::{Clock, JournalError, Millis};
use homeostat_engine::{DispatchGuard, Journal, Limits, Operations, ScopeLock, Source as _};
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
    pub(crate) fn dispatch_guard(
        &self,
        source: &Guests,
        (scope, limits): (&str, Limits),
    ) -> Result<DispatchGuard<Key>> {
        let filed = filed(scope, source.endpoint());
        let opened = self.open(&filed, limits);
        let mut state = self.state();
        state.source = Some(source.clone());
        state.operations = opened.as_ref().ok().cloned().flatten();
        state.busy = None;
        match opened {
            Ok(Some(operations)) => Ok(DispatchGuard::Operations(operations)),
            Ok(None) => Ok(DispatchGuard::Absent),
            Err(error @ JournalError::Busy { .. }) => {
                state.busy = Some(error);
                Ok(DispatchGuard::Absent)
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
