//! A durable record of writes whose second dispatch would hurt: the intent before, the target's name for
//! the work once it has accepted it, and how it ended.
//!
//! It fences steps; it is never truth about the world. After a crash, [`Journal::open_steps`] says what
//! was in flight: a running task is adopted, a finished one closed, a lost one looked up, and what remains
//! unclear is closed as unknown and looked at again. Until then the key's next step is refused.
//!
//! [`Journal`] decides which record may follow (`journal/steps.rs`) and writes in groups: records that are appended
//! while a write waits for the disk go into the next one, so that many callers share one wait. Where they are kept is
//! a [`Store`]: a file of the state directory (`Journal::open`, with the feature `sqlite`), another one that may block
//! its thread ([`Journal::new`]), or one that waits for the network ([`Journal::over_network`]).

mod record;
#[cfg(feature = "sqlite")]
mod sqlite;
mod steps;

use std::io;
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use homeostat_core::outcome::Later;
use homeostat_core::text::bounded;
pub use record::{
    BadStepId, CommandKey, End, Entry, Fact, Intent, Millis, Record, Repeat, StepId, Subject,
};
#[cfg(feature = "sqlite")]
use sqlite::SqliteStore;
#[cfg(feature = "sqlite")]
pub use sqlite::{Following, follow};
use steps::Steps;
pub use steps::{Illegal, Known, OpenStep};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, oneshot};

/// Where a journal keeps its records. One journal at a time writes it, one batch after the other: from a thread that
/// may block, or as a task ([`Journal::over_network`]).
pub trait Store: Send + 'static {
    /// Makes a batch durable: all of it, or nothing.
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Later<'a, Result<(), JournalError>>;
}

/// What is written together.
#[derive(Debug, Default)]
pub struct Batch {
    /// New records, in order.
    pub put: Vec<Entry>,
    /// The numbers of records that nothing needs any more.
    pub delete: Vec<i64>,
}

/// Why the journal cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum JournalError {
    /// It could not be opened.
    #[error("cannot open the journal {path}: {source}")]
    Open {
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
    /// Another process writes it.
    #[error("another process writes the journal {path}")]
    Busy { path: PathBuf },
    /// A newer version wrote it.
    #[error("the journal {path} has format {found}, and this version knows formats up to {known}")]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// It is something else, or a record is broken or cannot follow those before it.
    #[error("the journal {path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    /// A record could not be written: nothing is sent that must not be sent twice.
    #[error("the journal {path} cannot be written: {source}")]
    Write {
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },
    /// It is in a store that machines share, and cannot be read or written there.
    #[error("the journal {journal} of all machines cannot be used: {why}")]
    Shared { journal: String, why: String, help: String },
    /// Another machine acts on the target, and writes its journal.
    #[error("this machine does not act on it: {why}")]
    NotHeld { why: String, help: String },
    /// The record cannot follow those before it.
    #[error(transparent)]
    Illegal(#[from] Illegal),
}

impl JournalError {
    /// The way out.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            JournalError::Damaged { path, .. } => Some(format!(
                "look at it; to begin a new one, check that no task in it still runs, and move {} \
                 away",
                path.display()
            )),
            JournalError::Newer { .. } => Some("use the newer version that wrote it".to_owned()),
            JournalError::Busy { .. } => Some("ask that process, or stop it".to_owned()),
            JournalError::Open { .. } => {
                Some("see to room and rights in the state directory, then start again".to_owned())
            }
            JournalError::Write { .. } => {
                Some("see to room and rights in the state directory; then it goes on".to_owned())
            }
            JournalError::Shared { help, .. } | JournalError::NotHeld { help, .. } => {
                Some(help.clone())
            }
            JournalError::Illegal(_) => None,
        }
    }
}

/// Returns the time of day.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

/// A journal that this process alone writes. When it is dropped, it waits until everything is written.
pub struct Journal {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens or makes the journal of a state directory.
    #[cfg(feature = "sqlite")]
    pub fn open(directory: &Path, clock: Clock) -> Result<Self, JournalError> {
        let (store, entries) = SqliteStore::open(directory)?;
        Journal::new(store, &entries, clock).map_err(|illegal| JournalError::Damaged {
            path: directory.join("journal"),
            reason: illegal.to_string(),
        })
    }

    /// A journal over a store that holds these entries. Refused, if one of them cannot follow those before it.
    pub fn new(store: impl Store, entries: &[Entry], clock: Clock) -> Result<Self, Illegal> {
        let blocking = Keeper::Blocking(Mutex::new(Some(Box::new(store))));
        Self::over(blocking, entries, clock)
    }

