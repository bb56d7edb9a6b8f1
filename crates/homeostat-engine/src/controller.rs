//! The loop: keeps one source in one scope as declared.
//!
//! It decides only *when* a pass runs; what a pass does is [`plan()`](crate::plan()) and
//! [`apply`](crate::apply()), which can be called without it. Hints are lossy: a focused pass looks at the keys
//! that they name. The resync is the truth: it looks at everything again, whatever the hints said.
//!
//! Nothing is started behind the caller's back: [`Loop::run`] is a future that the caller drives. It ends when a stop
//! is asked for, when the last [`Handle`] is dropped, or when it is dropped itself; nothing is written after that.
//!
//! The rules, each shown by a test of its name:
//!
//! 1. The subscription is open before the first look, and a full pass follows every new one. A subscription that keeps
//!    dying is opened again after growing pauses.
//! 2. Hints before the first full pass are absorbed by it, and the loop is ready only after it. After a pass that
//!    broke, or without a subscription, only a full pass can be next.
//! 3. A key that was written less than the least interval ago waits. Other keys do not wait, and neither does a key
//!    that was only looked at. Commands wait for a running pass only. Wakeups during a pass lead to one more pass.
//! 4. A failed key is tried again after growing pauses, when something that it depends on changes, and at each resync;
//!    or, if its failure says so, only for a new desired state. A task that fails after its pass is a failure like any
//!    other. A new desired state restarts the pauses of the keys whose declaration changed; the same desired state
//!    again changes nothing. However many keys fail, they are tried in few passes. A failure, conflict or wait
//!    becomes an event when it begins or changes, and once an hour; a hundred in a pass one by one, the others as a
//!    count.
//! 5. A key that another program keeps undoing is healed after growing pauses, never given up, and published with who did it.
//!    A key that went along with another one, or was not as declared before, is no contention.
//! 6. A write that is accepted and never shows is published, and repeated after growing pauses.
//! 7. A pass has a deadline and may panic; reader and writer are opened again then.
//! 8. While a full pass is over its budget of removals, focused passes remove nothing. What a missing section of the
//!    document declared is held in every pass.
//! 9. A loop is converged if the last full pass and all focused ones since left it so, for the newest desired state,
//!    and never while passes fail.
//! 10. A stop waits half a second for a running pass, then drops it.
//! 11. A pass of a source with operations waits a second for its lanes. A lane that takes longer is detached, keeps its
//!     key, and is concluded when it has ended. Without operations nothing else would keep a second write from the key,
//!     so a pass waits for all of its lanes, until its deadline.
//!
//! Start at [`Loop::run`]. `scheduler.rs` answers "when may a pass start?", `Controller::finish_pass` says what
//! happens after it.

