//! What can go wrong in a pass beside its steps.

use std::path::PathBuf;
use std::time::Duration;

use homeostat_core::{Failure, Retry};

/// Why a pass, the ledger or the lock failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Error {
    /// The source could not be opened or observed.
    #[error("cannot observe `{name}` in `{scope}`: {failure}")]
    Observe { name: &'static str, scope: String, failure: Failure },
    /// A writer could not be opened.
    #[error("cannot open a writer for `{name}` in `{scope}`: {failure}")]
    Writer { name: &'static str, scope: String, failure: Failure },
    /// A focused pass came before the first full one.
    #[error("a focused pass needs a full one before it")]
    NotSynced,
    /// The ledger could not be opened.
    #[error("cannot open the ledger {path}")]
    OpenLedger {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The ledger was written by a newer version.
    #[error("the ledger {path} has format {found}, and this version knows formats up to {known}")]
    NewerLedger { path: PathBuf, found: i64, known: i64 },
    /// The ledger's file is damaged, or is something else.
    #[error("the ledger {path} is damaged: {reason}")]
    DamagedLedger { path: PathBuf, reason: String },
    /// A record could not be understood.
    #[error("the ledger's record of `{key}` cannot be read: {reason}")]
    BadRecord {
        /// The key, as stored.
        key: String,
        reason: String,
    },
    /// The ledger could not be read.
    #[error("cannot read the ledger")]
    ReadLedger(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The ledger could not be written; nothing that needs a record was written to the target.
    #[error("cannot write the ledger")]
    WriteLedger(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The ledger's file is not where it was opened.
    #[error("the ledger {path} was deleted or replaced while it was in use")]
    LostLedger { path: PathBuf },
    /// The steps ran, but the ledger could not take their outcomes: the intents stand in it.
    #[error("cannot record the outcomes in the ledger")]
    RecordOutcomes(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A pass took longer than it may.
    #[error("the pass did not end within {deadline:?}")]
    TooLong {
        /// How long it may take.
        deadline: Duration,
    },
    /// A stop was asked for while the pass ran.
    #[error("the loop stopped before the pass had ended")]
    Stopped,
    /// The source panicked; it is opened anew.
    #[error("the source panicked: {what}")]
    Panicked { what: String },
    /// Another process writes in this scope.
    #[error("the scope is locked by {holder}")]
    Locked {
        /// Who: process, program and user.
        holder: String,
    },
    /// The lock could not be taken for another reason.
    #[error("cannot take the lock of the scope")]
    Lock(#[source] std::io::Error),
}

impl Error {
    /// The way out, for people.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Error::Observe { failure, .. } | Error::Writer { failure, .. } => failure.help.clone(),
            Error::OpenLedger { .. } => Some(
                "the state directory must be a directory with room on its disk, and this user must \
                 own it"
                    .into(),
            ),
            Error::NewerLedger { .. } => {
                Some("use the version that wrote it, or another state directory".into())
            }
            Error::DamagedLedger { path, .. } => Some(format!(
                "restore a backup, or move {} away to begin a new one: marks in the target stay, but \
                 original values and the records of objects without a mark are lost",
                path.display()
            )),
            Error::BadRecord { .. } => Some(
                "use the version that wrote it, or delete its row from `record` in ledger.db: what it \
                 is about is no longer known to be ours then"
                    .into(),
            ),
            Error::LostLedger { .. } => Some(
                "put it back, or restart to begin a new one: marks in the target stay, but original \
                 values and the records of objects without a mark are lost"
                    .into(),
            ),
            Error::WriteLedger(_) => Some(
                "make room on the disk of the state directory, or check its permissions; \
                 steps that need a record were not made"
                    .into(),
            ),
            Error::RecordOutcomes(_) => Some(
                "make room on the disk of the state directory, or check its permissions, and run \
                 again: the target was written, and the next pass records it"
                    .into(),
            ),
            Error::Locked { .. } => {
                Some("stop that process, or use another owner".into())
            }
            Error::Panicked { .. } => Some("this is a bug of the source; the others go on".into()),
            Error::NotSynced
            | Error::ReadLedger(_)
            | Error::Lock(_)
            | Error::TooLong { .. }
            | Error::Stopped => None,
        }
    }

    /// The error as a part of a report.
    #[must_use]
    pub fn failure(&self) -> Failure {
        Failure::from_error(self, self.retry()).with_known_help(self.help())
    }

    /// When another try makes sense.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::Observe { failure, .. } | Error::Writer { failure, .. } => failure.retry,
            Error::NewerLedger { .. } | Error::DamagedLedger { .. } | Error::BadRecord { .. } => {
                Retry::Never
            }
            _ => Retry::Soon,
        }
    }
}
