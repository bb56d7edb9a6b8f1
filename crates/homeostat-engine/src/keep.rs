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
//!    each resync, or, if it says so, only for a new desired state. Work of the target that goes on after its
//!    pass and does not end well is a failure like any other. A new desired state begins the pauses anew for the
//!    keys whose declaration changed; the same desired state again changes nothing. However many keys fail, they
//!    are tried in few passes. A failure or conflict is told when it begins or changes and once an hour,
//!    a hundred one by one in a pass and the others as a count.
//! 5. A key that somebody keeps undoing is healed after growing pauses, never given up, and told with
//!    who did it. What goes with something it rests on, or was not as declared before, is no fight.
//! 6. A write that works and never shows is told, and made again after growing pauses.
//! 7. A pass has a deadline and may panic; reader and writer are opened anew then.
//! 8. While a full pass is over its budget of removals, focused ones make none. What a missing section of
//!    the document declared is held in every pass.
//! 9. Converged is what the last full pass and all focused ones since left so, for the newest desired state,
//!    and never while passes fail.
//! 10. A stop waits half a second for a running pass, then lets go of it.
//! 11. A pass waits a second for its lanes. One that takes longer is detached, keeps its key, and is
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
pub mod settle;
pub mod status;
mod task_report;
mod tell;
mod turn;
pub mod wakeup;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use homeostat_core::pacing::{Reasons, Time};
use homeostat_core::{
    Covers, Desired as _, Fails, Failure, Focus, Hint, LaneConsumer, PassReport, ScopeLock,
    SharedReport, Source,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::agenda::Agenda;
use self::event::{Event, EventKind, Events, PassId};
use self::handle::{Command, Forget, Handle};
use self::landed::Landed;
use self::late::Late;
use self::listen::Named;
use self::made::OpenKey;
use self::mail::Mail;
use self::pace::Mode;
pub use self::pace::Pace;
use self::pulse::Pulse;
use self::settle::{Need, Outlook, Settling};
use self::status::Status;
use self::tell::Told;
use self::wakeup::Wakeup;
use crate::bound::Bound;
use crate::config::Config;
use crate::ledger::Ledger;
use crate::session::Session;

/// What a loop works with.
pub struct LoopDeps {
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
    bound: Arc<Bound<S>>,
    /// That of `bound`, or nothing once everything is taken back.
    desired: Arc<S::Desired>,
    /// That of `bound`, but for what holds for one pass only.
    config: Config<S::Key>,
    /// The newest desired state, while it waits for its pass.
    next_bound: Option<NextBound<S>>,
    means: LoopDeps,
    pace: Pace,
    agenda: Agenda<S::Key>,
    pulse: Arc<Pulse>,
    /// Reader, writer and ledger; nothing before the first pass and after a pass that broke.
    open: Option<Session<S>>,
    /// The keys that hints named since the last pass over them.
    named: Named<S::Key>,
    /// Whether the last reader was lost, so that the next one is worth telling.
    has_lost_reader: bool,
    status: watch::Sender<Status>,
    scope: Arc<str>,
    pass: PassId,
    /// Whether the last full pass was over its budget of removals, so that focused ones must make none.
    holds_removals: bool,
    /// Lanes that no pass waits for.
    late: Late<S>,
    /// What the target has done, and no look has shown yet.
    landed: BTreeMap<S::Key, Landed>,
    /// What is not as declared, and why.
    unsettled: BTreeMap<S::Key, OpenKey>,
    last_pass: LastPass,
    /// Callers that wait until nothing is left that time could cure.
    settling: Vec<Settling>,
    /// Failures and conflicts that need not be told again.
    told: Told,
}

/// A desired state that waits for its pass.
struct NextBound<S: Source> {
    bound: Arc<Bound<S>>,
    /// Which one since the start it is.
    nth: u64,
    forget: Forget,
}

/// What the last pass means for callers that wait.
#[derive(Clone, Copy, Default)]
struct LastPass {
    /// It was made, and what it did is recorded.
    is_good: bool,
    /// It wrote something, or the target moved under its plan.
    has_moved: bool,
}

impl<S: Source> Loop<S> {
    /// A loop that does nothing until it is [run](Self::run).
    #[must_use]
    pub fn new(bound: Bound<S>, means: LoopDeps, pace: Pace) -> (Self, Handle<S>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (status, watched) = watch::channel(Status { mode: pace.mode, ..Status::default() });
        let pulse = Arc::new(Pulse::new(&pace, Instant::now()));
        let (pulse_seen, desired_states) = (Arc::clone(&pulse), Arc::default());
        let bound = Arc::new(bound);
        let latest = Arc::new(Mutex::new(Arc::clone(&bound)));
        let handle =
            Handle { commands, status: watched, pulse: pulse_seen, desired_states, latest };
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
            named: Named::new(),
            last_pass: LastPass::default(),
            settling: Vec::new(),
            next_bound: None,
            told: Told::default(),
            desired: Arc::clone(&bound.desired),
            config: bound.config.clone(),
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
            // Ten desired states that came during a pass are one wakeup, not ten.
            while let Some(command) = mail.ready() {
                if keeper.obey(command, &mut mail).await.is_break() {
                    return;
                }
            }
            keeper.conclude(&mut mail).await;
            keeper.drain();
            keeper.end_pause();
            if let Some(turn) = keeper.agenda.next(keeper.now(), keeper.desired.len()) {
                if turn.focus == Focus::All {
                    keeper.take_desired();
                }
                // The report went out as events, and its sum is in the status.
                let _ = keeper.take(turn, &mut mail).await;
            }
            if keeper.settle(&mut mail).await {
                continue;
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
                Next::Abandoned => return keeper.tell(EventKind::Stopped),
            }
        }
    }
}