    /// The same over a store that waits for the network. It is written by a task of this runtime, and needs its time and
    /// its sockets, so it must outlive the journal's use. A journal that is dropped does not wait for what it writes:
    /// the runtime may be the one whose thread drops it.
    pub fn over_network(
        runtime: Handle,
        store: impl Store,
        entries: &[Entry],
        clock: Clock,
    ) -> Result<Self, Illegal> {
        let store = Box::new(store);
        Self::over(Keeper::Task { runtime, store: AsyncMutex::new(store) }, entries, clock)
    }

    fn over(keeper: Keeper, entries: &[Entry], clock: Clock) -> Result<Self, Illegal> {
        let mut steps = Steps::default();
        entries.iter().try_for_each(|entry| steps.add(entry))?;
        let epoch = steps.newest().map_or(1, |newest| newest.epoch.saturating_add(1));
        let queue = Queue {
            steps,
            newest: StepId { epoch, sequence: 0 },
            number: entries.last().map_or(0, |entry| entry.number),
            batch: Batch::default(),
            waiting: Vec::new(),
            is_flushing: false,
        };
        let shared = Shared { queue: Mutex::new(queue), idle: Condvar::new(), keeper, clock };
        Ok(Journal { shared: Arc::new(shared) })
    }

    /// Begins a step; durable when it returns. Refused while the key has an open step, or if the
    /// command it belongs to was begun before, unless it is not known how that ended.
    pub async fn begin(&self, intent: Intent) -> Result<StepId, JournalError> {
        self.append(None, Fact::Intent(intent)).await
    }

    /// The target accepted a step, and calls the work so.
    pub async fn dispatched(&self, id: StepId, task: &str) -> Result<(), JournalError> {
        self.append(Some(id), Fact::Dispatched { task: task.to_owned() }).await.map(|_| ())
    }

    /// A step is over. If this cannot be written, it is kept in memory, and written together with the next record.
    pub async fn end(&self, id: StepId, end: End) -> Result<(), JournalError> {
        let end = match end {
            End::Failed { why } => End::Failed { why: bounded(why) },
            End::Unknown { why } => End::Unknown { why: bounded(why) },
            succeeded @ End::Succeeded { .. } => succeeded,
        };
        self.append(Some(id), Fact::Ended(end)).await.map(|_| ())
    }

    /// The open step of a key.
    #[must_use]
    pub fn open_step(&self, subject: &Subject) -> Option<OpenStep> {
        self.shared.queue().steps.open_step(subject)
    }

    /// All open steps, the oldest first.
    #[must_use]
    pub fn open_steps(&self) -> Vec<OpenStep> {
        self.shared.queue().steps.open_steps()
    }

    /// What is known of a command that a client named.
    #[must_use]
    pub fn known(&self, command: &str) -> Option<Known> {
        self.shared.queue().steps.known(command, (self.shared.clock)())
    }

    /// The last step of a command that a client named, if it is not known how it ended: then the name may
    /// be begun again, once it is known that this one is not at work any more.
    #[must_use]
    pub fn doubted(&self, command: &str) -> Option<OpenStep> {
        self.shared.queue().steps.doubted(command, (self.shared.clock)())
    }

    /// How many commands are known by name. Those whose time is over are forgotten together with old records.
    #[must_use]
    pub fn names(&self) -> usize {
        self.shared.queue().steps.names()
    }

