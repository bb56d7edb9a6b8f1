//! How others use a running loop: by its [`Handle`]. [`Control`] is what a handle can do whatever its source is, so that
//! one program can hold many kinds.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use educe::Educe;
use futures_util::FutureExt as _;
use homeostat_core::outcome::Later;
use homeostat_core::pacing::Time;
use homeostat_core::{Desired as _, PassReport, SharedReport, Snapshot, Source};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::open::{OpenEntry, OpenKeys};
use super::settle::Patience;
use super::status::{Status, Watchdog};
use crate::bound::{Bound, Planner};
use crate::error::Error;
use crate::ledger::LedgerKey;
use crate::undo::Restored;

/// The report of a pass, or why there is none.
pub type PassAnswer = Result<SharedReport, Arc<Error>>;

/// What a loop does with the objects that we own when it stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStop {
    /// Everything stays, and stays ours.
    #[default]
    Leave,
    /// Everything stays, and what the ledger knows of it is forgotten.
    Release,
    /// What we made goes, and originals come back.
    Revert,
}

pub(super) enum Command<S: Source> {
    Put(Arc<Bound<S>>, Forget),
    Apply(Arc<Bound<S>>, oneshot::Sender<PassAnswer>),
    Pass(oneshot::Sender<PassAnswer>),
    Record(mpsc::UnboundedSender<PassReport>),
    Settle(Patience, oneshot::Sender<()>),
    Look(S::Key, oneshot::Sender<PassAnswer>),
    Adopt(S::Key, oneshot::Sender<PassAnswer>),
    Forget(S::Key, oneshot::Sender<Result<bool, Arc<Error>>>),
    Restore(Vec<(S::Key, Snapshot)>, oneshot::Sender<Vec<(String, Restored)>>),
    Pause(Option<Duration>),
    Resume,
    Stop(OnStop, oneshot::Sender<()>),
}

/// Which failures another desired state makes a loop forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forget {
    /// Those of keys whose declaration changed.
    Changed,
    All,
}

/// A running loop, seen from outside. When the last handle is dropped, the loop ends as
/// with [`OnStop::Leave`].
#[derive(Educe)]
#[educe(Clone)]
pub struct Handle<S: Source> {
    pub(super) commands: mpsc::UnboundedSender<Command<S>>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) open: Arc<OpenKeys<S::Key>>,
    /// The number of the desired state that was put last.
    pub(super) generation: Arc<AtomicU64>,
    pub(super) latest: Arc<Mutex<Arc<Bound<S>>>>,
    pub(super) ledger_key: Arc<LedgerKey>,
}

