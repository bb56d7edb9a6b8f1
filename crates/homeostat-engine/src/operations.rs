//! Drives the operations of one source in one scope: the lanes of its keys, the tasks that the target works on, the
//! questions about writes whose answer was lost, and the journal behind all of it.
//!
//! What may happen when is decided by the pure state machine ([`homeostat_core::operation`]). Here is the I/O: records
//! in the journal, futures that follow tasks and ask the target, and the callers that wait for a lane.
//!
//! It is a value that the caller owns and shares: a loop over a source and commands of operators use
//! the same [`Operations`], and so never meet on a key. A pass takes the lanes that are free; when another one comes
//! free, its key is dirty ([`Operations::dirty_keys`]), and the next pass looks at it before anything is sent. A task
//! keeps its lane until it ends; no pass waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use educe::Educe;
use futures_util::FutureExt as _;
use homeostat_core::operation::{Doubt, Effect, Event, OperationSet, Unended};
use homeostat_core::outcome::Later;
use homeostat_core::pacing::Time;
use homeostat_core::{
    Action, Cause, Failure, Focus, Key, LaneConsumer, Limits, Recovery, Retry, TaskEnd, TaskResult,
    Tasks, Ticket, WaitsOn,
};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::journal::{End, Journal, JournalError, OpenStep, Repeat, StepId, Subject};

/// The operations of one source in one scope, with the journal. Clones are the same one.
#[derive(Educe)]
#[educe(Clone)]
pub struct Operations<K: Key> {
    shared: Arc<Shared<K>>,
}

impl<K: Key> std::fmt::Debug for Operations<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// A lane: as long as it is held, nothing else writes to the key. It is freed when it is dropped, also by a panic. If
/// something was sent to the key whose end is not in the journal by then, the key is in doubt.
pub struct LaneGuard<K: Key> {
    key: K,
    /// Nothing once the lane was handed on.
    shared: Option<Weak<Shared<K>>>,
}

impl<K: Key> LaneGuard<K> {
    fn new(key: K, shared: &Arc<Shared<K>>) -> Self {
        LaneGuard { key, shared: Some(Arc::downgrade(shared)) }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }
}

impl<K: Key> Drop for LaneGuard<K> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.as_ref().and_then(Weak::upgrade) {
            let open = shared.unended(&self.key);
            shared.happened(&self.key, Event::Released(open));
        }
    }
}

