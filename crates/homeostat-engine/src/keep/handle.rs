//! How others speak with a running loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homeostat_core::{PassReport, SharedReport, Source};
use tokio::sync::{mpsc, oneshot, watch};

use super::pulse::Pulse;
use super::settle::Patience;
use super::status::Status;
use crate::bound::Bound;
use crate::error::Error;

/// What a pass has to tell, or why there is nothing.
pub type Told = Result<SharedReport, Arc<Error>>;

/// What becomes of what we own when a loop stops.
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

pub(crate) enum Command<S: Source> {
    Put(Arc<Bound<S>>, Forget),
    Pass(oneshot::Sender<Told>),
    Settle(Patience, oneshot::Sender<Vec<PassReport>>),
    Look(S::Key, oneshot::Sender<Told>),
    Adopt(S::Key, oneshot::Sender<Told>),
    Forget(S::Key, oneshot::Sender<Result<bool, Arc<Error>>>),
    Pause(Option<Duration>),
    Resume,
    Stop(OnStop, oneshot::Sender<()>),
}

/// Which failures another desired state makes a loop forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forget {
    /// Those of keys whose declaration changed.
    Changed,
    All,
}

/// A running loop, seen from outside. When the last handle is dropped, the loop ends as
/// with [`OnStop::Leave`].
pub struct Handle<S: Source> {
    pub(crate) commands: mpsc::UnboundedSender<Command<S>>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) pulse: Arc<Pulse>,
    /// How many desired states were put.
    pub(crate) desired_states: Arc<AtomicU64>,
    /// What was put last.
    pub(crate) latest: Arc<Mutex<Arc<Bound<S>>>>,
}

impl<S: Source> Clone for Handle<S> {
    fn clone(&self) -> Self {
        let (commands, status) = (self.commands.clone(), self.status.clone());
        let (desired_states, latest) = (Arc::clone(&self.desired_states), Arc::clone(&self.latest));
        Handle { commands, status, pulse: Arc::clone(&self.pulse), desired_states, latest }
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
        self.desired_states.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Put(bound, forget))
    }

    /// Runs a full pass now, and waits for its report.
    pub async fn pass(&self) -> Result<Told, Ended> {
        self.ask(Command::Pass).await
    }

    /// Waits until the loop is converged, or until only findings remain that time cannot cure. Hands out
    /// the reports of the passes made meanwhile, in order.
    pub async fn settle(&self, patience: Patience) -> Result<Vec<PassReport>, Ended> {
        self.ask(|answer| Command::Settle(patience, answer)).await
    }

    /// Looks at one key, and tells how it stands. Writes nothing.
    pub async fn look(&self, key: S::Key) -> Result<Told, Ended> {
        self.ask(|answer| Command::Look(key, answer)).await
    }

    /// Takes once what is on a declared key now, from whoever has it.
    pub async fn adopt(&self, key: S::Key) -> Result<Told, Ended> {
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

    /// How the loop stands; whether it is stuck is found out now.
    #[must_use]
    pub fn status(&self) -> Status {
        Status { stall: self.pulse.stalled(), ..self.newest(&self.status.borrow()) }
    }

    /// Waits until the loop stands another way than now.
    pub async fn changed(&self) -> Result<(), Ended> {
        let mut status = self.status.clone();
        status.borrow_and_update();
        status.changed().await.map_err(|_| Ended)
    }

    /// Waits until the loop stands as asked for.
    pub async fn wait_for(&self, mut so: impl FnMut(&Status) -> bool) -> Result<Status, Ended> {
        let mut status = self.status.clone();
        let found = status.wait_for(|status| so(&self.newest(status))).await;
        found.map(|status| self.newest(&status)).map_err(|_| Ended)
    }

    /// What a status says of the newest desired state: it may have been made for an older one.
    fn newest(&self, status: &Status) -> Status {
        let is_newest = status.desired_states == self.desired_states.load(Ordering::Relaxed);
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
