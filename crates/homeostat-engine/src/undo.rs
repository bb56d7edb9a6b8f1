//! What a pass takes away while its desired state may be taken back.

use std::fmt;

use homeostat_core::{Failure, Outcome, Retry, Snapshot, Taking};

use crate::ledger::LedgerKey;

/// Remembers objects that a step takes away, so that they can be made again.
pub trait UndoList: fmt::Debug + Send + Sync {
    /// Records objects by their keys; they are durable when it returns. What was recorded before stays as it was.
    fn record(
        &self,
        of: &LedgerKey,
        taken: &[(String, Snapshot)],
        taking: Taking,
    ) -> Result<(), Failure>;

    /// Takes objects off the list that did not go after all: if their owner deletes them later, they stay deleted.
    fn strike(&self, of: &LedgerKey, kept: &[String]) -> Result<(), Failure>;
}

/// The result of making an object again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// It is back.
    Back,
    /// Something is there already, and stays.
    There,
    /// It is not back.
    Failed(Failure),
}

impl Restored {
    pub(crate) fn from_outcome<O>(outcome: Outcome<O>) -> Self {
        match outcome {
            Outcome::Applied { .. } | Outcome::Settled { .. } => Restored::Back,
            Outcome::Conflict { .. } => Restored::There,
            Outcome::Failed(failure) | Outcome::Unkept(failure) => Restored::Failed(failure),
            Outcome::Unknown { why } => Restored::Failed(Failure::new(why, Retry::Soon)),
            Outcome::Pending { on } => {
                Restored::Failed(Failure::new(format!("it waits on {on}"), Retry::Soon))
            }
            Outcome::Waiting { task } => {
                Restored::Failed(Failure::new(format!("it waits on task {task}"), Retry::Soon))
            }
        }
    }
}
