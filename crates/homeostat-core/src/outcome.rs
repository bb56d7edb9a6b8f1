//! The results of steps.

use std::error::Error;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use crate::change::Reason;
use crate::explain::Action;
use crate::finding::Finding;
use crate::seen::Owner;
use crate::text::bounded;
use crate::waits_on::WaitsOn;

/// When a refused step is worth another try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// At once, after another look: the target moved under the plan, and nothing was written.
    Now,
    /// After a backoff.
    Soon,
    /// When the desired state or the target differs.
    #[default]
    OnChange,
    /// Not before a new desired state.
    Never,
}

/// Why something could not be done: the target's words, the way out, and when to try again.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{error}")]
#[non_exhaustive]
pub struct Failure {
    /// What failed, with its causes joined; bounded.
    pub error: String,
    /// The way out, if there is one.
    pub help: Option<String>,
    /// When another try makes sense.
    #[serde(skip)]
    pub retry: Retry,
}

impl Failure {
    /// A failure in plain words.
    pub fn new(error: impl Into<String>, retry: Retry) -> Self {
        Failure { error: bounded(error), help: None, retry }
    }

    /// The same with the way out, if one is known.
    #[must_use]
    pub fn with_known_help(self, help: Option<String>) -> Self {
        match help {
            Some(help) => self.with_help(help),
            None => self,
        }
    }

    /// A failure from an error and the chain of its sources.
    pub fn from_error(error: &dyn Error, retry: Retry) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Failure::new(text, retry)
    }

    /// An error that may be over in a moment. `map_err` takes it as it is.
    pub fn soon(error: impl Error) -> Self {
        Failure::from_error(&error, Retry::Soon)
    }

    /// An error that only another desired state could end.
    pub fn never(error: impl Error) -> Self {
        Failure::from_error(&error, Retry::Never)
    }

    /// Adds the way out.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(bounded(help));
        self
    }
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Outcome<O> {
    /// Done. `now` is the target's own answer about the object, where it gives one; without it the
    /// engine takes a second look.
    Applied {
        /// What the target says that it holds.
        now: Option<O>,
    },
    /// Done, and the target keeps another value for it, twice in a row.
    Settled {
        /// That value.
        held: O,
    },
    /// A foreign object turned out to sit on the key; nothing was written.
    Conflict { owner: Owner },
    /// Refused; nothing was written.
    Failed(Failure),
    /// Accepted, and the target does not show it.
    Unkept(Failure),
    /// The answer was lost: whether it was written is not known before the next look.
    Unknown {
        /// How it was lost.
        why: String,
    },
    /// Not tried.
    Pending { on: WaitsOn },
    /// Accepted by the target, which works on it.
    Waiting {
        /// The target's name for the work.
        task: String,
    },
}

impl<O> Outcome<O> {
    /// The outcome of a step that its writer never answered for: law 4 was broken.
    #[must_use]
    pub fn unanswered(source: &str) -> Self {
        Outcome::Unknown { why: format!("the `{source}` source gave no answer for this step") }
    }

    /// Why the key of a step is not simply as declared after this outcome; nothing if the step was applied. Where the
    /// target settled for something else, `settled` says it.
    pub fn finding(
        &self,
        action: Action,
        settled: impl FnOnce(&O) -> Option<Finding>,
    ) -> Option<Finding> {
        Some(match self {
            Outcome::Applied { .. } => return None,
            Outcome::Settled { held } => return settled(held),
            Outcome::Conflict { owner } => {
                Finding::Conflict { owner: owner.clone(), reason: Reason::Foreign }
            }
            Outcome::Failed(failure) => {
                Finding::Failed { action: Some(action), failure: failure.clone() }
            }
            Outcome::Unkept(failure) => Finding::NotShown { action, failure: failure.clone() },
            Outcome::Unknown { why } => Finding::Unknown { why: bounded(why) },
            Outcome::Pending { on } => Finding::Pending { on: on.clone() },
            Outcome::Waiting { task } => Finding::Pending { on: WaitsOn::Task(task.clone()) },
        })
    }

    /// Whether what depends on the step may go on.
    pub fn is_good(&self) -> bool {
        matches!(self, Outcome::Applied { .. } | Outcome::Settled { .. })
    }
}

/// What a write that must not be sent twice is, so that it can be found again after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// What is done: `start`, `stop`, `set`.
    pub kind: String,
    /// A fingerprint of everything that is sent.
    pub parameters: String,
    /// What must hold for it to be done: a digest, a generation.
    pub precondition: Option<String>,
}

/// A write that was begun and has no recorded end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The key, as text.
    pub key: String,
    /// What was to be sent.
    pub dispatch: Dispatch,
    /// The target's name for the work, if it is known to have accepted it.
    pub task: Option<String>,
    /// Its name for the last work on the key before: what is looked for came after it.
    pub after: Option<String>,
    /// When it was begun, in milliseconds since 1970.
    pub since: u64,
}

/// How a piece of the target's own work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// It was done.
    Succeeded,
    /// It was not done; the target's words.
    Failed(String),
    /// It is not known before the next look.
    Unknown(String),
    /// It did not end within the time that was waited, and may still run: the step stays open, and the target is asked
    /// about it before anything else is sent to the key.
    GivenUp(String),
}

/// The result of a write whose answer was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The target works on it.
    Running {
        /// Its name for the work.
        task: String,
        /// Where it runs.
        node: String,
    },
    /// It is over.
    Ended(TaskEnd),
    /// The target shows nothing of it: it never arrived, or its task has still to begin.
    NotFound {
        /// What was looked for.
        why: String,
    },
}

/// A future that the caller drives.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where a writer reports the outcomes of its steps, one by one. Progress, journal and events depend on it.
pub trait Outcomes<O>: Send + Sync {
    /// The outcome of these steps of the plan; a range keeps a million of them cheap.
    fn put(&self, steps: Range<usize>, outcome: Outcome<O>);

    /// Asks for permission before a write that must not be sent twice: the intent is durable when
    /// it is given. Where no journal is kept, it is refused.
    fn intent(&self, step: usize) -> Later<'_, Result<(), Failure>>;

    /// Notes a write that may be sent again: nothing depends on the note. A journal that cannot take it is
    /// reported, and keeps nothing from being written.
    fn note(&self, step: usize) -> Later<'_, ()>;

    /// Records the target's name for the work that it accepted; durable when it returns.
    fn dispatched<'a>(&'a self, step: usize, task: &'a str) -> Later<'a, Result<(), Failure>>;
}
