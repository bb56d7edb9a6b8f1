//! The loop: one source in one scope, kept as declared.
//!
//! It only decides *when*; what is done is [`plan()`](crate::plan()) and [`apply`](crate::apply()),
//! which anybody can call without it. Events are hints: a focused pass looks at the keys that they
//! name. The resync is truth: it looks at everything again, whatever the hints said.
//!
//! Nothing is started behind the caller's back: [`Loop::run`] is a future that the caller drives.
//! Start at [`Loop::new`].

pub mod agenda;
pub mod control;
pub mod event;
pub mod handle;
mod made;
mod obey;
pub mod pace;
pub mod status;
mod tell;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_core::pacing::{Bounds, Health, Time};
use homeostat_core::{Failure, Hint, Kind, ScopeLock, Source};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::agenda::{Agenda, Wakeup};
use self::event::{Event, Events, PassId, What};
use self::handle::{Command, Handle};
pub use self::pace::Pace;
use self::status::Status;
use self::turn::Open;
use crate::bound::Bound;
use crate::ledger::Ledger;

/// What a loop works with.
pub struct Means {
    /// The proof that nobody else writes in the scope.
    pub lock: Arc<ScopeLock>,
    /// Where ownership is remembered.
    pub ledger: Arc<dyn Ledger>,
    /// Where it tells what happens.
    pub events: Events,
}

/// A loop over one source in one scope.
pub struct Loop<S: Source> {
    bound: Bound<S>,
    means: Means,
    pace: Pace,
    agenda: Agenda<S::Key>,
    health: Health,
    /// Reader, writer and ledger; nothing before the first pass and after a pass that broke.
    open: Option<Open<S>>,
    inbox: mpsc::UnboundedReceiver<Command<S>>,
    status: watch::Sender<Status>,
    scope: Arc<str>,
    epoch: Instant,
    pass: PassId,
    /// Whether a full pass holds removals back, so that focused ones must do so, too.
    holds_removals: bool,
    /// What is not as declared, and why.
    unsettled: BTreeMap<S::Key, Kind>,
}

impl<S: Source> Loop<S> {
    /// A loop that does nothing until it is [run](Self::run).
    #[must_use]
    pub fn new(bound: Bound<S>, means: Means, pace: Pace) -> (Self, Handle<S>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (status, watched) = watch::channel(Status { mode: pace.mode, ..Status::default() });
        let bounds = Bounds {
            pass: pace.deadline,
            ready: pace.deadline + pace.deadline / 2,
            resync: pace.resync.period(),
        };
        let looped = Loop {
            agenda: Agenda::new(&pace),
            health: Health::new(bounds, Time::EPOCH),
            open: None,
            inbox,
            status,
            scope: bound.place.scope.as_str().into(),
            epoch: Instant::now(),
            pass: PassId::default(),
            holds_removals: false,
            unsettled: BTreeMap::new(),
            bound,
            means,
            pace,
        };
        (looped, Handle { commands, status: watched })
    }

    /// Keeps the source as declared until it is told to stop.
    pub async fn run(mut self) {
        self.epoch = Instant::now();
        self.agenda.wake(Wakeup::Start, Time::EPOCH);
        loop {
            if let Some(turn) = self.agenda.next(self.now()) {
                // The report went out as events, and its sum is in the status.
                let _ = self.take(turn).await;
            }
            let Some(next) = self.next().await else { continue };
            match next {
                Next::Command(command) => {
                    if self.obey(command).await.is_break() {
                        return;
                    }
                }
                Next::Hint(hint) => self.heard(hint),
                Next::Abandoned => return,
            }
        }
    }

    /// What comes next: something to do at once, or whatever happens first.
    async fn next(&mut self) -> Option<Next<S>> {
        let deadline = self.agenda.deadline().map(|time| self.epoch + time.since_epoch());
        let Loop { inbox, open, .. } = self;
        tokio::select! {
            biased;
            command = inbox.recv() => Some(command.map_or(Next::Abandoned, Next::Command)),
            () = until(deadline) => None,
            hint = hint(open) => Some(Next::Hint(hint)),
        }
    }

    fn heard(&mut self, hint: Result<Hint<S::Key>, Failure>) {
        let now = self.now();
        match hint {
            Ok(Hint::Keys(keys)) => {
                self.open.iter_mut().for_each(|open| open.named.extend(keys.iter().cloned()));
                self.agenda.wake(Wakeup::Hint(keys), now);
            }
            Ok(Hint::Lost) => {
                self.status.send_modify(|status| status.counts.lost += 1);
                self.tell(What::Lost);
                self.agenda.wake(Wakeup::Resync, now);
            }
            // A dead subscription is opened anew, and everything is looked at after it.
            Err(failure) => {
                self.tell(What::Failed { failure });
                self.open = None;
                self.agenda.wake(Wakeup::Retry, now);
            }
        }
    }

    fn now(&self) -> Time {
        Time::from_epoch(self.epoch.elapsed())
    }

    fn tell(&self, what: What) {
        if self.means.events.is_heard() {
            let (pass, source, scope) = (self.pass, S::NAME, Arc::clone(&self.scope));
            self.means.events.tell(Event { pass, source, scope, what });
        }
    }
}

/// What a loop was woken by, beside its own timers.
enum Next<S: Source> {
    Command(Command<S>),
    Hint(Result<Hint<S::Key>, Failure>),
    /// Nobody holds a handle any more.
    Abandoned,
}

async fn hint<S: Source>(open: &mut Option<Open<S>>) -> Result<Hint<S::Key>, Failure> {
    match open {
        Some(open) => open.observer.hint().await,
        None => std::future::pending().await,
    }
}

/// An idle timer never ends.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
