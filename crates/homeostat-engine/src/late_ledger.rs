//! The ledger of a process that starts while its disk is full or read-only.
//!
//! Existing records are read. A step that needs a new record is held back, since the record is written first; objects
//! with a mark in the target are healed as usual. The ledger is opened as soon as its disk can be written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::ErrorCode;

use crate::error::Error;
use crate::ledger::{Edit, Ledger, LedgerKey, Page, Pages};
use crate::sqlite::{SqliteLedger, SqlitePages};

/// A ledger that may be opened for writing later than it is read.
pub struct LateLedger {
    directory: PathBuf,
    state: Mutex<State>,
}

enum State {
    Open(Arc<SqliteLedger>),
    ReadOnly(Arc<SqlitePages>),
}

impl LateLedger {
    /// Opens the ledger in a state directory. The second value says why it cannot be written yet. What is wrong with the
    /// file itself, or with who may write it, is an error: that does not pass by itself.
    pub fn open(directory: &Path) -> Result<(Self, Option<Error>), Error> {
        let (state, unwritable) = match SqliteLedger::open(directory) {
            Ok(ledger) => (State::Open(Arc::new(ledger)), None),
            Err(error) if is_of_the_disk(&error) => match SqlitePages::open(directory) {
                Ok(pages) => (State::ReadOnly(Arc::new(pages)), Some(error)),
                Err(_) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        Ok((LateLedger { directory: directory.to_owned(), state: Mutex::new(state) }, unwritable))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> Arc<dyn Pages> {
        match &*self.state() {
            State::Open(ledger) => Arc::clone(ledger) as Arc<dyn Pages>,
            State::ReadOnly(pages) => Arc::clone(pages) as Arc<dyn Pages>,
        }
    }

    /// The ledger, once it can be written.
    fn ledger(&self) -> Result<Arc<SqliteLedger>, Error> {
        let mut state = self.state();
        if let State::Open(ledger) = &*state {
            return Ok(Arc::clone(ledger));
        }
        let ledger = Arc::new(SqliteLedger::open(&self.directory)?);
        *state = State::Open(Arc::clone(&ledger));
        Ok(ledger)
    }
}

/// Whether room on the disk, or a disk that can be written, would help.
fn is_of_the_disk(error: &Error) -> bool {
    let Error::OpenLedger { source, .. } = error else { return false };
    let of_file = source.downcast_ref::<std::io::Error>().is_some_and(|error| {
        matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem
        )
    });
    let code = source.downcast_ref().and_then(rusqlite::Error::sqlite_error_code);
    // Without room for the index of its log, `SQLite` speaks of a failure of the system.
    let of_store = matches!(
        code,
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::ReadOnly)
    );
    of_file || of_store
}

impl Pages for LateLedger {
    fn page(&self, at: &LedgerKey) -> Result<Page, Error> {
        self.pages().page(at)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.pages().places(owner)
    }

    fn places_in(&self, owner: &str, scope: &str) -> Result<Vec<LedgerKey>, Error> {
        self.pages().places_in(owner, scope)
    }

    fn others(&self, at: &LedgerKey) -> Result<Vec<(String, String)>, Error> {
        self.pages().others(at)
    }
}

impl Ledger for LateLedger {
    fn check(&self) -> Result<(), Error> {
        self.ledger()?.check()
    }

    fn write(&self, at: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        let ledger = self.ledger().map_err(|error| match error {
            Error::OpenLedger { source, .. } => Error::WriteLedger(source),
            other => other,
        })?;
        ledger.write(at, edits)
    }

    fn clear(&self, at: &LedgerKey) -> Result<(), Error> {
        self.ledger()?.clear(at)
    }
}