mod detached;
mod drift;
pub mod event;
pub mod handle;
pub mod open;
pub mod pace;
mod pass_result;
mod publisher;
mod scheduler;
pub mod settle;
pub mod status;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use homeostat_core::pacing::{Heal, Reason, Reasons, Time};
use homeostat_core::{
    Cause, Covers, Desired, Entry, Explain as _, Fails, Failure, Finding, Focus, HeldBy, Hint,
    HintedKeys, Key, Kind, LaneConsumer, Line, OnRelease, PassReport, Plan, Retry, ScopeLock,
    SharedReport, Snapshot, Source, Step as _, TaskEnd, TaskResult, WaitsOn, Writer as _,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::detached::{DetachedLanes, FinishedLane, FinishedTask};
use self::event::{EventKind, Events};
use self::handle::{Command, Forget, Handle, Inbox, OnStop, PassAnswer};
use self::open::{OpenKeys, OpenReasons};
use self::pace::Mode;
pub use self::pace::Pace;
use self::pass_result::PassResult;
use self::publisher::Publisher;
use self::scheduler::{PassFeedback, PassRequest, Scheduler, UNNAMED, Wakeup};
use self::settle::{Need, Outlook, Settling};
use self::status::{ContendedKey, OpenCounts, Status, Watchdog};
use crate::bound::Bound;
use crate::config::Config;
use crate::entries::Entries;
use crate::error::Error;
use crate::guard::{self, Guards, MassDelete};
use crate::health_board::HealthWatch;
use crate::ledger::{self, Ledger};
use crate::ledger_page::{LedgerPage, PriorRecords};
use crate::pass::{PassRun, plan_focus};
use crate::run::{LaneWait, join};
use crate::session::{Hints, Session};
use crate::undo::Restored;

/// How many hints are read before a pass is considered.
const MOST_HINTS: usize = 1000;

/// What a loop works with.
#[non_exhaustive]
pub struct LoopDeps {
    /// The proof that no other process writes in the scope.
    pub lock: Arc<ScopeLock>,
    /// Where ownership is remembered.
    pub ledger: Arc<dyn Ledger>,
    /// Where it publishes what happens.
    pub events: Events,
}

impl LoopDeps {
    /// Publishes on a channel of its own.
    pub fn new(lock: impl Into<Arc<ScopeLock>>, ledger: Arc<dyn Ledger>) -> Self {
        LoopDeps { lock: lock.into(), ledger, events: Events::default() }
    }

    /// The same, which publishes there.
    #[must_use]
    pub fn with_events(self, events: Events) -> Self {
        LoopDeps { events, ..self }
    }
}

/// A loop over one source in one scope.
pub struct Loop<S: Source> {
    controller: Controller<S>,
    inbox: Inbox<S>,
}

/// All of a loop but its commands, which are read while a pass borrows the rest.
struct Controller<S: Source> {
    bound: Arc<Bound<S>>,
    /// The desired state of `bound`, or an empty one while everything is reverted.
    desired: Arc<S::Desired>,
    /// The configuration of `bound`, except for what holds for one pass only.
    config: Config<S::Key>,
    /// The newest desired state, while it waits for its pass.
    next_bound: Option<NextBound<S>>,
    lock: Arc<ScopeLock>,
    ledger: Arc<dyn Ledger>,
    pace: Pace,
    scheduler: Scheduler<S::Key>,
    watchdog: Arc<Watchdog>,
    /// None before the first pass and after a pass that broke.
    session: Option<Session<S>>,
    hinted: HintedKeys<S::Key>,
    health: HealthWatch<S::Key>,
    /// Whether the last reader was lost, so that the next one is published.
    has_lost_reader: bool,
    publisher: Publisher,
    /// Whether the last full pass was over its budget of removals, so that focused ones must remove nothing.
    holds_removals: bool,
    detached: DetachedLanes<S>,
    finished_tasks: BTreeMap<S::Key, FinishedTask>,
    /// The keys that are not as declared.
    open: Arc<OpenKeys<S::Key>>,
    open_reasons: OpenReasons,
    last_pass: LastPass,
    /// Callers that record the reports of all passes.
    recorders: Vec<mpsc::UnboundedSender<PassReport>>,
    /// Callers that wait until nothing is left that time could cure.
    settling: Vec<Settling>,
}

/// A desired state that waits for its pass.
struct NextBound<S: Source> {
    bound: Arc<Bound<S>>,
    generation: u64,
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
    pub fn new(bound: Bound<S>, deps: LoopDeps, pace: Pace) -> (Self, Handle<S>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        let (status, status_reader) =
            watch::channel(Status { mode: pace.mode, ..Status::default() });
        let watchdog = Arc::new(Watchdog::new(&pace, Instant::now()));
        let (bound, open) = (Arc::new(bound), Arc::new(OpenKeys::default()));
        let LoopDeps { lock, ledger, events } = deps;
        let handle = Handle {
            commands,
            status: status_reader,
            watchdog: Arc::clone(&watchdog),
            open: Arc::clone(&open),
            generation: Arc::default(),
            latest: Arc::new(Mutex::new(Arc::clone(&bound))),
            ledger_key: Arc::new(bound.ledger_key.clone()),
        };
        let scope = bound.ledger_key.scope.as_str().into();
        let controller = Controller {
            scheduler: Scheduler::new(&pace),
            watchdog,
            session: None,
            hinted: HintedKeys::default(),
            health: HealthWatch::new(bound.config.conditions.clone()),
            has_lost_reader: false,
            publisher: Publisher::new(S::NAME, scope, events, status),
            holds_removals: false,
            detached: DetachedLanes::default(),
            finished_tasks: BTreeMap::new(),
            open,
            open_reasons: OpenReasons::new(bound.config.ways_out),
            last_pass: LastPass::default(),
            recorders: Vec::new(),
            settling: Vec::new(),
            next_bound: None,
            desired: Arc::clone(&bound.desired),
            config: bound.config.clone(),
            bound,
            lock,
            ledger,
            pace,
        };
        (Loop { controller, inbox: Inbox::new(inbox) }, handle)
    }

    /// Keeps the source as declared until a stop is asked for, or until the last handle is dropped.
    pub async fn run(self) {
        let Loop { mut controller, mut inbox } = self;
        controller.reserve_lanes();
        controller.wake(Wakeup::Command(Reason::Start));
        loop {
            // Ten desired states that came during a pass are one wakeup, not ten.
            while let Some(command) = inbox.ready() {
                if controller.handle_command(command, &mut inbox).await.is_break() {
                    return;
                }
            }
            controller.conclude_detached(Some(&mut inbox)).await;
            controller.drain_hints();
            if let Some(request) = controller.next_request() {
                // The report went out as events, and its sum is in the status.
                let _ = controller.pass(request, Some(&mut inbox)).await;
            }
            if controller.answer_settled(&mut inbox).await || controller.may_conclude() {
                continue;
            }
            controller.publish_due();
            let deadline = controller.deadline();
            tokio::select! {
                biased;
                has_handles = inbox.wait() => {
                    if !has_handles {
                        return controller.publisher.emit(EventKind::Stopped);
                    }
                }
                () = controller.detached.next() => {}
                () = until(deadline) => {}
                keys = controller.health.changed() => {
                    controller.wake(Wakeup::Hint(keys.into_iter().collect()));
                }
                keys = controller.config.dispatch.dirty_keys() => controller.on_dirty_keys(keys),
                hint = next_hint(&mut controller.session, controller.pace.hints) => {
                    controller.on_hint(hint);
                }
            }
        }
    }
}

impl<S: Source> Drop for Controller<S> {
    /// Releases the lanes that were reserved for this loop.
    fn drop(&mut self) {
        self.config.dispatch.set_consumer(LaneConsumer::None);
    }
}

/// When a pass starts.
impl<S: Source> Controller<S> {
    /// The pass that starts now, if one is due. A full one takes over the newest desired state.
    fn next_request(&mut self) -> Option<PassRequest<S::Key>> {
        if self.scheduler.is_pause_over(self.now()) {
            self.resume();
        }
        let request = self.scheduler.next(self.now(), self.desired.len())?;
        if request.focus == Focus::All {
            self.take_desired();
        }
        Some(request)
    }

    /// When the scheduler, or the patience of a caller, needs another turn of the loop.
    fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.scheduler.due().map(|(time, _)| time), self.patience_ends()];
        deadlines.into_iter().flatten().min().map(|time| self.watchdog.at(time))
    }

    fn wake(&mut self, wakeup: Wakeup<S::Key>) {
        self.publisher.woken(wakeup.reason(), wakeup.keys(), None);
        self.scheduler.wake(wakeup, self.now());
    }

    /// Reads the hints that have come already: what follows from one loss is handled in one pass, and a full pass
    /// absorbs what came before it.
    fn drain_hints(&mut self) {
        for _ in 0..MOST_HINTS {
            let hint = next_hint(&mut self.session, self.pace.hints).now_or_never();
            let Some(hint) = hint else {
                if let Some(session) = &mut self.session {
                    session.observer.has_caught_up();
                }
                return;
            };
            self.on_hint(hint);
        }
    }

    fn on_hint(&mut self, hint: Result<Hint<S::Key>, Failure>) {
        match hint {
            Ok(Hint::Keys(keys)) => self.on_hinted_keys(keys),
            Ok(Hint::Lost) => {
                self.publisher.status.send_modify(|status| status.counts.lost += 1);
                self.publisher.emit(EventKind::Lost);
                self.wake(Wakeup::Paced(Reason::Resync));
            }
            Err(failure) => {
                self.publisher.emit(EventKind::Failed { failure });
                self.lose_reader();
            }
        }
    }

    fn on_hinted_keys(&mut self, keys: HintedKeys<S::Key>) {
        self.scheduler.wake(Wakeup::Hint(keys.keys().cloned().collect()), self.now());
        if self.publisher.has_listeners() {
            let mut by_name = BTreeMap::<_, Vec<&S::Key>>::new();
            for (key, by) in keys.iter() {
                by_name.entry(by.as_ref()).or_default().push(key);
            }
            for (by, keys) in by_name {
                self.publisher.woken(Reason::Hint, keys, by.cloned());
            }
        }
        for (key, by) in keys {
            self.hinted.add(key, by);
        }
    }

    /// The subscription is opened again, and a full pass follows.
    fn lose_reader(&mut self) {
        (self.session, self.has_lost_reader) = (None, true);
        self.hinted.clear();
        self.scheduler.subscription_lost(self.now());
    }

    /// Has lanes reserved for this loop's passes, unless its passes do not write.
    fn reserve_lanes(&self) {
        let writes = self.pace.mode == Mode::Heal && !self.scheduler.is_paused();
        let consumer = if writes { LaneConsumer::Active } else { LaneConsumer::Paused };
        self.config.dispatch.set_consumer(consumer);
    }

    fn now(&self) -> Time {
        self.watchdog.now()
    }
}