impl<K: Key> Operations<K> {
    /// The operations of a source in a scope.
    #[must_use]
    pub fn new(journal: Arc<Journal>, source: &str, scope: &str, limits: Limits) -> Self {
        let state = State {
            set: OperationSet::new(limits),
            tasks: None,
            questions: Vec::new(),
            clear_at: None,
            put_off: BTreeSet::new(),
        };
        let shared = Shared {
            journal,
            source: source.to_owned(),
            scope: scope.to_owned(),
            epoch: Instant::now(),
            state: Mutex::new(state),
            changed: Notify::new(),
            background: Mutex::new(JoinSet::new()),
        };
        Operations { shared: Arc::new(shared) }
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Whether this is the journal behind them.
    #[must_use]
    pub fn is_over(&self, journal: &Arc<Journal>) -> bool {
        Arc::ptr_eq(&self.shared.journal, journal)
    }

    /// Sets other limits, for what begins from here on.
    pub fn limit(&self, limits: Limits) {
        self.shared.change(|set, _| set.limit(limits));
    }

    /// Nothing is sent before this time: something that another process has sent may still arrive. What passes leave for
    /// it is looked at again then.
    pub fn clear_at(&self, time: Instant) {
        self.shared.state().clear_at = Some(time);
        let shared = Arc::downgrade(&self.shared);
        self.shared.spawn(async move {
            tokio::time::sleep_until(time).await;
            if let Some(shared) = shared.upgrade() {
                let keys = {
                    let mut state = shared.state();
                    state.clear_at = None;
                    std::mem::take(&mut state.put_off)
                };
                shared.change(|set, _| set.requeue_finished(keys.iter()));
            }
        });
    }

    /// A key, as the journal has it.
    pub fn subject(&self, key: &K) -> Subject {
        self.shared.subject(key)
    }

    /// Waits for a key's lane, in the order of arrival. A dropped future gives up its place.
    pub async fn enter(&self, key: &K, node: &str) -> LaneGuard<K> {
        let clear_at = self.shared.state().clear_at;
        if let Some(time) = clear_at {
            tokio::time::sleep_until(time).await;
        }
        loop {
            let (waiter, granted) = oneshot::channel();
            let ticket = self.shared.change(|set, _| set.submit(key, node.to_owned(), waiter));
            let _queued = Queued { shared: &self.shared, key, ticket };
            // A waiter is dropped only after it was granted the lane; should that happen, the wait begins anew.
            if let Ok(lane) = granted.await {
                return lane;
            }
        }
    }

    /// Finds out what became of the open step of a key whose lane is held, and waits for its task. Its end is in the
    /// journal when this returns, unless it was given up. Nothing, if there is no open step.
    pub async fn settle(
        &self,
        lane: &LaneGuard<K>,
        tasks: &dyn Tasks,
    ) -> Result<Option<TaskEnd>, Failure> {
        let Some(open) = self.journal().open_step(&self.subject(lane.key())) else {
            return Ok(None);
        };
        let end = match open.intent.repeat {
            Repeat::Harmless => TaskEnd::Unknown(ANSWER_LOST.to_owned()),
            Repeat::Hurts => self.find_end(lane.key(), &open, tasks).await?,
        };
        self.shared.end(open.id, &end, Value::Null).await?;
        Ok(Some(end))
    }

    async fn find_end(
        &self,
        key: &K,
        open: &OpenStep,
        tasks: &dyn Tasks,
    ) -> Result<TaskEnd, Failure> {
        let (step, node) = (open.id, open.intent.node.clone());
        let doubt = self.shared.change(|set, now| {
            let lost = Event::AnswerLost(Unended { step, node: node.clone() });
            set.happened(key, lost, now);
            set.held_doubt(key).cloned().unwrap_or(Doubt { step, node, since: now })
        });
        let mut tries = 0;
        loop {
            let asked = self.shared.now();
            match tasks.recover(open.begun()).await? {
                Recovery::Ended(end) => return Ok(end),
                Recovery::Running { task, .. } => {
                    self.shared.dispatched(open, &task).await?;
                    return Ok(tasks.follow(&task).await);
                }
                Recovery::NotFound { why } if doubt.is_over(asked, tasks.doubt_lasts()) => {
                    return Ok(TaskEnd::Unknown(why));
                }
                Recovery::NotFound { .. } => {
                    let at = doubt.next_question(tries, self.shared.now(), tasks.doubt_lasts());
                    tokio::time::sleep_until(self.shared.epoch + at.since_epoch()).await;
                }
            }
            tries += 1;
        }
    }

    /// How many keys have something running or waiting; the others leave no trace.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.shared.state().set.busy()
    }

    /// Waits until a pass should look at keys again, because their task ended or their lane came free, and returns
    /// them. Cancel-safe.
    pub async fn dirty_keys(&self) -> BTreeSet<K> {
        let dirty = |set: &mut Set<K>| Some(set.take_dirty()).filter(|dirty| !dirty.is_empty());
        self.shared.wait_for(dirty).await
    }

    /// The tasks that the target works on, by key.
    #[must_use]
    pub fn in_flight(&self) -> BTreeMap<K, String> {
        self.shared.state().set.in_flight()
    }

    /// Waits until the target works on nothing of ours.
    pub async fn tasks_finished(&self) {
        self.shared.wait_for(|set| set.in_flight().is_empty().then_some(())).await;
    }
}

/// What the run of a pass calls for its lanes.
impl<K: Key> Operations<K> {
    /// A pass takes a key's lane, and does not wait.
    pub(crate) fn take(&self, key: &K, node: &str) -> Result<LaneGuard<K>, WaitsOn> {
        {
            let mut state = self.shared.state();
            if state.clear_at.is_some() {
                state.put_off.insert(key.clone());
                return Err(WaitsOn::Later(PREDECESSOR.to_owned()));
            }
        }
        self.shared.change(|set, now| set.take(key, node, now))?;
        Ok(LaneGuard::new(key.clone(), &self.shared))
    }

