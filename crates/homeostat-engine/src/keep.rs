//! The loop: one source in one scope, kept as declared.
//!
//! It only decides *when*; what is done is [`plan()`](crate::plan()) and [`apply`](crate::apply()),
//! which anybody can call without it. Events are hints: a focused pass looks at the keys that they
//! name. The resync is truth: it looks at everything again, whatever the hints said.
//!
//! Nothing is started behind the caller's back: [`Loop::run`] is a future that the caller drives. It
//! ends when it is told to stop, when the last [`Handle`] is dropped, or when it is dropped itself;
//! nothing is written after that.
//!
//! The rules, each shown by a test of its name:
//!
//! 1. The subscription stands before the first look, and a full pass follows every new one. A
//!    subscription that keeps dying is opened anew after growing pauses.
//! 2. Hints before the first full pass are absorbed by it, and the loop is ready only after it. After
//!    a pass that broke, or without a subscription, only a full pass can be next.
//! 3. A key that was written less than the least interval ago waits; others do not, and neither does
//!    one that was only looked at. Commands wait for a running pass only. What comes while one runs
//!    leads to one more.
//! 4. What fails is tried again after growing pauses, when something it depends on changes and at
//!    each resync, or, if it says so, only for a new wish. Work of the target that goes on after its
//!    pass and does not end well is a failure like any other.
//! 5. A key that somebody keeps undoing is healed after growing pauses, never given up, and told with
//!    who did it. What goes with something it rests on, or was not as declared before, is no fight.
//! 6. A write that works and never shows is told, and made again after growing pauses.
//! 7. A pass has a deadline and may panic; reader and writer are opened anew then.
//! 8. While a full pass holds removals back, focused ones make none.
//! 9. Converged is what the last full pass and all focused ones since left so, for the newest wish,
//!    and never while passes fail.
//! 10. A stop waits half a second for a running pass, then lets go of it.
//! 11. A pass waits a second for its lanes. One that takes longer goes on aside, keeps its key, and is
//!     concluded when it has ended.
//!
//! Start at [`Loop::new`].

mod agenda;
pub mod control;
mod deaths;
pub mod event;
pub mod handle;
mod landed;
mod late;
mod listen;
mod losses;
mod made;
mod mail;
mod make;
mod obey;
pub mod pace;
mod pulse;
pub mod status;
mod tell;
mod turn;
pub mod wakeup;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::pacing::{Reasons, Time};
use homeostat_core::{Action, Cause, Desired as _, Failure, Hint, Key, Kind, ScopeLock, Source};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::agenda::Agenda;
use self::event::{Event, Events, PassId, What};
use self::handle::{Command, Handle};
use self::late::Late;
use self::mail::Mail;
use self::make::Open;
use self::pace::Mode;
pub use self::pace::Pace;
use self::pulse::Pulse;
use self::status::Status;
use self::wakeup::Wakeup;
use crate::bound::Bound;
use crate::config::Fence;
use crate::ledger::Ledger;
use crate::operations::Awaits;

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
    keeper: Keeper<S>,
    mail: Mail<S>,
}

/// All of a loop but its ears for commands, so that it can be spoken to while a pass runs.
struct Keeper<S: Source> {
    bound: Bound<S>,
    means: Means,
    pace: Pace,
    agenda: Agenda<S::Key>,
    pulse: Arc<Pulse>,
    /// Reader, writer and ledger; nothing before the first pass and after a pass that broke.
    open: Option<Open<S>>,
    /// Whether the last reader was lost, so that the next one is worth telling.
    has_lost_reader: bool,
    status: watch::Sender<Status>,
    scope: Arc<str>,
    pass: PassId,
    /// Whether a full pass holds removals back, so that focused ones must do so, too.
    holds_removals: bool,
    /// Lanes that no pass waits for.
    late: Late<S>,
    /// What the target has done, and no look has shown yet.
    landed: BTreeMap<S::Key, (Action, Cause)>,
    /// What is not as declared, and why.
    unsettled: BTreeMap<S::Key, Kind>,
}

impl<S: Source> Loop<S> {
    /// A loop that does nothing until it is [run](Self::run).
    #[must_use]
    pub fn new(bound: Bound<S>, means: Means, pace: Pace) -> (Self, Handle<S>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (status, watched) = watch::channel(Status { mode: pace.mode, ..Status::default() });
        let pulse = Arc::new(Pulse::new(&pace, Instant::now()));
        let (pulse_seen, wishes) = (Arc::clone(&pulse), Arc::default());
        let handle = Handle { commands, status: watched, pulse: pulse_seen, wishes };
        let keeper = Keeper {
            agenda: Agenda::new(&pace),
            pulse,
            open: None,
            has_lost_reader: false,
            status,
            scope: bound.place.scope.as_str().into(),
            pass: PassId::default(),
            holds_removals: false,
            late: Late::default(),
            landed: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            bound,
            means,
            pace,
        };
        (Loop { keeper, mail: Mail::new(inbox) }, handle)
    }