/// One pass: bounded in time, and caught if it panics.
impl<S: Source> Controller<S> {
    /// Runs one pass, whatever becomes of it. Once a stop is asked for, it has [`handle::GRACE`] to end.
    async fn pass(
        &mut self,
        mut request: PassRequest<S::Key>,
        inbox: Option<&mut Inbox<S>>,
    ) -> PassAnswer {
        self.start_pass(&request);
        let result =
            self.guarded(inbox, async |controller| controller.run_pass(&mut request).await).await;
        self.finish_pass(&request, result)
    }

    fn start_pass(&mut self, request: &PassRequest<S::Key>) {
        let now = self.now();
        match request.focus {
            Focus::All => self.watchdog.health().started_full(now),
            Focus::Keys(_) => self.watchdog.health().started(now),
        }
        // Ready work is being taken.
        self.watchdog.health().ready(None);
        self.publisher.pass_started(request, now);
    }

    /// Does something that may hang or panic, until its deadline or, with an inbox, until a stop. Detached lanes go on
    /// meanwhile.
    async fn guarded<T>(
        &mut self,
        inbox: Option<&mut Inbox<S>>,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut detached = std::mem::take(&mut self.detached);
        let deadline = self.pace.deadline;
        let stopped = async {
            match inbox {
                Some(inbox) => inbox.stopped().await,
                None => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            biased;
            done = bounded(deadline, work(self)) => done,
            () = stopped => Err(Error::Stopped),
            never = detached.drive() => match never {},
        };
        self.detached.extend(detached);
        done
    }

    /// Observes, plans, applies and verifies, over the requested keys and what depends on them.
    async fn run_pass(
        &mut self,
        request: &mut PassRequest<S::Key>,
    ) -> Result<PassResult<S>, Error> {
        let mut session = self.open_session().await?;
        let (bound, mut config) = (Arc::clone(&self.bound), self.config.clone());
        config.conditions = self.health.of_pass();
        let focus = std::mem::replace(&mut request.focus, Focus::All);
        let input = bound.pass_input(Arc::clone(&self.desired), &config, focus).widened();
        request.focus.clone_from(&input.focus);
        if let Focus::Keys(keys) = &input.focus {
            // A failed key that depends on one in focus is tried again with it.
            let now = self.now();
            for key in keys {
                self.scheduler.backoff.take(key, now);
            }
        }
        self.take_task_results();
        // Tasks that ended before the look are seen by it; the steps do not know of those that end later.
        config.dispatch.look(&input.focus);
        let Session { observer, writer, ledger_page } = &mut session;
        if input.focus == Focus::All {
            ledger_page.reread_broken().await;
        }
        let mut plan = plan_focus(&input, observer, ledger_page.holdings()).await?;
        self.publisher.emit_phases(observer.phases());
        self.publisher.planned(plan.summary(), plan.steps.is_empty());
        let hinted = self.hinted.take(&input.focus);
        self.count_drift(&plan, &input.focus, &hinted);
        let holds_removals = config.guards.holds_removals(&plan, &input.focus);
        let now = self.now();
        let result = if self.pace.mode == Mode::Observe {
            PassResult::planned(plan, &mut self.open_reasons, now)
        } else {
            let deferred = self.hold_deferred(&mut plan, request);
            let written = match &input.focus {
                Focus::All => BTreeSet::new(),
                Focus::Keys(_) => plan.steps.iter().map(|step| step.key(&plan.desired)).collect(),
            };
            let (run, detached) =
                PassRun::start(&input, observer, writer, ledger_page, plan, LaneWait::Patience)
                    .await?;
            let report = run.conclude(&input, observer, ledger_page).await?;
            self.publisher.emit_phases(observer.phases());
            let mut result = PassResult::applied(report, deferred, &mut self.open_reasons, now);
            result.feedback.waiting.extend(detached.iter().map(|lane| lane.key.clone()));
            result.feedback.written = written;
            self.detached.add(detached, self.pace.deadline);
            result
        };
        if input.focus == Focus::All {
            self.holds_removals = holds_removals;
        }
        Ok(self.made(session, result, &hinted))
    }

    /// A pass is made: says who changed the keys that it leaves open, and publishes its steps. After anything else,
    /// reader and writer are opened again.
    fn made(
        &mut self,
        session: Session<S>,
        mut result: PassResult<S>,
        hinted: &HintedKeys<S::Key>,
    ) -> PassResult<S> {
        let (open, now) = (self.open.read(), self.watchdog.now());
        let culprit = |key: &S::Key| drift::culprit(key, hinted, &open);
        for (key, left) in &mut result.open {
            left.by = culprit(key);
        }
        self.publisher.emit_steps(&*result.report, now, culprit);
        self.session = Some(session);
        result
    }

    async fn open_session(&mut self) -> Result<Session<S>, Error> {
        if let Some(session) = self.session.take() {
            return Ok(session);
        }
        let (ledger, ledger_key) = (Arc::clone(&self.ledger), self.bound.ledger_key.clone());
        let ledger_page = LedgerPage::load(ledger, ledger_key).await?;
        let hints = self.pace.hints;
        let session = Session::with_page(&self.bound, &self.lock, hints, ledger_page)?;
        if std::mem::take(&mut self.has_lost_reader) {
            self.publisher.status.send_modify(|status| status.counts.resubscribed += 1);
            self.publisher.emit(EventKind::Resubscribed);
        }
        Ok(session)
    }

    /// Counts what drifted, and records contention for keys that another program keeps undoing.
    fn count_drift(&mut self, plan: &Plan<S>, focus: &Focus<S::Key>, hinted: &HintedKeys<S::Key>) {
        // What a first look finds was lost while no loop ran.
        if !self.scheduler.full.is_synced() {
            return;
        }
        let open = self.open.read();
        let drift = drift::find(plan, focus, hinted, |key| open.contains_key(key));
        drop(open);
        if drift.by_hint + drift.by_resync > 0 {
            self.publisher.status.send_modify(|status| {
                status.counts.drift_by_hint += drift.by_hint as u64;
                status.counts.drift_by_resync += drift.by_resync as u64;
            });
        }
        let now = self.now();
        for (key, who) in drift.undone {
            let contention = &mut self.scheduler.contention;
            let Heal::At(until) = contention.lost(key.clone(), who, now) else { continue };
            let contended = contention.of(&key);
            let culprit = contended.and_then(|one| one.culprit).unwrap_or(UNNAMED).to_owned();
            let (key, pause) = (key.to_string(), until.since(now));
            self.publisher.emit(EventKind::Contention { key, culprit, pause });
        }
    }

    /// Holds back the steps of keys that have to wait, and returns those keys.
    fn hold_deferred(&self, plan: &mut Plan<S>, request: &PassRequest<S::Key>) -> BTreeSet<S::Key> {
        // While a full pass holds removals back, a focused one must not make them one by one.
        if self.holds_removals && request.focus != Focus::All {
            guard::hold_removals(plan, "the last full pass holds all removals back");
        }
        let (scheduler, now) = (&self.scheduler, self.now());
        if scheduler.defers_none() {
            return BTreeSet::new();
        }
        let held = plan.hold(HeldBy::Backoff, |plan, step| {
            // A check is no quarrel: what it withdraws goes at once.
            if plan.cause(step) == Cause::Check {
                return None;
            }
            scheduler.defers(&step.key(&plan.desired), request.reasons, now)
        });
        held.iter().map(|(key, _)| key.clone()).collect()
    }

    /// What happens after a pass: the scheduler learns from it, status and events go out, waiting callers get it.
    fn finish_pass(
        &mut self,
        request: &PassRequest<S::Key>,
        result: Result<PassResult<S>, Error>,
    ) -> PassAnswer {
        let now = self.now();
        let started = self.publisher.status.borrow().last_attempt;
        let took = started.map_or(Duration::ZERO, |started| now.since(started));
        self.watchdog.health().ended(now);
        let error = match result {
            Ok(result) => return Ok(self.finish_made(request, result, took)),
            Err(error) => error,
        };
        let (retry, failure) = (error.retry(), error.failure());
        let feedback = PassFeedback { broken: Some(retry), ..PassFeedback::default() };
        self.scheduler.record(request, &feedback, now);
        (self.session, self.has_lost_reader) = (None, true);
        self.hinted.clear();
        self.publisher.emit(EventKind::Failed { failure: failure.clone() });
        self.publisher.status.send_modify(|status| {
            status.is_converged = false;
            status.last_error = Some(failure);
            status.failures = status.failures.saturating_add(1);
            status.counts.broken += 1;
        });
        self.last_pass = LastPass { is_good: false, has_moved: retry == Retry::Now };
        let report: SharedReport = Arc::new(Entries::of_broken_pass(&error, S::NAME));
        self.record_for_callers(&Covers::All, &report);
        Err(Arc::new(error))
    }

    fn finish_made(
        &mut self,
        request: &PassRequest<S::Key>,
        result: PassResult<S>,
        took: Duration,
    ) -> SharedReport {
        let PassResult { feedback, mut open, applied, unrecorded, report } = result;
        let is_recorded = unrecorded.is_none();
        let now = self.now();
        let known: BTreeSet<S::Key> = self.scheduler.convergence.report().cloned().collect();
        self.scheduler.record(request, &feedback, now);
        let moved = feedback.failed.values().any(|retry| *retry == Retry::Now);
        self.last_pass = LastPass { is_good: is_recorded, has_moved: applied > 0 || moved };
        for (key, open) in open.iter_mut().filter(|(_, open)| open.kind == Kind::Failed) {
            open.next_try = self.scheduler.backoff.next_try(key);
        }
        self.health.passed(&request.focus);
        self.open.update(&request.focus, open, &feedback.deferred);
        self.open_reasons.prune();
        self.publisher.forget_cured(&request.focus, &self.open.read());
        self.report_shown_tasks(&request.focus, &feedback);
        let open = self.count_open();
        let is_converged = self.open.are_converged() && is_recorded;
        let contended = self.scheduler.contention.report().map(|one| {
            let culprit = one.culprit.unwrap_or(UNNAMED).to_owned();
            ContendedKey { key: one.key.to_string(), culprit, pause: one.pause }
        });
        let contended = contended.collect();
        let not_converging = self.scheduler.convergence.report().map(ToString::to_string).collect();
        let is_good = feedback.failed.is_empty() && feedback.missed.is_empty();
        self.publisher.status.send_modify(|status| {
            if is_good {
                status.last_success = Some(now);
            }
            (status.last_error, status.failures) = (unrecorded, 0);
            status.is_ready |= request.focus == Focus::All;
            status.has_passed |= request.focus == Focus::All;
            (status.is_converged, status.open) = (is_converged, open);
            (status.contended, status.not_converging) = (contended, not_converging);
            status.counts.applied += applied as u64;
            status.counts.failed += (feedback.failed.len() + feedback.missed.len()) as u64;
        });
        for key in self.scheduler.convergence.report().filter(|key| !known.contains(*key)) {
            self.publisher.emit(EventKind::NotConverging { key: key.to_string() });
        }
        let (summary, converged) = (report.summary(), report.is_converged());
        self.publisher.emit(EventKind::Completed { summary, converged, took });
        if self.has_callers() {
            self.record_for_callers(&covers(&request.focus, &feedback.deferred), &report);
        }
        self.show_tasks(&report);
        report
    }

    fn count_open(&self) -> OpenCounts {
        OpenCounts::of(self.open.read().values().map(|open| open.kind))
    }

    /// Publishes what time alone changes.
    fn publish_due(&self) {
        let (due, is_paused) = (self.scheduler.due(), self.scheduler.is_paused());
        let next_due = due.map(|(time, _)| time);
        let next_why = due.map_or(Reasons::NONE, |(_, reason)| reason.into());
        // A moment that lies ahead is no work yet, and becomes so if no pass starts then.
        self.watchdog.health().ready(next_due);
        self.publisher.status.send_if_modified(|status| {
            let former = (status.next_due, status.next_why, status.is_paused);
            (status.next_due, status.next_why, status.is_paused) = (next_due, next_why, is_paused);
            former != (next_due, next_why, is_paused)
        });
    }

    /// Shows people which tasks a run waits for.
    fn show_tasks(&self, report: &SharedReport) {
        let Some(progress) = &self.config.progress else { return };
        if S::FAILS == Fails::Lanes {
            report.explain(Kind::Pending, &mut |entry| {
                if let Entry::Finding {
                    key,
                    finding: Finding::Pending { on: WaitsOn::Task(task) },
                } = entry
                {
                    progress.waits(&key, &task);
                }
            });
        }
    }
}

/// Work that goes on after its pass: detached lanes, and tasks of the target.
impl<S: Source> Controller<S> {
    /// Whether there are lanes to conclude. Nothing can be verified before a full pass has seen everything.
    fn may_conclude(&self) -> bool {
        !self.detached.finished.is_empty() && !self.scheduler.needs_full
    }