    /// The target accepted a write as a task, which is followed to its end. The lane is freed then, and the key is
    /// dirty.
    pub(crate) fn follow(
        &self,
        mut lane: LaneGuard<K>,
        write: Unended<StepId>,
        task: String,
        change: Option<(Action, Cause)>,
    ) {
        // The lane goes on without the guard.
        lane.shared = None;
        let (key, step) = (lane.key.clone(), write.step);
        self.shared.happened(&key, Event::Accepted { write, task: task.clone(), change });
        self.shared.follow(key, step, task);
    }

    /// Writes down how a step ended that was done at once.
    pub(crate) async fn end(&self, step: StepId, end: &TaskEnd) {
        // Records that cannot be written are kept in memory, and written as soon as there is room.
        let _ = self.shared.end(step, end, Value::Null).await;
    }
}

/// What keeps writes that must not be sent twice from being so. Loop, passes and runs of steps call it whatever their
/// source; one without such writes has none of it.
#[derive(Clone, Debug, Default)]
pub enum DispatchGuard<K: Key> {
    /// Nothing: such writes are refused.
    #[default]
    Absent,
    /// Nothing, and the caller says that a second dispatch after a crash would do no harm.
    Volatile,
    /// Lanes and a journal.
    Operations(Operations<K>),
}

impl<K: Key> DispatchGuard<K> {
    pub(crate) fn operations(&self) -> Option<&Operations<K>> {
        match self {
            DispatchGuard::Operations(operations) => Some(operations),
            DispatchGuard::Absent | DispatchGuard::Volatile => None,
        }
    }

    fn shared(&self) -> Option<&Arc<Shared<K>>> {
        self.operations().map(|operations| &operations.shared)
    }

    fn change<T>(&self, what: impl FnOnce(&mut Set<K>, Time) -> T) -> Option<T> {
        self.shared().map(|shared| shared.change(what))
    }

    /// Whether both are the same one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self.shared(), other.shared()) {
            (Some(shared), Some(other)) => Arc::ptr_eq(shared, other),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// A loop begins, is paused, goes on, or ends: says who waits for lanes and results. For a loop that makes passes,
    /// the writes that an earlier process left open take their places on their nodes at once.
    pub(crate) fn set_consumer(&self, consumer: LaneConsumer) {
        let Some(shared) = self.shared() else { return };
        shared.change(|set, now| set.set_consumer(consumer, now));
        if consumer == LaneConsumer::Active {
            // Steps that may be sent again take no slot: the first pass closes them.
            let _ = shared.find_open();
        }
    }

    /// The loop goes on with another guard, and with another writer, which may reach whom the former one could not
    /// ask. What is in doubt keeps its places, unless it belongs to another loop from here on.
    pub(crate) fn replaced_by(&self, next: &Self) {
        let Some(shared) = self.shared().filter(|_| self.is_same(next)) else {
            return self.set_consumer(LaneConsumer::None);
        };
        let questions = {
            let mut state = shared.state();
            state.tasks = None;
            std::mem::take(&mut state.questions)
        };
        questions.iter().for_each(AbortHandle::abort);
        shared.change(OperationSet::detach);
    }

    /// As in [`Operations::dirty_keys`]; for ever, where there are none.
    pub(crate) async fn dirty_keys(&self) -> BTreeSet<K> {
        match self.operations() {
            Some(operations) => operations.dirty_keys().await,
            None => std::future::pending().await,
        }
    }

    /// How tasks ended since this was asked last.
    pub(crate) fn take_results(&self) -> BTreeMap<K, TaskResult> {
        self.shared().map(|shared| shared.state().set.take_results()).unwrap_or_default()
    }

    /// Whether the target works on something, may do so, or has ended something that no loop knows of yet.
    pub(crate) fn has_tasks(&self) -> bool {
        self.shared().is_some_and(|shared| shared.state().set.has_tasks())
    }

