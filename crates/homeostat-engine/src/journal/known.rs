//! What a journal tells of its steps, and why it refuses a line.

use homeostat_core::{Begun, Dispatch};

use super::record::{End, Intent, Millis, StepId};

/// A step that was begun and has no end yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStep {
    /// Which.
    pub id: StepId,
    /// Since when.
    pub since: Millis,
    /// What was to be sent.
    pub intent: Intent,
    /// The target's name for the work, if it is known to have accepted it.
    pub task: Option<String>,
    /// Its name for the last work on the key before this step: what is looked for came after it.
    pub after: Option<String>,
}

impl OpenStep {
    /// What the target can be asked about it.
    #[must_use]
    pub fn begun(&self) -> Begun {
        let OpenStep { since, intent, task, after, .. } = self.clone();
        let Intent { subject, kind, parameters, precondition, .. } = intent;
        let dispatch = Dispatch { kind, parameters, precondition };
        Begun { key: subject.key, dispatch, task, after, since: since.0 }
    }
}

/// What is known of a command that a client named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It runs: whoever asks again waits for the same end.
    Running(StepId),
    /// It ended so.
    Ended(End),
}

/// Why a line cannot follow those before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Illegal {
    /// An id is used twice, or runs backwards.
    #[error("step {0} is begun after a later one")]
    Order(StepId),
    /// A key has an open step.
    #[error("step {id} of `{key}` has no end yet")]
    StillOpen {
        /// The open step.
        id: StepId,
        /// The key.
        key: String,
    },
    /// A client's name for a command is taken.
    #[error("the command `{0}` was already begun")]
    Command(String),
    /// A step that was never begun, or has ended.
    #[error("step {0} is not open")]
    NotOpen(StepId),
    /// A step has a task already.
    #[error("step {id} was already dispatched, as task {task}")]
    Dispatched {
        /// The step.
        id: StepId,
        /// Its task.
        task: String,
    },
}
