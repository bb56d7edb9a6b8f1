//! How others use a running loop: [`Handle`] where the source is known, [`Control`] where it is erased so that one
//! program can hold many kinds.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_core::pacing::Time;
use homeostat_core::{PassReport, SharedReport, Source};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::open::{OpenEntry, OpenKeys};
use super::settle::Patience;
use super::status::{Status, Watchdog};
use super::{Loop, LoopDeps, Pace};
use crate::bound::{Bound, Planner};
use crate::error::Error;
use crate::ledger::LedgerKey;

/// The report of a pass, or why there is none.
pub type PassAnswer = Result<SharedReport, Arc<Error>>;

/// What becomes of the objects that we own when a loop stops.
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
    Pass(oneshot::Sender<PassAnswer>),
    Settle(Patience, oneshot::Sender<Vec<PassReport>>),
    Look(S::Key, oneshot::Sender<PassAnswer>),
    Adopt(S::Key, oneshot::Sender<PassAnswer>),
    Forget(S::Key, oneshot::Sender<Result<bool, Arc<Error>>>),
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
pub struct Handle<S: Source> {
    pub(super) commands: mpsc::UnboundedSender<Command<S>>,
    pub(super) status: watch::Receiver<Status>,
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) open: Arc<OpenKeys<S::Key>>,
    /// The number of the desired state that was put last.
    pub(super) generation: Arc<AtomicU64>,
    pub(super) latest: Arc<Mutex<Arc<Bound<S>>>>,
}

impl<S: Source> Clone for Handle<S> {
    fn clone(&self) -> Self {
        let (commands, status) = (self.commands.clone(), self.status.clone());
        let (watchdog, open) = (Arc::clone(&self.watchdog), Arc::clone(&self.open));
        let (generation, latest) = (Arc::clone(&self.generation), Arc::clone(&self.latest));
        Handle { commands, status, watchdog, open, generation, latest }
    }
}

/// The loop has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loop has ended")]
pub struct Ended;