    /// Frees the lanes of keys that no pass will come for soon.
    pub(crate) fn free_reserved(&self, keys: &BTreeSet<K>) {
        self.change(|set, now| set.free_reserved(|key| keys.contains(key), now));
    }

    /// Queues keys again whose task finished before the pass that sent it was concluded.
    pub(crate) fn requeue_finished<'a>(&self, keys: impl Iterator<Item = &'a K>) {
        self.change(|set, _| set.requeue_finished(keys));
    }

    /// A pass begins to look at these keys, and sees why they are dirty. What ends from here on, its steps do not know
    /// of.
    pub(crate) fn look(&self, focus: &Focus<K>) {
        self.change(|set, _| set.look(focus));
    }

    /// A pass begins to write: asks the target about every step of this source that has no end and that is not being
    /// worked on. Returns their keys, which the pass must not write to: what was planned for them does not know of the
    /// answer.
    pub(crate) async fn begin_pass(&self, tasks: Option<Arc<dyn Tasks>>) -> BTreeSet<K> {
        let Some(operations) = self.operations() else { return BTreeSet::new() };
        let shared = &operations.shared;
        if let Some(tasks) = tasks {
            let doubt_lasts = tasks.doubt_lasts();
            shared.state().tasks = Some(tasks);
            shared.change(|set, now| set.attach(doubt_lasts, now));
        }
        for harmless in shared.find_open() {
            // What this pass has seen says whether it is needed again.
            operations.end(harmless, &TaskEnd::Unknown(ANSWER_LOST.to_owned())).await;
        }
        shared.change(OperationSet::begin_pass)
    }

    /// Waits until the target has said something about each of these keys, or cannot be asked.
    pub(crate) async fn answered(&self, keys: &BTreeSet<K>) {
        if let Some(shared) = self.shared() {
            shared.wait_for(|set| (!set.awaits_answers(keys)).then_some(())).await;
        }
    }

    /// A pass over these keys has written what it could: lanes that were kept for it and that it did not need are free
    /// again.
    pub(crate) fn end_pass(&self, focus: &Focus<K>) {
        self.change(|set, now| set.end_pass(|key| focus.covers(key), now));
    }
}

/// Why a step is closed that may be sent again.
const ANSWER_LOST: &str = "the answer was lost";

/// What passes wait for until [`Operations::clear_at`].
const PREDECESSOR: &str = "requests of the machine that acted before, which may still arrive";

/// Why something is not in the journal.
pub(crate) fn unwritten(error: &JournalError) -> Failure {
    Failure::from_error(error, Retry::Soon).with_known_help(error.help())
}

/// A caller that waits for a lane.
type Waiter<K> = oneshot::Sender<LaneGuard<K>>;
type Set<K> = OperationSet<K, Waiter<K>, StepId>;

/// What all clones share.
struct Shared<K: Key> {
    journal: Arc<Journal>,
    source: String,
    scope: String,
    /// Where the machine's time begins.
    epoch: Instant,
    /// No task waits while it is locked.
    state: Mutex<State<K>>,
    /// Something has changed that a task may wait for.
    changed: Notify,
    /// Followed tasks and questions. They end with the value: the journal has records of them.
    background: Mutex<JoinSet<()>>,
}

struct State<K: Key> {
    set: Set<K>,
    /// Whom to ask.
    tasks: Option<Arc<dyn Tasks>>,
    /// The questions that are under way.
    questions: Vec<AbortHandle>,
    /// Nothing is sent before this.
    clear_at: Option<Instant>,
    /// The keys that passes left for it.
    put_off: BTreeSet<K>,
}

/// A place in the queue of a key, given up when it is dropped.
struct Queued<'a, K: Key> {
    shared: &'a Arc<Shared<K>>,
    key: &'a K,
    ticket: Ticket,
}

impl<K: Key> Drop for Queued<'_, K> {
    fn drop(&mut self) {
        self.shared.change(|set, _| set.withdraw(self.key, self.ticket));
    }
}