impl<S: Source> Handle<S> {
    /// Gives the loop another desired state, with the way in which passes behave under it, and returns whether
    /// anything changed. From here on the status is converged only if it is so for this desired state, or for one
    /// that was put later.
    ///
    /// The same again neither wakes the loop nor ends a backoff. A changed desired state begins the backoff of the
    /// keys anew whose declaration changed; the others that fail are tried once, and keep their count.
    pub fn put(&self, bound: Bound<S>) -> Result<bool, CommandRefused> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.is_same(&bound) {
            return if self.commands.is_closed() { Err(CommandRefused::Ended) } else { Ok(false) };
        }
        self.take(&mut latest, bound, |bound| Command::Put(bound, Forget::Changed)).map(|()| true)
    }

    /// The same for an operator who asks for it, and may have removed the cause of a failure: everything is
    /// opened again and tried again, also if nothing changed, and does not wait for the pace of new desired states.
    pub fn replace(&self, bound: Bound<S>) -> Result<(), CommandRefused> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        self.take(&mut latest, bound, |bound| Command::Put(bound, Forget::All))
    }

    /// The same, with the report of the pass that carries it out. That pass runs even while the loop is paused.
    pub fn apply(
        &self,
        bound: Bound<S>,
    ) -> Result<Later<'static, Result<PassAnswer, CommandRefused>>, CommandRefused> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, answered) = oneshot::channel();
        self.take(&mut latest, bound, |bound| Command::Apply(bound, answer))?;
        Ok(Box::pin(async move { answered.await.map_err(|_| CommandRefused::Ended) }))
    }

    /// Sent under the lock, so that the loop gets what is latest last.
    fn take(
        &self,
        latest: &mut Arc<Bound<S>>,
        bound: Bound<S>,
        command: impl FnOnce(Arc<Bound<S>>) -> Command<S>,
    ) -> Result<(), CommandRefused> {
        let bound = Arc::new(bound);
        *latest = Arc::clone(&bound);
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.send(command(bound))
    }

    /// Waits for a status.
    pub async fn wait_for(
        &self,
        mut so: impl FnMut(&Status) -> bool,
    ) -> Result<Status, CommandRefused> {
        let mut status = self.status.clone();
        let found = status.wait_for(|status| so(&self.newest(status))).await;
        found.map(|status| self.newest(&status)).map_err(|_| CommandRefused::Ended)
    }

    /// Whether the last pass that looked at this key found it not as declared, be it declared or not.
    #[must_use]
    pub fn is_open(&self, key: &S::Key) -> bool {
        self.open.read().contains_key(key)
    }

    /// A status of an older desired state says nothing about the newest one.
    fn newest(&self, status: &Status) -> Status {
        let is_newest = status.generation == self.generation.load(Ordering::Relaxed);
        Status {
            is_converged: status.is_converged && is_newest,
            has_passed: status.has_passed && is_newest,
            ..status.clone()
        }
    }

    fn send(&self, command: Command<S>) -> Result<(), CommandRefused> {
        self.commands.send(command).map_err(|_| CommandRefused::Ended)
    }

    /// Sends a command once the future is polled, and waits for its answer.
    fn ask<'a, T: Send + 'a>(
        &'a self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command<S> + Send + 'a,
    ) -> Later<'a, Result<T, CommandRefused>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.send(command(answer))?;
            answered.await.map_err(|_| CommandRefused::Ended)
        })
    }

    fn ask_about<'a, T: Send + 'a>(
        &'a self,
        key: &str,
        command: impl FnOnce(S::Key, oneshot::Sender<T>) -> Command<S> + Send + 'a,
    ) -> Later<'a, Result<T, CommandRefused>> {
        match parse::<S>(key) {
            Ok(key) => self.ask(move |answer| command(key, answer)),
            Err(refused) => Box::pin(std::future::ready(Err(refused))),
        }
    }
}

/// The reports of the passes of a loop. A caller that begins to record before it asks for a pass misses nothing of
/// what follows from that, not even what a task does between two of its commands.
#[derive(Debug)]
pub struct Recording(mpsc::UnboundedReceiver<PassReport>);

impl Recording {
    /// The reports since this was asked last, in order.
    pub fn take(&mut self) -> Vec<PassReport> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }

    /// Waits for the report of the next pass; nothing once the loop has ended. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<PassReport> {
        self.0.recv().await
    }
}

/// Why a command came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandRefused {
    /// The loop that would carry it out has ended.
    #[error("the loop has ended")]
    Ended,
    /// The text is no key of this source.
    #[error("`{0}` is no key of this source")]
    NotAKey(String),
    /// The desired state is for another source.
    #[error("this desired state is for another source")]
    AnotherSource,
}