impl<S: Source> Handle<S> {
    /// Gives the loop another desired state, with the way in which passes behave under it, and tells whether
    /// anything changed. From here on the status is converged only if it is so for this desired state, or for one
    /// that was put later.
    ///
    /// The same again neither wakes the loop nor ends a backoff. A changed desired state begins the backoff of the
    /// keys anew whose declaration changed; the others that fail are tried once, and keep their count.
    pub fn put(&self, bound: Bound<S>) -> Result<bool, Ended> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.is_same(&bound) {
            return if self.commands.is_closed() { Err(Ended) } else { Ok(false) };
        }
        self.take(&mut latest, bound, Forget::Changed).map(|()| true)
    }

    /// The same for somebody who asks for it, and may have mended the cause of a failure: everything is
    /// opened again and tried again, also if nothing changed, and does not wait for the pace of new desired states.
    pub fn replace(&self, bound: Bound<S>) -> Result<(), Ended> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        self.take(&mut latest, bound, Forget::All)
    }

    /// Sent under the lock, so that the loop gets what is latest last.
    fn take(
        &self,
        latest: &mut Arc<Bound<S>>,
        bound: Bound<S>,
        forget: Forget,
    ) -> Result<(), Ended> {
        let bound = Arc::new(bound);
        *latest = Arc::clone(&bound);
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Put(bound, forget))
    }

    /// Runs a full pass now, and waits for its report.
    pub async fn pass(&self) -> Result<PassAnswer, Ended> {
        self.ask(Command::Pass).await
    }

    /// Waits until the loop is converged, or until only findings remain that time cannot cure. Hands out
    /// the reports of the passes made meanwhile, in order.
    pub async fn settle(&self, patience: Patience) -> Result<Vec<PassReport>, Ended> {
        self.ask(|answer| Command::Settle(patience, answer)).await
    }

    /// Looks at one key, and tells how it stands. Writes nothing.
    pub async fn look(&self, key: S::Key) -> Result<PassAnswer, Ended> {
        self.ask(|answer| Command::Look(key, answer)).await
    }

    /// Takes once what is on a declared key now, from whoever has it.
    pub async fn adopt(&self, key: S::Key) -> Result<PassAnswer, Ended> {
        self.ask(|answer| Command::Adopt(key, answer)).await
    }

    /// Drops what the ledger knows of a key, and tells whether it knew anything. The target is not
    /// touched.
    pub async fn forget(&self, key: S::Key) -> Result<Result<bool, Arc<Error>>, Ended> {
        self.ask(|answer| Command::Forget(key, answer)).await
    }

    /// Holds passes off, for some time or until [`resume`](Self::resume).
    pub fn pause(&self, during: Option<Duration>) -> Result<(), Ended> {
        self.send(Command::Pause(during))
    }

    /// Lets passes go on, beginning with a full one.
    pub fn resume(&self) -> Result<(), Ended> {
        self.send(Command::Resume)
    }

    /// Ends the loop, and waits until it has ended.
    pub async fn stop(&self, policy: OnStop) {
        // A loop that has ended is stopped.
        let _ = self.ask(|answer| Command::Stop(policy, answer)).await;
    }

    /// The status of this moment; whether the loop is stuck is computed now.
    #[must_use]
    pub fn status(&self) -> Status {
        Status { stall: self.watchdog.stalled(), ..self.newest(&self.status.borrow()) }
    }

    /// The first keys after `after` that are not as declared, at most `limit`, in the order of keys. It does not wait
    /// for a running pass.
    #[must_use]
    pub fn open_keys(&self, after: Option<&S::Key>, limit: usize) -> Vec<OpenEntry> {
        self.open.page(after, limit)
    }

    /// Waits until the status changes.
    pub async fn changed(&self) -> Result<(), Ended> {
        let mut status = self.status.clone();
        status.borrow_and_update();
        status.changed().await.map_err(|_| Ended)
    }

    /// Waits for a status.
    pub async fn wait_for(&self, mut so: impl FnMut(&Status) -> bool) -> Result<Status, Ended> {
        let mut status = self.status.clone();
        let found = status.wait_for(|status| so(&self.newest(status))).await;
        found.map(|status| self.newest(&status)).map_err(|_| Ended)
    }

    /// A status of an older desired state says nothing about whether the newest one is converged.
    fn newest(&self, status: &Status) -> Status {
        let is_newest = status.generation == self.generation.load(Ordering::Relaxed);
        Status { is_converged: status.is_converged && is_newest, ..status.clone() }
    }

    fn send(&self, command: Command<S>) -> Result<(), Ended> {
        self.commands.send(command).map_err(|_| Ended)
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command<S>,
    ) -> Result<T, Ended> {
        let (answer, answered) = oneshot::channel();
        self.send(command(answer))?;
        answered.await.map_err(|_| Ended)
    }
}

/// Why a command about a key came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The loop has ended.
    #[error(transparent)]
    Ended(#[from] Ended),
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
    fn place(&self) -> &LedgerKey;
    /// Gives the loop another desired state, as in [`Handle::put`]. It must be bound to the same source.
    fn put(&self, planner: Box<dyn Planner>) -> Result<bool, Refused>;
    /// Gives the loop a desired state for somebody who asks for it, as in [`Handle::replace`].
    fn replace(&self, planner: Box<dyn Planner>) -> Result<(), Refused>;
    /// Runs a full pass now, and waits for its report.
    fn pass(&self) -> Later<'_, Result<PassAnswer, Refused>>;
    /// Waits until the loop is converged, or until only findings remain that time cannot cure. Hands out
    /// the reports of the passes made meanwhile, in order.
    fn settle(&self, patience: Patience) -> Later<'_, Result<Vec<PassReport>, Refused>>;
    /// Looks at one key, and tells how it stands. Writes nothing.
    fn look<'a>(&'a self, key: &'a str) -> Later<'a, Result<PassAnswer, Refused>>;
    /// Takes once what is on a declared key now, from whoever has it.
    fn adopt<'a>(&'a self, key: &'a str) -> Later<'a, Result<PassAnswer, Refused>>;
    /// Drops what the ledger knows of a key, and tells whether it knew anything.
    fn forget<'a>(&'a self, key: &'a str) -> Later<'a, Result<Result<bool, Arc<Error>>, Refused>>;
    /// Holds passes off, for some time or until resumed.
    fn pause(&self, during: Option<Duration>) -> Result<(), Refused>;
    /// Lets passes go on, beginning with a full one.
    fn resume(&self) -> Result<(), Refused>;
    /// Ends the loop, and waits until it has ended.
    fn stop(&self, policy: OnStop) -> Later<'_, ()>;
    /// The status of this moment.
    fn status(&self) -> Status;
    /// The first keys after `after` that are not as declared, as in [`Handle::open_keys`].
    fn open_keys(&self, after: Option<&str>, limit: usize) -> Result<Vec<OpenEntry>, Refused>;
    /// When a moment of the status is, or was.
    fn at(&self, time: Time) -> Instant;
    /// Waits until the status changes.
    fn changed(&self) -> Later<'_, Result<(), Refused>>;
}