    /// Keeps the source as declared until it is told to stop, or until nobody holds a handle.
    pub async fn run(self) {
        let Loop { mut keeper, mut mail } = self;
        keeper.attend();
        keeper.wake(Wakeup::Start);
        loop {
            // Ten wishes that came during a pass are one wakeup, not ten.
            while let Some(command) = mail.ready() {
                if keeper.obey(command, &mut mail).await.is_break() {
                    return;
                }
            }
            keeper.conclude(&mut mail).await;
            keeper.drain();
            keeper.end_pause();
            if let Some(turn) = keeper.agenda.next(keeper.now(), keeper.bound.wish.len()) {
                // The report went out as events, and its sum is in the status.
                let _ = keeper.take(turn, &mut mail).await;
            }
            keeper.refresh();
            match keeper.next(&mut mail).await {
                Next::Due | Next::Met => {}
                Next::Hint(hint) => keeper.heard(hint),
                Next::News(keys) => keeper.hear_news(keys),
                Next::Command(command) => {
                    if keeper.obey(command, &mut mail).await.is_break() {
                        return;
                    }
                }
                Next::Abandoned => return keeper.tell(What::Stopped),
            }
        }
    }
}

impl<S: Source> Drop for Keeper<S> {
    /// Lanes that came free for it are for others.
    fn drop(&mut self) {
        self.set_awaits(Awaits::Nobody);
    }
}

impl<S: Source> Keeper<S> {
    /// Has lanes kept for its passes, unless it makes none that write.
    fn attend(&self) {
        let writes = self.pace.mode == Mode::Heal && !self.agenda.is_paused();
        self.set_awaits(if writes { Awaits::Passes } else { Awaits::Hearer });
    }

    fn set_awaits(&self, awaits: Awaits) {
        if let Fence::Kept(operations) = &self.bound.config.fence {
            operations.set_awaits(awaits);
        }
    }

    /// Whatever happens first.
    async fn next(&mut self, mail: &mut Mail<S>) -> Next<S> {
        if self.may_conclude() {
            return Next::Met;
        }
        let deadline = self.agenda.deadline().map(|time| self.pulse.at(time));
        tokio::select! {
            biased;
            command = mail.next() => command.map_or(Next::Abandoned, Next::Command),
            () = self.late.meet() => Next::Met,
            () = until(deadline) => Next::Due,
            keys = news(&self.bound.config.fence) => Next::News(keys),
            hint = listen::hint(&mut self.open) => Next::Hint(hint),
        }
    }

    /// Takes a wakeup.
    fn wake(&mut self, wakeup: Wakeup<S::Key>) {
        self.wake_by(wakeup, None);
    }

    /// The same, with who gave cause for it.
    fn wake_by(&mut self, wakeup: Wakeup<S::Key>, who: Option<&Arc<str>>) {
        if self.means.events.is_heard() {
            let (reasons, keys) = (Reasons::from(wakeup.reason()), wakeup.keys());
            let keys = keys.iter().map(ToString::to_string).collect();
            self.tell(What::Woken { reasons, keys, by: who.cloned() });
        }
        self.agenda.wake(wakeup, self.now());
    }

    /// A pause that was for some time ends by itself.
    fn end_pause(&mut self) {
        if self.agenda.is_pause_over(self.now()) {
            self.resume();
        }
    }

    /// Brings up to date what time alone changes.
    fn refresh(&mut self) {
        let due = self.agenda.due();
        let is_paused = self.agenda.is_paused();
        self.pulse.ready(due.map(|(time, _)| time));
        self.status.send_if_modified(|status| {
            let next_due = due.map(|(time, _)| time);
            let next_why = due.map_or(Reasons::NONE, |(_, reason)| reason.into());
            let told = (status.next_due, status.next_why, status.is_paused);
            (status.next_due, status.next_why, status.is_paused) = (next_due, next_why, is_paused);
            told != (next_due, next_why, is_paused)
        });
    }

    fn now(&self) -> Time {
        self.pulse.now()
    }

    fn tell(&self, what: What) {
        if self.means.events.is_heard() {
            let (pass, source, scope) = (self.pass, S::NAME, Arc::clone(&self.scope));
            self.means.events.tell(Event { pass, source, scope, what });
        }
    }
}

/// What a loop was woken by.
enum Next<S: Source> {
    /// Something that waited for its moment.
    Due,
    /// A lane that no pass waited for has ended.
    Met,
    Command(Command<S>),
    Hint(Result<Hint<S::Key>, Failure>),
    /// Work of the target ended, or a lane came free.
    News(BTreeSet<S::Key>),
    /// Nobody holds a handle any more.
    Abandoned,
}

/// Without lanes there is no news.
async fn news<K: Key>(fence: &Fence<K>) -> BTreeSet<K> {
    match fence {
        Fence::Kept(operations) => operations.news().await,
        Fence::Absent | Fence::Volatile => std::future::pending().await,
    }
}

/// An idle timer never ends.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
