//! A durable record of writes whose second dispatch would hurt: the intent before, the target's name for
//! the work once it has accepted it, and how it ended.
//!
//! It fences steps; it is never truth about the world. After a crash, [`Journal::open_steps`] tells what
//! was in flight: a running task is adopted, a finished one closed, a lost one looked up, and what nobody
//! can tell is closed as unknown and looked at again. Until then the key's next step is refused.
//!
//! The file is a line a record, each with a checksum. Whatever is handed in while a write waits for the
//! disk goes into the next one, so that many callers share one wait.

mod file;
mod flat;
mod known;
mod line;
mod reading;
mod record;
mod scribe;
mod steps;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use file::{Found, JournalFile};
pub use known::{Illegal, Known, OpenStep};
pub use reading::{Following, follow};
pub use record::{
    BadStepId, CommandKey, End, Fact, Intent, Millis, Record, Repeat, StepId, Subject,
};
use scribe::Scribe;
use steps::Steps;

/// Why the journal cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// It could not be opened.
    #[error("cannot open the journal {path}: {source}")]
    Open {
        /// Its file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: Arc<io::Error>,
    },
    /// Somebody else writes it.
    #[error("another process writes the journal {path}")]
    Busy {
        /// Its file.
        path: PathBuf,
    },
    /// A newer version wrote it.
    #[error("the journal {path} has format {found}, and this version knows formats up to {known}")]
    Newer {
        /// Its file.
        path: PathBuf,
        /// The format in the file.
        found: u32,
        /// The newest known format.
        known: u32,
    },
    /// A line in the middle is broken or cannot follow those before it.
    #[error("the journal {path} is damaged in line {line}: {reason}")]
    Damaged {
        /// Its file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A line could not be written: nothing is sent that must not be sent twice.
    #[error("the journal {path} cannot be written: {source}")]
    Write {
        /// Its file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: Arc<io::Error>,
    },
    /// The line cannot follow those before it.
    #[error(transparent)]
    Illegal(#[from] Illegal),
}

impl JournalError {
    /// The way out.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            JournalError::Damaged { path, .. } => Some(format!(
                "look at it; to begin a new one, move {} away, and see to it that nothing it tells \
                 of still runs",
                path.display()
            )),
            JournalError::Newer { .. } => Some("use the newer version that wrote it".to_owned()),
            JournalError::Busy { .. } => Some("ask the daemon, or stop it".to_owned()),
            JournalError::Open { .. } => {
                Some("see to room and rights in the state directory, then start again".to_owned())
            }
            JournalError::Write { .. } => {
                Some("see to room and rights in the state directory; then it goes on".to_owned())
            }
            JournalError::Illegal(_) => None,
        }
    }
}

/// What the opening of a journal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// So many bytes at its end were no whole line, and were cut off: the last write was torn.
    pub cut: u64,
    /// The steps without an end.
    pub open: Vec<OpenStep>,
}

/// A journal that this process alone writes.
pub struct Journal {
    path: PathBuf,
    scribe: Scribe,
    clock: Clock,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Tells the time of day.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

impl Journal {
    /// Opens or makes the journal of a state directory.
    pub fn open(directory: &Path, clock: Clock) -> Result<(Journal, Recovered), JournalError> {
        let Found { file, steps, cut } = JournalFile::open(directory, clock())?;
        let recovered = Recovered { cut, open: steps.open_steps() };
        let path = file.path().to_owned();
        Ok((Journal { path, scribe: Scribe::new(file, steps, clock.clone()), clock }, recovered))
    }

    /// Begins a step; durable when it returns. Refused while the key has an open step, or if the
    /// command it belongs to was begun before, unless nobody knows how that ended.
    pub async fn begin(&self, intent: Intent) -> Result<StepId, JournalError> {
        self.write(None, Fact::Intent(intent)).await
    }

    /// The target accepted a step, and calls the work so.
    pub async fn dispatched(&self, id: StepId, task: &str) -> Result<(), JournalError> {
        self.write(Some(id), Fact::Dispatched { task: task.to_owned() }).await.map(|_| ())
    }

    /// A step is over.
    pub async fn end(&self, id: StepId, end: End) -> Result<(), JournalError> {
        self.write(Some(id), Fact::Ended(end)).await.map(|_| ())
    }

    /// The open step of a key.
    #[must_use]
    pub fn open_step(&self, subject: &Subject) -> Option<OpenStep> {
        self.scribe.with_steps(|steps| steps.open_step(subject))
    }

    /// All open steps, the oldest first.
    pub fn open_steps(&self) -> Vec<OpenStep> {
        self.scribe.with_steps(Steps::open_steps)
    }

    /// What is known of a command that a client named.
    #[must_use]
    pub fn known(&self, command: &str) -> Option<Known> {
        self.scribe.with_steps(|steps| steps.known(command, (self.clock)()))
    }

    /// The last step of a command that a client named, if it ended so that nobody knows how: then the name may
    /// be begun again, once it is known that this one is not at work any more.
    #[must_use]
    pub fn doubted(&self, command: &str) -> Option<OpenStep> {
        self.scribe.with_steps(|steps| steps.doubted(command, (self.clock)()))
    }

    /// How many commands are known by name. Those whose time is over go when the file is made anew.
    #[must_use]
    pub fn names(&self) -> usize {
        self.scribe.with_steps(Steps::names)
    }

    /// How many waits for the disk its lines took; those that came together share one.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.scribe.writes()
    }

    async fn write(&self, id: Option<StepId>, fact: Fact) -> Result<StepId, JournalError> {
        let (id, answer) = self.scribe.hand(id, fact)?;
        let written = answer.await.unwrap_or_else(|_| Err(Arc::new(io::Error::other("it ended"))));
        let failed = |source| JournalError::Write { path: self.path.clone(), source };
        written.map_err(failed).map(|()| id)
    }
}
