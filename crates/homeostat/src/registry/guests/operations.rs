//! Writes to guests that must not be sent twice: the owner's journal, opened when it is first needed, and the
//! lanes of the guests, which loops and commands share.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use homeostat_engine::journal::JournalError;
use homeostat_engine::{DispatchGuard, Journal, Limits, Operations, ScopeLock, Source as _};
use homeostat_guests::{Endpoint, Guests, Key};

use crate::journal;

/// The journal and the lanes of one process; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestOperations {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
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

impl GuestOperations {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps writes to guests from being sent twice; without a directory for the journal nothing can be
    /// sent. A process that finds the journal in use by another one will not get the scope's lock either, and
    /// fails at that.
    pub(crate) fn dispatch_guard(
        &self,
        source: &Guests,
        scope: &str,
        limits: Limits,
        directory: Option<&Path>,
    ) -> Result<DispatchGuard<Key>> {
        let filed = filed(scope, source.endpoint());
        let opened = self.open(&filed, limits, directory);
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
            Err(error) => Err(journal::explain(&error)),
        }
    }

    /// The document names no cluster any more.
    pub(crate) fn leave_cluster(&self) {
        self.state().source = None;
    }

    /// The lanes of a cluster; nothing, for who only reads.
    fn open(
        &self,
        filed: &str,
        limits: Limits,
        directory: Option<&Path>,
    ) -> Result<Option<Operations<Key>>, JournalError> {
        let mut state = self.state();
        if let Some(operations) = state.clusters.get(filed) {
            operations.limit(limits);
            return Ok(Some(operations.clone()));
        }
        let Some(journal) = state.journal(directory)? else { return Ok(None) };
        let operations = Operations::new(journal, (Guests::NAME, filed), limits);
        state.clusters.insert(filed.to_owned(), operations.clone());
        Ok(Some(operations))
    }

    /// What commands need, once a document with a cluster is bound.
    pub(crate) fn commands(&self, lock: &ScopeLock) -> Result<Option<GuestCommands>> {
        let state = self.state();
        if let Some(busy) = &state.busy {
            return Err(busy.clone().into());
        }
        let (Some(source), Some(operations)) = (&state.source, &state.operations) else {
            return Ok(None);
        };
        let writer = source.writer(lock).context("cannot write to the cluster")?;
        Ok(Some(GuestCommands { writer: Arc::new(writer), operations: operations.clone() }))
    }
}

impl State {
    /// The journal, opened when it is first needed; nothing, for who only reads.
    fn journal(&mut self, directory: Option<&Path>) -> Result<Option<Arc<Journal>>, JournalError> {
        if self.journal.is_none() {
            let Some(directory) = directory else { return Ok(None) };
            let made = fs::create_dir_all(directory);
            let failed = |source| JournalError::Open {
                path: directory.to_owned(),
                source: Arc::new(source),
            };
            made.map_err(failed)?;
            let journal = Journal::open(directory, journal::clock())?;
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

/// Carries out commands: the writer, and the lanes that it shares with the loops.
#[derive(Clone, Debug)]
pub(crate) struct GuestCommands {
    pub(crate) writer: Arc<homeostat_guests::Writer>,
    pub(crate) operations: Operations<Key>,
}