    /// Verifies and records the detached lanes that have finished, in a pass of their own.
    async fn conclude_detached(&mut self, inbox: Option<&mut Inbox<S>>) {
        if self.scheduler.needs_full && self.scheduler.is_paused() {
            // No pass may come for a long time, and commands wait for the lanes.
            self.detached.finished.clear();
        }
        if !self.may_conclude() {
            return;
        }
        let (finished, request) = self.detached.take_finished();
        self.start_pass(&request);
        let result =
            self.guarded(inbox, async |this| this.conclude(finished, &request).await).await;
        // The report went out as events, and its sum is in the status.
        let _ = self.finish_pass(&request, result);
    }

    async fn conclude(
        &mut self,
        finished: Vec<FinishedLane<S>>,
        request: &PassRequest<S::Key>,
    ) -> Result<PassResult<S>, Error> {
        let (mut prior, mut ended, mut broken) = (PriorRecords::<S>::new(), Vec::new(), None);
        for one in finished {
            match one.ended {
                Ok(lane) => {
                    prior.extend(one.prior);
                    ended.push(lane);
                }
                // The intents stay: it is not known whether their steps were written.
                Err(error) => broken = Some(error),
            }
        }
        let Some(first) = ended.first_mut() else {
            return Err(broken.unwrap_or(Error::Stopped));
        };
        let mut plan = first.plan.part(0..0);
        // No pass plans for the keys until they have been looked at.
        let _lanes: Vec<_> = ended.iter_mut().map(|ended| ended.lane.take()).collect();
        let mut results = join(&mut plan, ended);
        results.distrust(plan.steps.len());
        let mut session = self.open_session().await?;
        let (bound, config) = (Arc::clone(&self.bound), self.config.clone());
        let input = bound.pass_input(Arc::clone(&self.desired), &config, request.focus.clone());
        let run = PassRun { plan, results, prior };
        let report = run.conclude(&input, &mut session.observer, &mut session.ledger_page).await?;
        let now = self.now();
        let mut result = PassResult::applied(report, BTreeSet::new(), &mut self.open_reasons, now);
        if let Focus::Keys(keys) = &request.focus {
            result.feedback.written.clone_from(keys);
        }
        // The task of a key may have finished before the pass that sent it was concluded; what failed is looked at
        // after its pause.
        let is_due = |key: &S::Key| self.scheduler.defers(key, Reason::Hint.into(), now).is_none();
        let pending =
            result.open.iter().filter(|(key, open)| open.kind == Kind::Pending && is_due(key));
        self.config.dispatch.requeue_finished(pending.map(|(key, _)| key));
        let result = self.made(session, result, &HintedKeys::default());
        broken.map_or(Ok(result), Err)
    }