    /// Queues a record; the future resolves once it is durable. The first caller starts the flush; records queued
    /// meanwhile join the next one.
    async fn append(&self, id: Option<StepId>, fact: Fact) -> Result<StepId, JournalError> {
        let shared = &self.shared;
        let (id, written, is_flushing) = {
            let mut queue = shared.queue();
            let (id, written) = queue.add(id, fact, (shared.clock)())?;
            (id, written, std::mem::replace(&mut queue.is_flushing, true))
        };
        if !is_flushing {
            match &shared.keeper {
                Keeper::Blocking(_) => {
                    let flush = Flush(Some(Arc::clone(shared)));
                    if let Ok(runtime) = Handle::try_current() {
                        runtime.clone().spawn_blocking(move || flush.run(&runtime));
                    }
                }
                Keeper::Task { runtime, .. } => {
                    let flush =
                        FlushTask { shared: Arc::clone(shared), batch: None, is_done: false };
                    runtime.spawn(flush.run());
                }
            }
        }
        written.await.unwrap_or_else(|_| Err(closed())).map(|()| id)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let Keeper::Blocking(store) = &self.shared.keeper else { return };
        let mut queue = self.shared.queue();
        while queue.is_flushing {
            queue = self.shared.idle.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        drop(queue);
        // The thread of the last flush may still hold the rest for a moment, but no longer the store.
        drop(store.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

type Written = Result<(), JournalError>;

struct Shared {
    queue: Mutex<Queue>,
    /// Nothing is being written.
    idle: Condvar,
    keeper: Keeper,
    clock: Clock,
}

/// How the store is written.
enum Keeper {
    /// On a thread that may block. Nothing, once the journal is closed.
    Blocking(Mutex<Option<Box<dyn Store>>>),
    /// By a task.
    Task { runtime: Handle, store: AsyncMutex<Box<dyn Store>> },
}

/// The sum of all records, with those that wait to be written.
struct Queue {
    steps: Steps,
    /// The last id and the last number that were given out.
    newest: StepId,
    number: i64,
    batch: Batch,
    waiting: Vec<oneshot::Sender<Written>>,
    is_flushing: bool,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes one batch after the other, until no caller waits for one.
    fn flush(&self, runtime: Option<&Handle>) {
        let Keeper::Blocking(store) = &self.keeper else { return };
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let next = self.queue().take();
            let Some((batch, waiting)) = next else { break };
            let written = match (store.as_mut().map(|store| store.write(&batch)), runtime) {
                (Some(write), Some(runtime)) => runtime.block_on(write),
                (Some(write), None) => write.now_or_never().unwrap_or_else(|| Err(closed())),
                (None, _) => Err(closed()),
            };
            if written.is_err() {
                self.queue().restore(batch);
            }
            for one in waiting {
                // A caller that stopped waiting needs no answer.
                let _ = one.send(written.clone());
            }
        }
        drop(store);
        self.idle.notify_all();
    }
}

impl Queue {
    /// Adds a record to the sum and to the next batch, or to neither.
    fn add(
        &mut self,
        id: Option<StepId>,
        fact: Fact,
        now: Millis,
    ) -> Result<(StepId, oneshot::Receiver<Written>), Illegal> {
        let next = StepId { sequence: self.newest.sequence + 1, ..self.newest };
        let previous_task = match &fact {
            Fact::Intent(intent) => self.steps.last_task(&intent.subject),
            Fact::Dispatched { .. } | Fact::Ended(_) => None,
        };
        let record = Record { id: id.unwrap_or(next), at: now, fact };
        let entry = Entry { number: self.number + 1, record, previous_task };
        self.steps.add(&entry)?;
        if id.is_none() {
            self.newest = next;
        }
        self.number = entry.number;
        self.batch.put.push(entry);
        self.batch.delete.extend(self.steps.prune(now));
        let (sender, written) = oneshot::channel();
        self.waiting.push(sender);
        Ok((id.unwrap_or(next), written))
    }

    /// The next batch. Nothing, if no caller waits for one: then the next caller starts a flush.
    fn take(&mut self) -> Option<(Batch, Vec<oneshot::Sender<Written>>)> {
        self.is_flushing = !self.waiting.is_empty();
        self.is_flushing
            .then(|| (std::mem::take(&mut self.batch), std::mem::take(&mut self.waiting)))
    }

    /// After a failed write: a step whose intent was not written is not sent, so it was never begun. The other records
    /// say what has happened, and go with the next batch.
    fn restore(&mut self, mut failed: Batch) {
        failed.put.retain(|Entry { record, .. }| {
            let is_intent = matches!(record.fact, Fact::Intent(_));
            if is_intent {
                self.steps.retract(record.id);
            }
            !is_intent
        });
        failed.put.append(&mut self.batch.put);
        failed.delete.append(&mut self.batch.delete);
        self.batch = failed;
    }
}

/// Writes one batch after the other as a task. If its runtime shuts down, what is being written counts as not written,
/// as after any other failure: the store decides what that means for the next batch.
struct FlushTask {
    shared: Arc<Shared>,
    batch: Option<Batch>,
    is_done: bool,
}

impl FlushTask {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let Keeper::Task { store, .. } = &shared.keeper else { return };
        let mut store = store.lock().await;
        loop {
            let next = shared.queue().take();
            let Some((batch, waiting)) = next else { break };
            let batch = self.batch.insert(batch);
            let written = store.write(batch).await;
            if let (Some(batch), Err(_)) = (self.batch.take(), &written) {
                shared.queue().restore(batch);
            }
            for one in waiting {
                // A caller that stopped waiting needs no answer.
                let _ = one.send(written.clone());
            }
        }
        self.is_done = true;
    }
}

impl Drop for FlushTask {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut queue = self.shared.queue();
        queue.restore(self.batch.take().unwrap_or_default());
        let queued = std::mem::take(&mut queue.batch);
        queue.restore(queued);
        // Their callers learn that the journal is closed.
        (queue.waiting, queue.is_flushing) = (Vec::new(), false);
    }
}

fn closed() -> JournalError {
    let source = Arc::new(io::Error::other("it is closed"));
    JournalError::Write { path: PathBuf::from("journal"), source }
}

/// A flush on its way to a thread that may block. A runtime that shuts down drops what it has not begun: then it is
/// done where it is dropped, or no later one would ever be started.
struct Flush(Option<Arc<Shared>>);

impl Flush {
    fn run(mut self, runtime: &Handle) {
        if let Some(shared) = self.0.take() {
            shared.flush(Some(runtime));
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.flush(None);
        }
    }
}