impl<S: Source> Drop for Keeper<S> {
    /// Releases the lanes that were reserved for this loop.
    fn drop(&mut self) {
        self.config.dispatch.set_consumer(LaneConsumer::None);
    }
}

impl<S: Source> Keeper<S> {
    /// Has lanes kept for its passes, unless it makes none that write.
    fn attend(&self) {
        let writes = self.pace.mode == Mode::Heal && !self.agenda.is_paused();
        let consumer = if writes { LaneConsumer::Active } else { LaneConsumer::Paused };
        self.config.dispatch.set_consumer(consumer);
    }

    /// Whatever happens first.
    async fn next(&mut self, mail: &mut Mail<S>) -> Next<S> {
        if self.may_conclude() {
            return Next::Met;
        }
        let deadlines = [self.agenda.deadline(), self.patience_ends()];
        let deadline = deadlines.into_iter().flatten().min().map(|time| self.pulse.at(time));
        tokio::select! {
            biased;
            command = mail.next() => command.map_or(Next::Abandoned, Next::Command),
            () = self.late.meet() => Next::Met,
            () = until(deadline) => Next::Due,
            keys = self.config.dispatch.dirty_keys() => Next::News(keys),
            hint = listen::hint(&mut self.open, self.pace.hints) => Next::Hint(hint),
        }
    }

    /// Answers callers for whom nothing is left to wait for, and runs the full pass that others need.
    /// Tells whether there was one.
    async fn settle(&mut self, mail: &mut Mail<S>) -> bool {
        if self.settling.is_empty() {
            return false;
        }
        let (outlook, now) = (self.outlook(), self.now());
        let mut needs_pass = false;
        for caller in std::mem::take(&mut self.settling) {
            match caller.need(outlook, now) {
                Need::Nothing => {
                    caller.finish();
                    continue;
                }
                Need::Pass => needs_pass = true,
                Need::Wait(_) => {}
            }
            self.settling.push(caller);
        }
        if needs_pass {
            // The report is recorded for whom it concerns.
            let _ = self.pass_now(mail).await;
        }
        needs_pass
    }

    fn outlook(&self) -> Outlook {
        let has_lanes = S::FAILS == Fails::Lanes;
        let is_converged = self.unsettled.is_empty() && self.last_pass.is_good;
        let is_broken = !self.last_pass.is_good && !self.last_pass.has_moved;
        Outlook {
            is_final: self.agenda.is_paused()
                || is_converged && !self.has_unreported_tasks()
                || is_broken,
            has_moved: self.last_pass.has_moved,
            has_tasks: self.unsettled.values().any(|open| open.ends_by_itself)
                || self.has_unreported_tasks(),
            next_retry: self.agenda.next_retry(),
            has_failed_tasks: has_lanes && self.agenda.has_tries_left(settle::TRIES),
        }
    }

    /// Whether a task has not ended, or no pass has seen its effect yet.
    fn has_unreported_tasks(&self) -> bool {
        self.config.dispatch.has_tasks() || !self.landed.is_empty()
    }

    /// When a caller that waits loses its patience.
    fn patience_ends(&self) -> Option<Time> {
        if self.settling.is_empty() {
            return None;
        }
        let (outlook, now) = (self.outlook(), self.now());
        let needs = self.settling.iter().map(|caller| caller.need(outlook, now));
        needs.filter_map(|need| if let Need::Wait(until) = need { Some(until) } else { None }).min()
    }

    /// Tells callers that wait what a pass, or a task that ended, has brought.
    fn record(&mut self, covers: &Covers, report: &SharedReport) {
        for caller in &mut self.settling {
            caller.record(PassReport { covers: covers.clone(), report: Arc::clone(report) });
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
            self.tell(EventKind::Woken { reasons, keys, by: who.cloned() });
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

    fn tell(&self, kind: EventKind) {
        if self.means.events.is_heard() {
            let (pass, source, scope) = (self.pass, S::NAME, Arc::clone(&self.scope));
            self.means.events.tell(Event { pass, source, scope, kind });
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

/// An idle timer never ends.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