    /// Looks again at keys whose task ended or whose lane came free, unless the task failed: then the retry waits.
    fn on_dirty_keys(&mut self, mut keys: BTreeSet<S::Key>) {
        let failed = self.take_task_results();
        keys.retain(|key| !failed.contains(key));
        // Commands need not wait for that retry.
        self.config.dispatch.free_reserved(&failed);
        if !keys.is_empty() {
            self.wake(Wakeup::Hint(keys.into_iter().collect()));
        }
    }

    /// Learns how tasks ended, and returns the keys of those that failed or whose end is not known.
    fn take_task_results(&mut self) -> BTreeSet<S::Key> {
        let (mut open, mut entries, now) = (Vec::new(), Vec::new(), self.now());
        for (key, TaskResult { task, change, end }) in self.config.dispatch.take_results() {
            self.finished_tasks.remove(&key);
            let action = change.map(|(action, _)| action);
            let failure = |why| Failure::new(why, Retry::Soon);
            let (finding, failure) = match (end, change) {
                (TaskEnd::Failed(why), _) => {
                    let (text, failure) = (key.to_string(), failure(why));
                    let event =
                        EventKind::StepFailed { action, key: text, failure: failure.clone() };
                    self.publisher.emit(event);
                    (Finding::Failed { action, failure: failure.clone() }, failure)
                }
                (TaskEnd::Unknown(why), _) => (Finding::Unknown { why: why.clone() }, failure(why)),
                (TaskEnd::Succeeded, Some((action, cause))) => {
                    let by = self.open.read().get(&key).and_then(|open| open.by.clone());
                    self.finished_tasks.insert(key, FinishedTask { action, cause, by, task });
                    continue;
                }
                // One of an earlier run is in the journal; one that was given up is asked about.
                (TaskEnd::Succeeded, None) | (TaskEnd::GivenUp(_), _) => continue,
            };
            let reported = Finding::Failed { action, failure };
            entries.push(Entry::Finding { key: key.to_string(), finding: reported });
            self.scheduler.task_failed(key.clone(), now);
            open.extend(self.open_reasons.open(&finding, now).map(|open| (key, open)));
        }
        let failed: BTreeSet<S::Key> = open.iter().map(|(key, _)| key.clone()).collect();
        if !failed.is_empty() {
            self.open.add(open);
            let counts = self.count_open();
            self.publisher.status.send_modify(|status| {
                (status.is_converged, status.open) = (false, counts);
                status.counts.failed += failed.len() as u64;
            });
            let covers = Covers::Keys(failed.iter().map(ToString::to_string).collect());
            self.record_for_callers(&covers, &(Arc::new(Entries(entries)) as SharedReport));
        }
        failed
    }