/// An erased loop, and the handle to it.
pub struct LoopTask {
    /// The handle.
    pub control: Arc<dyn Control>,
    /// The loop; nothing happens until somebody polls it.
    pub run: Later<'static, ()>,
}

struct Controlled<S: Source> {
    place: LedgerKey,
    handle: Handle<S>,
}

impl<S: Source> Bound<S> {
    /// Becomes a loop.
    #[must_use]
    pub fn into_loop(self, deps: LoopDeps, pace: Pace) -> LoopTask {
        let ledger_key = self.place.clone();
        let (looped, handle) = Loop::new(self, deps, pace);
        let control: Arc<dyn Control> = Arc::new(Controlled { place: ledger_key, handle });
        LoopTask { control, run: Box::pin(looped.run()) }
    }
}

fn bound<S: Source>(planner: Box<dyn Planner>) -> Result<Bound<S>, Refused> {
    let any: Box<dyn Any> = planner.into_any();
    any.downcast::<Bound<S>>().map(|bound| *bound).map_err(|_| Refused::AnotherSource)
}

fn key<S: Source>(text: &str) -> Result<S::Key, Refused> {
    text.parse().map_err(|_| Refused::NotAKey(text.to_owned()))
}

impl<S: Source> Control for Controlled<S> {
    fn place(&self) -> &LedgerKey {
        &self.place
    }

    fn put(&self, planner: Box<dyn Planner>) -> Result<bool, Refused> {
        Ok(self.handle.put(bound(planner)?)?)
    }

    fn replace(&self, planner: Box<dyn Planner>) -> Result<(), Refused> {
        Ok(self.handle.replace(bound(planner)?)?)
    }

    fn pass(&self) -> Later<'_, Result<PassAnswer, Refused>> {
        Box::pin(async { Ok(self.handle.pass().await?) })
    }

    fn settle(&self, patience: Patience) -> Later<'_, Result<Vec<PassReport>, Refused>> {
        Box::pin(async move { Ok(self.handle.settle(patience).await?) })
    }

    fn look<'a>(&'a self, text: &'a str) -> Later<'a, Result<PassAnswer, Refused>> {
        Box::pin(async move { Ok(self.handle.look(key::<S>(text)?).await?) })
    }

    fn adopt<'a>(&'a self, text: &'a str) -> Later<'a, Result<PassAnswer, Refused>> {
        Box::pin(async move { Ok(self.handle.adopt(key::<S>(text)?).await?) })
    }

    fn forget<'a>(&'a self, text: &'a str) -> Later<'a, Result<Result<bool, Arc<Error>>, Refused>> {
        Box::pin(async move { Ok(self.handle.forget(key::<S>(text)?).await?) })
    }

    fn pause(&self, during: Option<Duration>) -> Result<(), Refused> {
        Ok(self.handle.pause(during)?)
    }

    fn resume(&self) -> Result<(), Refused> {
        Ok(self.handle.resume()?)
    }

    fn stop(&self, policy: OnStop) -> Later<'_, ()> {
        Box::pin(self.handle.stop(policy))
    }

    fn status(&self) -> Status {
        self.handle.status()
    }

    fn open_keys(&self, after: Option<&str>, limit: usize) -> Result<Vec<OpenEntry>, Refused> {
        let after = after.map(key::<S>).transpose()?;
        Ok(self.handle.open_keys(after.as_ref(), limit))
    }

    fn at(&self, time: Time) -> Instant {
        self.handle.watchdog.at(time)
    }

    fn changed(&self) -> Later<'_, Result<(), Refused>> {
        Box::pin(async { Ok(self.handle.changed().await?) })
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

    /// The next command; nothing once the last handle was dropped. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Command<S>> {
        match self.ready() {
            Some(command) => Some(command),
            None => self.commands.recv().await,
        }
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