impl<K: Key> Shared<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::from_epoch(self.epoch.elapsed())
    }

    fn subject(&self, key: &K) -> Subject {
        let (source, scope) = (self.source.clone(), self.scope.clone());
        Subject { source, scope, key: key.to_string() }
    }

    /// Every change of the machine: does what follows from it, and wakes waiting callers.
    fn change<T>(self: &Arc<Self>, what: impl FnOnce(&mut Set<K>, Time) -> T) -> T {
        let (done, effects) = {
            let mut state = self.state();
            let done = what(&mut state.set, self.now());
            (done, state.set.take_effects())
        };
        for effect in effects {
            match effect {
                Effect::Grant { key, waiter } => {
                    let sent = waiter.send(LaneGuard::new(key.clone(), self));
                    if let Err(mut lane) = sent {
                        lane.shared = None;
                        self.happened(&key, Event::Returned);
                    }
                }
                Effect::Ask { key, step, question, at } => self.ask(key, step, question, at),
            }
        }
        self.changed.notify_waiters();
        done
    }

    fn happened(self: &Arc<Self>, key: &K, event: Event<StepId>) {
        self.change(|set, now| set.happened(key, event, now));
    }

    /// Waits until something is so.
    async fn wait_for<T>(&self, mut so: impl FnMut(&mut Set<K>) -> Option<T>) -> T {
        loop {
            // Created before the look: a change in between wakes it.
            let changed = self.changed.notified();
            let found = so(&mut self.state().set);
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }

    /// The write of a key that must not be sent twice and has no end in the journal.
    fn unended(&self, key: &K) -> Option<Unended<StepId>> {
        let open = self.journal.open_step(&self.subject(key));
        let open = open.filter(|open| open.intent.repeat == Repeat::Hurts)?;
        Some(Unended { step: open.id, node: open.intent.node })
    }

    /// Has the machine know of the open steps that are in doubt. Returns those that may be sent again. What is being
    /// worked on is neither.
    fn find_open(self: &Arc<Self>) -> Vec<StepId> {
        let mut harmless = Vec::new();
        for open in self.journal.open_steps() {
            let Some(key) = self.key_of(&open) else { continue };
            match open.intent.repeat {
                Repeat::Hurts => {
                    let write = Unended { step: open.id, node: open.intent.node };
                    self.happened(&key, Event::Found(write));
                }
                Repeat::Harmless if self.state().set.is_free(&key) => harmless.push(open.id),
                Repeat::Harmless => {}
            }
        }
        harmless
    }

    /// The key of a step of this source and scope.
    fn key_of(&self, open: &OpenStep) -> Option<K> {
        let Subject { source, scope, key } = &open.intent.subject;
        let is_ours = (source, scope) == (&self.source, &self.scope);
        K::from_str(key).ok().filter(|_| is_ours)
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        while background.try_join_next().is_some() {}
        background.spawn(work)
    }

    fn follow(self: &Arc<Self>, key: K, step: StepId, task: String) {
        let tasks = self.state().tasks.clone();
        let end: Later<'static, TaskEnd> = match tasks {
            Some(tasks) => tasks.follow(&task),
            None => Box::pin(std::future::ready(TaskEnd::Unknown(format!(
                "task {task} cannot be followed"
            )))),
        };
        let shared = Arc::downgrade(self);
        self.spawn(async move {
            let end = AssertUnwindSafe(end).catch_unwind().await;
            let end =
                end.unwrap_or_else(|_| TaskEnd::Unknown("waiting for it panicked".to_owned()));
            if let Some(shared) = shared.upgrade() {
                let _ = shared.end(step, &end, json!({ "task": task })).await;
                shared.happened(&key, Event::TaskEnded(step, end));
            }
        });
    }

    /// Asks the target what became of a write, at the given time.
    fn ask(self: &Arc<Self>, key: K, step: StepId, question: u64, at: Time) {
        let (shared, at) = (Arc::downgrade(self), self.epoch + at.since_epoch());
        let asking = self.spawn(async move {
            tokio::time::sleep_until(at).await;
            let Some((open, asked, answer)) = shared.upgrade().and_then(|shared| {
                let open = shared.open_in_doubt(&key, step, question)?;
                let tasks = shared.state().tasks.clone()?;
                let answer = tasks.recover(open.begun());
                Some((open, shared.now(), answer))
            }) else {
                return;
            };
            let panicked = |_| Err(Failure::new("asking about it panicked", Retry::Soon));
            let answer = AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(panicked);
            if let Some(shared) = shared.upgrade() {
                shared.on_answer(&key, &open, question, asked, answer).await;
            }
        });
        let questions = &mut self.state().questions;
        questions.retain(|asking| !asking.is_finished());
        questions.push(asking);
    }

    /// The open step that a question is about, if it is still worth asking.
    fn open_in_doubt(self: &Arc<Self>, key: &K, step: StepId, question: u64) -> Option<OpenStep> {
        if !self.state().set.is_asked(key, question) {
            return None;
        }
        let open = self.journal.open_step(&self.subject(key)).filter(|open| open.id == step);
        if open.is_none() {
            // Another caller has written down how it ended.
            self.happened(key, Event::Resolved(step, TaskEnd::Unknown(ANSWER_LOST.to_owned())));
        }
        open
    }

    async fn on_answer(
        self: &Arc<Self>,
        key: &K,
        open: &OpenStep,
        question: u64,
        asked: Time,
        answer: Result<Recovery, Failure>,
    ) {
        // A question that found nothing says so as of when it was asked.
        let ask_again = |asked| self.change(|set, now| set.unanswered(key, question, asked, now));
        let end = match answer {
            Ok(Recovery::Running { task, node }) => {
                if self.dispatched(open, &task).await.is_err() {
                    ask_again(None);
                    return;
                }
                let write = Unended { step: open.id, node };
                if self.change(|set, now| set.adopt(key, write, task.clone(), now)) {
                    self.follow(key.clone(), open.id, task);
                }
                return;
            }
            Ok(Recovery::NotFound { why }) if ask_again(Some(asked)).is_over => {
                TaskEnd::Unknown(why)
            }
            Ok(Recovery::NotFound { .. }) => return,
            Err(_) | Ok(Recovery::Ended(TaskEnd::GivenUp(_))) => {
                ask_again(None);
                return;
            }
            Ok(Recovery::Ended(end)) => end,
        };
        let _ = self.end(open.id, &end, Value::Null).await;
        self.happened(key, Event::Resolved(open.id, end));
    }

    /// Writes down the task of a step that was found by the target's own list.
    async fn dispatched(&self, open: &OpenStep, task: &str) -> Result<(), Failure> {
        if open.task.is_some() {
            return Ok(());
        }
        self.journal.dispatched(open.id, task).await.map_err(|error| unwritten(&error))
    }

    /// Writes down how a step ended; one that was given up has no end. A journal that cannot be written keeps the end
    /// in memory, and writes it as soon as it can.
    async fn end(&self, step: StepId, end: &TaskEnd, answer: Value) -> Result<(), Failure> {
        let end = match end.clone() {
            TaskEnd::Succeeded => End::Succeeded { answer },
            TaskEnd::Failed(why) => End::Failed { why },
            TaskEnd::Unknown(why) => End::Unknown { why },
            TaskEnd::GivenUp(_) => return Ok(()),
        };
        self.journal.end(step, end).await.map_err(|error| unwritten(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Millis;

    #[tokio::test]
    async fn a_key_that_has_moved_gets_a_place_on_the_node_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(directory.path(), Arc::new(|| Millis(0))).unwrap();
        let limits = Limits { total: 9, per_node: 1 };
        let operations = Operations::new(Arc::new(journal), "source", "scope", limits);
        DispatchGuard::Operations(operations.clone()).set_consumer(LaneConsumer::Active);
        let take = |key: &str, node: &str| operations.take(&key.to_owned(), node);
        let (first, other) = (take("a", "one").unwrap(), take("b", "two").unwrap());
        assert!(take("c", "one").is_err(), "a is at work there");
        drop(first);
        // The place of `a` is kept for `c`, which has gone.
        assert!(take("c", "two").is_err(), "b is at work there");
        let fourth = take("d", "one").unwrap();
        drop(other);
        assert!(take("c", "two").is_ok());
        drop(fourth);
        assert_eq!(operations.busy(), 0);
    }
}