    /// Reports finished tasks as applied once a look shows their effect. If it shows otherwise, the key is tried again
    /// after a pause. A look that could not see the key says nothing against the target's word.
    fn report_shown_tasks(&mut self, focus: &Focus<S::Key>, feedback: &PassFeedback<S::Key>) {
        let seen: Vec<_> = self.finished_tasks.extract_if(.., |key, _| focus.covers(key)).collect();
        let (mut applied, now) = (Vec::new(), self.now());
        for (key, FinishedTask { action, cause, by, task }) in seen {
            let is_shown = match self.open.read().get(&key).map(|open| open.kind) {
                None => true,
                // It was written again, with an unknown outcome: it did not show.
                Some(Kind::Unknown) => !feedback.failed.contains_key(&key),
                Some(_) => false,
            };
            if is_shown {
                let key = key.to_string();
                self.publisher.emit(EventKind::StepApplied { action, key: key.clone(), cause, by });
                let note = task.map(|task| format!("task {task}"));
                let line = Line { note, ..Line::new(action, key) };
                applied.push(Entry::Applied(line, cause));
            } else {
                self.scheduler.convergence.missed(key, 0, now);
            }
        }
        if !applied.is_empty() {
            self.publisher
                .status
                .send_modify(|status| status.counts.applied += applied.len() as u64);
            // Only what was applied: the pass itself says which keys are open.
            let covers = Covers::Keys(BTreeSet::new());
            self.record_for_callers(&covers, &(Arc::new(Entries(applied)) as SharedReport));
        }
    }