/// What can be asked of a running loop of any source.
pub trait Control: Send + Sync {
    /// Where the ledger files the source.
    fn ledger_key(&self) -> &LedgerKey;
    /// Gives the loop another desired state, as in [`Handle::put`]. It must be bound to the same source.
    fn put(&self, planner: Box<dyn Planner>) -> Result<bool, CommandRefused>;
    /// Gives the loop a desired state for an operator who asks for it, as in [`Handle::replace`].
    fn replace(&self, planner: Box<dyn Planner>) -> Result<(), CommandRefused>;
    /// The same, with the report of the pass that carries it out, as in [`Handle::apply`].
    fn apply(
        &self,
        planner: Box<dyn Planner>,
    ) -> Result<Later<'static, Result<PassAnswer, CommandRefused>>, CommandRefused>;
    /// Runs a full pass now, and waits for its report.
    fn pass(&self) -> Later<'_, Result<PassAnswer, CommandRefused>>;
    /// Records the reports of all passes from here on, until it is dropped.
    fn record(&self) -> Recording;
    /// Waits until the loop is converged, or until only findings remain that time cannot cure.
    fn settle(&self, patience: Patience) -> Later<'_, Result<(), CommandRefused>>;
    /// Looks at one key, and reports its state. Writes nothing.
    fn look(&self, key: &str) -> Later<'_, Result<PassAnswer, CommandRefused>>;
    /// Takes once what is on a declared key now, from any owner.
    fn adopt(&self, key: &str) -> Later<'_, Result<PassAnswer, CommandRefused>>;
    /// Drops what the ledger knows of a key, and returns whether it knew anything. The target is not touched.
    fn forget(&self, key: &str) -> Later<'_, Result<Result<bool, Arc<Error>>, CommandRefused>>;
    /// Makes objects of other owners again that an earlier pass took along, where nothing is on their keys.
    fn restore(
        &self,
        taken: Vec<(String, Snapshot)>,
    ) -> Later<'_, Result<Vec<(String, Restored)>, CommandRefused>>;
    /// Holds passes off, for some time or until [resumed](Self::resume).
    fn pause(&self, during: Option<Duration>) -> Result<(), CommandRefused>;
    /// Lets passes go on, beginning with a full one.
    fn resume(&self) -> Result<(), CommandRefused>;
    /// Ends the loop, and waits until it has ended.
    fn stop(&self, policy: OnStop) -> Later<'_, ()>;
    /// The status of this moment; whether the loop is stuck is computed now.
    fn status(&self) -> Status;
    /// The first keys after `after` that are not as declared, at most `limit`, in the order of keys. It does not wait
    /// for a running pass.
    fn open_keys(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<OpenEntry>, CommandRefused>;
    /// The declared keys that a person may mean by some characters, the best ones first: at most `limit`. It does not
    /// wait for a running pass.
    fn find(&self, text: &str, limit: usize) -> FoundEntries;
    /// When a moment of the status is, or was.
    fn at(&self, time: Time) -> Instant;
    /// Waits for a status, which may be the present one. No status between two calls of `so` is missed for good: it is
    /// asked about the newest one, and again whenever there is another.
    fn wait_for<'a>(
        &'a self,
        so: Box<dyn FnMut(&Status) -> bool + Send + 'a>,
    ) -> Later<'a, Result<Status, CommandRefused>>;
}

/// Declared keys that a search found.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FoundEntries {
    /// The first ones.
    pub entries: Vec<FoundEntry>,
    /// How many were found.
    pub total: usize,
}

/// A declared key as the last passes left it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct FoundEntry {
    pub key: String,
    pub wanted: Value,
    /// Nothing, if it is as declared.
    pub open: Option<OpenEntry>,
}

/// An erased loop, and the handle to it.
#[non_exhaustive]
pub struct LoopTask {
    /// The handle.
    pub control: Arc<dyn Control>,
    /// The loop; nothing happens until it is polled.
    pub run: Later<'static, ()>,
}

fn downcast<S: Source>(planner: Box<dyn Planner>) -> Result<Bound<S>, CommandRefused> {
    let any: Box<dyn Any> = planner.into_any();
    any.downcast::<Bound<S>>().map(|bound| *bound).map_err(|_| CommandRefused::AnotherSource)
}

fn parse<S: Source>(key: &str) -> Result<S::Key, CommandRefused> {
    key.parse().map_err(|_| CommandRefused::NotAKey(key.to_owned()))
}

impl<S: Source> Control for Handle<S> {
    fn ledger_key(&self) -> &LedgerKey {
        &self.ledger_key
    }

    fn put(&self, planner: Box<dyn Planner>) -> Result<bool, CommandRefused> {
        self.put(downcast(planner)?)
    }

    fn replace(&self, planner: Box<dyn Planner>) -> Result<(), CommandRefused> {
        self.replace(downcast(planner)?)
    }

