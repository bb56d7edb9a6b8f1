//! A store in memory: for tests, and for what it costs to have a journal without a disk.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_core::outcome::Later;

use super::record::Entry;
use super::{Batch, JournalError, Store};

/// Records in memory. Clones are the same one, so that a test can open it again after a process has died.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    is_full: bool,
}

impl MemoryStore {
    /// What was written and not deleted, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.state().entries.clone()
    }

    /// Has all writes fail from here on, as on a full disk, or succeed again.
    pub fn set_full(&self, is_full: bool) {
        self.state().is_full = is_full;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Later<'a, Result<(), JournalError>> {
        let mut state = self.state();
        let written = if state.is_full {
            let source = Arc::new(io::ErrorKind::StorageFull.into());
            Err(JournalError::Write { path: "in memory".into(), source })
        } else {
            state.entries.extend_from_slice(&batch.put);
            state.entries.retain(|entry| !batch.delete.contains(&entry.number));
            Ok(())
        };
        Box::pin(std::future::ready(written))
    }
}