    /// Whether a task has not ended, or no pass has seen its effect yet.
    fn has_unreported_tasks(&self) -> bool {
        self.config.dispatch.has_tasks() || !self.finished_tasks.is_empty()
    }
}

/// Commands, and callers that wait.
impl<S: Source> Controller<S> {
    /// Breaks if the command was to stop.
    async fn handle_command(
        &mut self,
        command: Command<S>,
        inbox: &mut Inbox<S>,
    ) -> ControlFlow<()> {
        // A caller may be gone before its answer comes: the work is done all the same.
        match command {
            Command::Put(bound, forget) => self.put(bound, forget),
            Command::Apply(bound, answer) => {
                self.put(bound, Forget::All);
                let _ = answer.send(self.pass_now(inbox).await);
            }
            Command::Pass(answer) => {
                // An operator wants a fresh reading, not what the reader has learned from hints.
                self.drain_hints();
                self.session = None;
                let _ = answer.send(self.pass_now(inbox).await);
            }
            Command::Record(recorder) => self.recorders.push(recorder),
            Command::Settle(patience, answer) => {
                let has_written = self.last_pass.has_moved;
                self.settling.push(Settling::new(answer, patience, has_written, self.now()));
            }
            Command::Look(key, answer) => _ = answer.send(self.look(key, inbox).await),
            Command::Adopt(key, answer) => _ = answer.send(self.adopt(key, inbox).await),
            Command::Forget(key, answer) => _ = answer.send(self.forget(&key).await),
            Command::Restore(taken, answer) => _ = answer.send(self.restore(taken).await),
            Command::Pause(during) => self.pause(during),
            Command::Resume => self.resume(),
            Command::Stop(policy, answer) => {
                match policy {
                    OnStop::Leave => {}
                    OnStop::Release => {
                        let key = self.bound.ledger_key.clone();
                        let cleared = ledger::work(&self.ledger, move |it| it.clear(&key)).await;
                        if let Err(error) = cleared {
                            self.publisher.emit(EventKind::Failed { failure: error.failure() });
                        }
                    }
                    OnStop::Revert => self.revert().await,
                }
                self.publisher.emit(EventKind::Stopped);
                let _ = answer.send(());
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Queues a new desired state. The present one stays in force until its pass starts.
    fn put(&mut self, bound: Arc<Bound<S>>, forget: Forget) {
        let (generation, forget) = match self.next_bound.take() {
            Some(waiting) if waiting.forget == Forget::All => (waiting.generation + 1, Forget::All),
            Some(waiting) => (waiting.generation + 1, forget),
            None => (self.publisher.status.borrow().generation + 1, forget),
        };
        self.next_bound = Some(NextBound { bound, generation, forget });
        let wakeup = match forget {
            Forget::Changed => Wakeup::Paced(Reason::Desired),
            Forget::All => Wakeup::Command(Reason::Desired),
        };
        self.wake(wakeup);
    }

    /// Changes over to the newest desired state, if it is not in force yet. The loop is not converged until its pass.
    fn take_desired(&mut self) {
        let Some(NextBound { bound, generation, forget }) = self.next_bound.take() else { return };
        // Lanes of the former desired state are treated as in doubt: the target is asked about them.
        self.detached = DetachedLanes::default();
        self.config.dispatch.replaced_by(&bound.config.dispatch);
        let is_rebound = forget == Forget::All || !self.bound.differs_only_in_desired(&bound);
        let former = std::mem::replace(&mut self.desired, Arc::clone(&bound.desired));
        self.config = bound.config.clone();
        self.health.replace(self.config.conditions.clone());
        (self.bound, self.session) = (bound, None);
        self.hinted.clear();
        self.reserve_lanes();
        let (desired, now) = (&*self.desired, self.now());
        let is_same = |key: &S::Key| match (desired.slot(key, None), former.slot(key, None)) {
            (Some(slot), Some(there)) => desired.is_same(slot, &former, there),
            (None, None) => true,
            _ => false,
        };
        let keeps_task = |key: &S::Key| forget == Forget::Changed && is_same(key);
        self.scheduler.desired_changed(|key| is_rebound || !is_same(key), keeps_task, now);
        self.publisher.status.send_modify(|status| {
            (status.is_converged, status.has_passed) = (false, false);
            status.generation = generation;
        });
    }

    fn pause(&mut self, during: Option<Duration>) {
        let until = during.map(|during| self.now().after(during));
        self.scheduler.pause(until);
        self.reserve_lanes();
        self.watchdog.health().paused();
        self.publisher.emit(EventKind::Paused { during });
    }

    /// A full pass follows.
    fn resume(&mut self) {
        self.scheduler.resume();
        self.reserve_lanes();
        self.watchdog.health().resumed(self.now());
        self.publisher.emit(EventKind::Resumed);
        self.wake(Wakeup::Command(Reason::Operator));
    }

    /// A full pass that a person asked for: it waits for nothing, not even for a pause to end.
    async fn pass_now(&mut self, inbox: &mut Inbox<S>) -> PassAnswer {
        let request = self.commanded(Focus::All);
        self.pass(request, Some(inbox)).await
    }

    fn commanded(&mut self, focus: Focus<S::Key>) -> PassRequest<S::Key> {
        self.take_desired();
        self.drain_hints();
        let focus = if self.scheduler.needs_full { Focus::All } else { focus };
        self.scheduler.commanded(&focus, self.now());
        PassRequest { focus, reasons: Reason::Operator.into(), waited: Duration::ZERO }
    }

    /// Plans for one key and what depends on it; nothing is written.
    async fn look(&mut self, key: S::Key, inbox: &mut Inbox<S>) -> PassAnswer {
        self.take_desired();
        let focus = Focus::Keys(BTreeSet::from([key]));
        let focus = if self.scheduler.needs_full { Focus::All } else { focus };
        let looked = self.guarded(Some(inbox), async |this| {
            let mut session = this.open_session().await?;
            let input =
                this.bound.pass_input(Arc::clone(&this.desired), &this.config, focus).widened();
            let plan =
                plan_focus(&input, &mut session.observer, session.ledger_page.holdings()).await?;
            this.session = Some(session);
            Ok(Arc::new(plan) as SharedReport)
        });
        looked.await.map_err(|error| {
            self.lose_reader();
            Arc::new(error)
        })
    }

    async fn adopt(&mut self, key: S::Key, inbox: &mut Inbox<S>) -> PassAnswer {
        self.take_desired();
        let is_once = self.config.adopt.insert(key.clone());
        let request = self.commanded(Focus::Keys(BTreeSet::from([key.clone()])));
        let answer = self.pass(request, Some(inbox)).await;
        if is_once {
            self.config.adopt.remove(&key);
        }
        answer
    }

    async fn forget(&mut self, key: &S::Key) -> Result<bool, Arc<Error>> {
        let deadline = self.pace.deadline;
        let forgotten = bounded(deadline, async {
            let mut session = self.open_session().await?;
            let known = session.ledger_page.forget_key(key).await?;
            self.session = Some(session);
            Ok(known)
        });
        forgotten.await.map_err(Arc::new)
    }

    async fn restore(&mut self, taken: Vec<(S::Key, Snapshot)>) -> Vec<(String, Restored)> {
        let session = match self.open_session().await {
            Ok(session) => session,
            Err(error) => {
                let failed =
                    |(key, _): (S::Key, _)| (key.to_string(), Restored::Failed(error.failure()));
                return taken.into_iter().map(failed).collect();
            }
        };
        let (mut restored, mut left) = (Vec::with_capacity(taken.len()), taken);
        // Some objects may need others: as long as one is restored, the others are tried again.
        loop {
            let (mut failed, before) = (Vec::new(), left.len());
            for (key, snapshot) in left {
                let outcome = session.writer.restore(&key, &snapshot).await;
                match Restored::from_outcome(outcome) {
                    Restored::Failed(failure) => failed.push((key, snapshot, failure)),
                    outcome => restored.push((key.to_string(), outcome)),
                }
            }
            if failed.is_empty() || failed.len() == before {
                let failed = failed.into_iter();
                restored.extend(
                    failed.map(|(key, _, failure)| (key.to_string(), Restored::Failed(failure))),
                );
                break;
            }
            left = failed.into_iter().map(|(key, snapshot, _)| (key, snapshot)).collect();
        }
        self.session = Some(session);
        restored
    }

    /// Runs a last pass with nothing declared, to its end, and concludes what goes on after it.
    async fn revert(&mut self) {
        self.take_desired();
        let Some(nothing) = self.bound.nothing.clone() else { return };
        let config = &mut self.config;
        config.on_release = OnRelease::Restore;
        config.guards = Guards { mass_delete: MassDelete::Allow, ..config.guards };
        (self.desired, self.detached) = (nothing, DetachedLanes::default());
        self.scheduler.desired_changed(|_| true, |_| false, self.now());
        let request = self.commanded(Focus::All);
        let _ = self.pass(request, None).await;
        self.detached.finish_all().await;
        self.conclude_detached(None).await;
    }

    /// Answers callers for whom nothing is left to wait for, and runs the full pass that others need. Returns whether
    /// it ran one.
    async fn answer_settled(&mut self, inbox: &mut Inbox<S>) -> bool {
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
            // The report is recorded for the callers.
            let _ = self.pass_now(inbox).await;
        }
        needs_pass
    }

    fn outlook(&self) -> Outlook {
        let has_lanes = S::FAILS == Fails::Lanes;
        let is_converged = self.open.are_converged() && self.last_pass.is_good;
        let is_broken = !self.last_pass.is_good && !self.last_pass.has_moved;
        Outlook {
            is_final: self.scheduler.is_paused() || is_converged && !self.has_unreported_tasks(),
            is_broken,
            has_moved: self.last_pass.has_moved,
            has_tasks: self.open.read().values().any(|open| open.ends_by_itself)
                || self.has_unreported_tasks(),
            next_retry: self.scheduler.next_retry(),
            has_failed_tasks: has_lanes && self.scheduler.backoff.has_tries_left(settle::TRIES),
        }
    }

    /// When the first of the callers stops waiting.
    fn patience_ends(&self) -> Option<Time> {
        if self.settling.is_empty() {
            return None;
        }
        let (outlook, now) = (self.outlook(), self.now());
        let needs = self.settling.iter().map(|caller| caller.need(outlook, now));
        needs.filter_map(|need| if let Need::Wait(until) = need { Some(until) } else { None }).min()
    }

    /// Whether a caller records reports, or waits: finding out which keys a report covers takes long if they are many.
    fn has_callers(&self) -> bool {
        !self.recorders.is_empty() || !self.settling.is_empty()
    }

    /// Gives a report to the callers that record or wait.
    fn record_for_callers(&mut self, covers: &Covers, report: &SharedReport) {
        let pass = PassReport::new(covers.clone(), Arc::clone(report));
        self.recorders.retain(|recorder| recorder.send(pass.clone()).is_ok());
        self.settling.iter_mut().for_each(|caller| caller.record(&pass));
    }
}

/// The next hint; a reader that panics has died.
async fn next_hint<S: Source>(
    session: &mut Option<Session<S>>,
    hints: Hints,
) -> Result<Hint<S::Key>, Failure> {
    let Some(session) = session.as_mut().filter(|_| hints == Hints::Subscribe) else {
        return std::future::pending().await;
    };
    let hint = AssertUnwindSafe(session.observer.hint()).catch_unwind().await;
    hint.unwrap_or_else(|panic| {
        let what = format!("the subscription panicked: {}", panic_message(&*panic));
        Err(Failure::new(what, Retry::Soon))
    })
}

/// Runs a piece of work until a deadline, and catches its panic.
async fn bounded<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(deadline, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => Err(Error::Panicked { what: panic_message(&*panic) }),
        Err(_) => Err(Error::TooLong { deadline }),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no words".to_owned())
}

/// Never ends without a deadline.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The keys that the report of a pass is about.
fn covers<K: Key>(focus: &Focus<K>, deferred: &BTreeSet<K>) -> Covers {
    match focus {
        Focus::All if deferred.is_empty() => Covers::All,
        Focus::All => Covers::AllBut(deferred.iter().map(ToString::to_string).collect()),
        Focus::Keys(keys) => {
            Covers::Keys(keys.difference(deferred).map(ToString::to_string).collect())
        }
    }
}