    fn apply(
        &self,
        planner: Box<dyn Planner>,
    ) -> Result<Later<'static, Result<PassAnswer, CommandRefused>>, CommandRefused> {
        self.apply(downcast(planner)?)
    }

    fn pass(&self) -> Later<'_, Result<PassAnswer, CommandRefused>> {
        self.ask(Command::Pass)
    }

    fn record(&self) -> Recording {
        let (sender, reports) = mpsc::unbounded_channel();
        // A loop that has ended makes no more passes.
        let _ = self.send(Command::Record(sender));
        Recording(reports)
    }

    fn settle(&self, patience: Patience) -> Later<'_, Result<(), CommandRefused>> {
        self.ask(move |answer| Command::Settle(patience, answer))
    }

    fn look(&self, key: &str) -> Later<'_, Result<PassAnswer, CommandRefused>> {
        self.ask_about(key, Command::Look)
    }

    fn adopt(&self, key: &str) -> Later<'_, Result<PassAnswer, CommandRefused>> {
        self.ask_about(key, Command::Adopt)
    }

    fn forget(&self, key: &str) -> Later<'_, Result<Result<bool, Arc<Error>>, CommandRefused>> {
        self.ask_about(key, Command::Forget)
    }

    fn restore(
        &self,
        taken: Vec<(String, Snapshot)>,
    ) -> Later<'_, Result<Vec<(String, Restored)>, CommandRefused>> {
        let mut keys = Vec::with_capacity(taken.len());
        for (text, snapshot) in taken {
            let Ok(key) = text.parse() else {
                let refused = Err(CommandRefused::NotAKey(text));
                return Box::pin(std::future::ready(refused));
            };
            keys.push((key, snapshot));
        }
        self.ask(move |answer| Command::Restore(keys, answer))
    }

    fn pause(&self, during: Option<Duration>) -> Result<(), CommandRefused> {
        self.send(Command::Pause(during))
    }

    fn resume(&self) -> Result<(), CommandRefused> {
        self.send(Command::Resume)
    }

    fn stop(&self, policy: OnStop) -> Later<'_, ()> {
        // A loop that has ended is stopped.
        Box::pin(self.ask(move |answer| Command::Stop(policy, answer)).map(drop))
    }

    fn status(&self) -> Status {
        Status { stall: self.watchdog.stalled(), ..self.newest(&self.status.borrow()) }
    }

    fn open_keys(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<OpenEntry>, CommandRefused> {
        let after = after.map(parse::<S>).transpose()?;
        Ok(self.open.page(after.as_ref(), limit))
    }

    fn find(&self, text: &str, limit: usize) -> FoundEntries {
        let latest = Arc::clone(&self.latest.lock().unwrap_or_else(PoisonError::into_inner));
        let desired = &latest.desired;
        let entry = |key: &S::Key| {
            let slot = desired.slot(key, None)?;
            let wanted = desired.shown(&desired.object(slot));
            Some(FoundEntry { key: key.to_string(), wanted, open: self.open.entry(key) })
        };
        // A key is meant before what merely has its text.
        if let Some(entry) = text.parse().ok().and_then(|key| entry(&key)) {
            return FoundEntries { entries: vec![entry], total: 1 };
        }
        let found = desired.find(text, limit);
        FoundEntries { entries: found.keys.iter().filter_map(entry).collect(), total: found.total }
    }

    fn at(&self, time: Time) -> Instant {
        self.watchdog.at(time)
    }

    fn wait_for<'a>(
        &'a self,
        so: Box<dyn FnMut(&Status) -> bool + Send + 'a>,
    ) -> Later<'a, Result<Status, CommandRefused>> {
        Box::pin(Handle::wait_for(self, so))
    }
}

/// How long a running pass may go on after a stop was asked for.
const GRACE: Duration = Duration::from_millis(500);

/// Commands in their order, but a stop comes first.
pub(super) struct Inbox<S: Source> {
    commands: mpsc::UnboundedReceiver<Command<S>>,
    /// Commands that came while a pass ran.
    waiting: VecDeque<Command<S>>,
}

impl<S: Source> Inbox<S> {
    pub(super) fn new(commands: mpsc::UnboundedReceiver<Command<S>>) -> Self {
        Inbox { commands, waiting: VecDeque::new() }
    }

    /// Waits until a command has come. False once the last handle was dropped. Cancel-safe.
    pub(super) async fn wait(&mut self) -> bool {
        if self.waiting.is_empty() {
            self.waiting.extend(self.commands.recv().await);
        }
        !self.waiting.is_empty()
    }

    /// The next command that has come already.
    pub(super) fn ready(&mut self) -> Option<Command<S>> {
        while let Ok(command) = self.commands.try_recv() {
            self.waiting.push_back(command);
        }
        let stop = self.waiting.iter().position(is_stop);
        self.waiting.remove(stop.unwrap_or(0))
    }

    /// Returns [`GRACE`] after a stop was asked for, or after the last handle was dropped. Queues what comes until
    /// then.
    pub(super) async fn stopped(&mut self) {
        let mut is_stopping = self.waiting.iter().any(is_stop);
        while !is_stopping {
            let command = self.commands.recv().await;
            is_stopping = command.as_ref().is_none_or(is_stop);
            self.waiting.extend(command);
        }
        tokio::time::sleep(GRACE).await;
    }
}

fn is_stop<S: Source>(command: &Command<S>) -> bool {
    matches!(command, Command::Stop(..))
}
