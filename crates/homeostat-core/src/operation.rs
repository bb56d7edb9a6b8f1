//! Writes that must not be sent twice, as one state machine: a key has at most one write under way, and after a lost
//! answer nothing is sent to it again before the target has shown what became of the write, or before the time is over
//! in which it still may.
//!
//! [`Operation`] is the state of one key, and [`Operation::advance`] has all of its transitions. [`OperationSet`] holds
//! the keys, gives their lanes out within the limits ([`Lanes`]), and says what the driver has to do ([`Effect`]). It
//! does no I/O and reads no clock: the driver writes the journal, asks the target, and reports the results to the set.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::explain::{Action, Cause};
use crate::lanes::{Job, Lanes, Limits, Start, Ticket};
use crate::outcome::TaskEnd;
use crate::pacing::{Pauses, Time};
use crate::seen::Focus;
use crate::source::Key;
use crate::waits_on::WaitsOn;

/// The pauses between two questions about the same write, while it may still appear.
const ASK: Pauses = Pauses::new(Duration::from_millis(250), Duration::from_secs(5));
/// The same while the target cannot be asked.
const ASK_UNREACHABLE: Pauses = Pauses::new(Duration::from_millis(250), Duration::from_secs(30));

/// How long a write stays in doubt if the source does not say.
pub const DOUBT: Duration = Duration::from_secs(30);

/// A write whose end is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt<I> {
    /// The journal's name for it.
    pub step: I,
    /// Where it runs, if it does.
    pub node: String,
    /// When its answer was lost, or when the journal was read after a crash.
    pub since: Time,
}

impl<I> Doubt<I> {
    /// Whether a question that was asked at `asked` and found nothing proves that there is nothing to find.
    #[must_use]
    pub fn is_over(&self, asked: Time, doubt_lasts: Duration) -> bool {
        asked >= self.since.after(doubt_lasts)
    }

    /// When to ask again after so many questions: after growing pauses, and right when the doubt ends.
    #[must_use]
    pub fn next_question(&self, tries: u32, now: Time, doubt_lasts: Duration) -> Time {
        let next = now.after(ASK.nth(tries.saturating_add(1)));
        let end = self.since.after(doubt_lasts);
        if now < end { next.min(end) } else { next }
    }
}

/// A question to the target about a write in doubt. Answers to an older number are stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Question {
    pub number: u64,
    /// How many came before it.
    pub tries: u32,
    /// Whether the last one could not be asked or answered.
    pub has_failed: bool,
}

impl Question {
    /// The next one about the same write.
    fn next(self, number: u64, has_failed: bool) -> Self {
        Question { number, tries: self.tries.saturating_add(1), has_failed }
    }
}

/// Who holds a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A pass, also after it has detached the lane. It looks at what it has done.
    Pass,
    /// A command, which may have done anything.
    Command,
}

/// Who waits for lanes and results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneConsumer {
    /// A loop that makes passes: lanes are reserved for it, and writes in doubt are asked about.
    Active,
    /// A loop that makes no passes that write: it receives results, and lanes are free for commands.
    Paused,
    /// No loop.
    #[default]
    None,
}

/// What happens in the lane of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Operation<I> {
    /// Nothing.
    #[default]
    Idle,
    /// The lane is free, and the end of the last write is not known. The next holder of the lane asks first.
    Unresolved(Doubt<I>),
    /// The lane is kept for the next pass.
    Reserved,
    /// A pass or a command holds the lane.
    Held {
        by: Holder,
        /// The write that was in doubt when it took the lane.
        doubt: Option<Doubt<I>>,
    },
    /// The target works on a task.
    InFlight {
        /// The journal's name for the write.
        step: I,
        /// Where it runs.
        node: String,
        /// The target's name for the task.
        task: String,
        /// What it does, and why; nothing for one of an earlier process.
        change: Option<(Action, Cause)>,
    },
    /// The answer was lost: the target is asked, and nothing is sent.
    InDoubt {
        /// Which write.
        doubt: Doubt<I>,
        /// What is being asked; nothing while the target cannot be asked.
        question: Option<Question>,
    },
}

/// A write without an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unended<I> {
    /// The journal's name for it.
    pub step: I,
    /// Where it runs, if it does.
    pub node: String,
}

impl<I: Eq> Unended<I> {
    /// The doubt about this write, which may be known since before.
    fn doubted(self, known: Option<Doubt<I>>, now: Time) -> Doubt<I> {
        let known = known.filter(|doubt| doubt.step == self.step);
        known.unwrap_or(Doubt { step: self.step, node: self.node, since: now })
    }
}

/// What happens to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Event<I> {
    /// Its lane comes free for a pass.
    Offered,
    /// The pass takes it.
    Taken,
    /// The pass did not need it.
    Unneeded,
    /// Its lane comes free for a command.
    Granted,
    /// The command had stopped waiting.
    Returned,
    /// The answer to the holder's write was lost.
    AnswerLost(Unended<I>),
    /// The holder lets go of the lane; the journal has this write without an end.
    Released(Option<Unended<I>>),
    /// The target accepted the holder's write as a task.
    Accepted {
        write: Unended<I>,
        /// The target's name for the task.
        task: String,
        change: Option<(Action, Cause)>,
    },
    /// The task of this write ended, and the journal says so.
    TaskEnded(I, TaskEnd),
    /// The journal has a write without an end that is not being worked on.
    Found(Unended<I>),
    /// The target may be asked, if it is not being asked yet.
    Asked {
        /// The number of the question.
        number: u64,
    },
    /// The target does not show the write.
    NotFound {
        /// The question that this answers.
        question: u64,
        asked: Time,
        /// The number of the next one.
        next: u64,
    },
    /// The question could not be answered.
    AskFailed {
        question: u64,
        /// The number of the next one.
        next: u64,
    },
    /// The target cannot be asked from here on.
    QuestionsDropped,
    /// It is known how the write ended, and the journal says so.
    Resolved(I, TaskEnd),
    /// The target works on the write.
    Adopted {
        /// Which write, and where it runs.
        write: Unended<I>,
        /// The target's name for the task.
        task: String,
    },
    /// The consumer of the lanes changed.
    ConsumerChanged,
    /// A pass asks about every write in doubt, also where no loop does.
    PassBegins,
}

/// What decides about transitions beside the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who waits for lanes.
    pub consumer: LaneConsumer,
    /// How long the target may need to show a write.
    pub doubt_lasts: Duration,
}

/// How a write ended after its pass, for the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct TaskResult {
    /// The target's name for the task; nothing for a write whose task was never known.
    pub task: Option<String>,
    /// What it did, and why; nothing for one of an earlier process.
    pub change: Option<(Action, Cause)>,
    pub end: TaskEnd,
}

/// What a transition leads to beside the next state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consequence {
    /// Whether a pass should look at the key again.
    pub is_dirty: bool,
    /// What the loop receives.
    pub result: Option<TaskResult>,
    /// When the question in the next state is to be asked.
    pub ask_at: Option<Time>,
    /// Whether a write in doubt is over without a trace: the driver closes it.
    pub is_over: bool,
}

impl<I: Copy + Eq> Operation<I> {
    /// Whether the lane is taken, and with it a place on the node.
    #[must_use]
    pub fn holds_lane(&self) -> bool {
        !matches!(self, Operation::Idle | Operation::Unresolved(_))
    }

    /// The write in doubt that is not being worked on.
    #[must_use]
    pub fn doubt(&self) -> Option<&Doubt<I>> {
        match self {
            Operation::Unresolved(doubt) | Operation::InDoubt { doubt, .. } => Some(doubt),
            _ => None,
        }
    }

    /// All transitions. What cannot happen in a state changes nothing: an answer that comes too late, say.
    #[must_use]
    #[expect(clippy::match_same_arms, reason = "different events, which are read one by one")]
    pub fn advance(self, event: Event<I>, rules: &Rules, now: Time) -> (Self, Consequence) {
        use Operation::{Held, Idle, InDoubt, InFlight, Reserved, Unresolved};
        let mut then = Consequence::default();
        let is_passive = rules.consumer != LaneConsumer::Active;
        let next = match (self, event) {
            (Idle, Event::Offered) => {
                then.is_dirty = true;
                Reserved
            }
            (Reserved, Event::Taken) => Held { by: Holder::Pass, doubt: None },
            (Reserved, Event::Unneeded) => Idle,
            (Reserved, Event::ConsumerChanged) if is_passive => Idle,

            (Idle, Event::Granted) => Held { by: Holder::Command, doubt: None },
            (Unresolved(doubt), Event::Granted) => Held { by: Holder::Command, doubt: Some(doubt) },
            (Held { doubt, .. }, Event::Returned) => doubt.map_or(Idle, Unresolved),

            (Held { by, doubt }, Event::AnswerLost(write)) => {
                Held { by, doubt: Some(write.doubted(doubt, now)) }
            }
            (Held { by, doubt }, Event::Released(write)) => {
                then.is_dirty = by == Holder::Command;
                write.map_or(Idle, |write| in_doubt(write.doubted(doubt, now), rules))
            }
            (Held { .. }, Event::Accepted { write: Unended { step, node }, task, change }) => {
                InFlight { step, node, task, change }
            }

            (InFlight { step, node, task, change }, Event::TaskEnded(ended, end))
                if step == ended =>
            {
                let may_still_run = matches!(end, TaskEnd::GivenUp(_));
                then.ended(Some(task), change, end);
                let doubt = Doubt { step, node, since: now };
                if may_still_run { in_doubt(doubt, rules) } else { Idle }
            }

            (Idle | Reserved, Event::Found(write)) => in_doubt(write.doubted(None, now), rules),
            (Unresolved(doubt), Event::PassBegins) => InDoubt { doubt, question: None },
            (Unresolved(doubt), Event::ConsumerChanged) => in_doubt(doubt, rules),
            (InDoubt { doubt, .. }, Event::ConsumerChanged) if is_passive => Unresolved(doubt),

            (InDoubt { doubt, question: None }, Event::Asked { number }) => {
                then.ask_at = Some(now);
                let question = Question { number, tries: 0, has_failed: false };
                InDoubt { doubt, question: Some(question) }
            }
            (
                InDoubt { doubt, question: Some(last) },
                Event::NotFound { question, asked, next },
            ) if last.number == question => {
                then.is_over = doubt.is_over(asked, rules.doubt_lasts);
                if then.is_over {
                    InDoubt { doubt, question: Some(last) }
                } else {
                    then.ask_at = Some(doubt.next_question(last.tries, now, rules.doubt_lasts));
                    InDoubt { doubt, question: Some(last.next(next, false)) }
                }
            }
            (InDoubt { doubt, question: Some(last) }, Event::AskFailed { question, next })
                if last.number == question =>
            {
                let question = last.next(next, true);
                then.ask_at = Some(now.after(ASK_UNREACHABLE.nth(question.tries)));
                InDoubt { doubt, question: Some(question) }
            }
            (InDoubt { doubt, .. }, Event::QuestionsDropped) => InDoubt { doubt, question: None },

            (InDoubt { doubt, .. } | Unresolved(doubt), Event::Resolved(step, end))
                if doubt.step == step =>
            {
                then.ended(None, None, end);
                Idle
            }
            (Held { by, doubt: Some(doubt) }, Event::Resolved(step, _)) if doubt.step == step => {
                Held { by, doubt: None }
            }
            (InDoubt { doubt, .. } | Unresolved(doubt), Event::Adopted { write, task })
                if doubt.step == write.step =>
            {
                InFlight { step: write.step, node: write.node, task, change: None }
            }
            (unchanged, _) => unchanged,
        };
        (next, then)
    }
}

impl Consequence {
    fn ended(&mut self, task: Option<String>, change: Option<(Action, Cause)>, end: TaskEnd) {
        (self.is_dirty, self.result) = (true, Some(TaskResult { task, change, end }));
    }
}

/// A write in doubt is asked about where a loop will receive the answer; elsewhere its lane is free for commands.
fn in_doubt<I>(doubt: Doubt<I>, rules: &Rules) -> Operation<I> {
    match rules.consumer {
        LaneConsumer::Active => Operation::InDoubt { doubt, question: None },
        LaneConsumer::Paused | LaneConsumer::None => Operation::Unresolved(doubt),
    }
}

/// What the driver has to do.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Effect<K, C, I> {
    /// Hand the lane of a key to the command that waited for it.
    Grant {
        key: K,
        /// The command.
        waiter: C,
    },
    /// Ask the target about a write, at this time.
    Ask {
        key: K,
        /// The journal's name for the write.
        step: I,
        /// The number of the question.
        question: u64,
        at: Time,
    },
}

#[derive(Debug)]
struct Entry<I> {
    operation: Operation<I>,
    /// Whether a pass should look at the key again.
    is_dirty: bool,
    /// How its last write ended, until the loop has received it.
    result: Option<TaskResult>,
}

/// The operations of all keys of a source. `C` is whatever waits for a lane, `I` the journal's name for a write.
pub struct OperationSet<K, C, I> {
    keys: BTreeMap<K, Entry<I>>,
    lanes: Lanes<K, String, C>,
    rules: Rules,
    /// Whether the target can be asked.
    can_ask: bool,
    /// Whether a pass has begun to look: it does not know of keys that become dirty from then on.
    is_looking: bool,
    next_question: u64,
    effects: Vec<Effect<K, C, I>>,
}

impl<K: Key, C, I: Copy + Eq> OperationSet<K, C, I> {
    /// Nothing is under way.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        OperationSet {
            keys: BTreeMap::new(),
            lanes: Lanes::new(limits),
            rules: Rules { consumer: LaneConsumer::None, doubt_lasts: DOUBT },
            can_ask: false,
            is_looking: false,
            next_question: 0,
            effects: Vec::new(),
        }
    }

    /// What the driver has to do since it asked last.
    #[must_use = "what is not done is lost"]
    pub fn take_effects(&mut self) -> Vec<Effect<K, C, I>> {
        std::mem::take(&mut self.effects)
    }

    /// Sets other limits, for what begins from here on.
    pub fn limit(&mut self, limits: Limits) {
        self.lanes.limit(limits);
        self.grant(None);
    }

    /// Queues a command for the lane of a key.
    pub fn submit(&mut self, key: &K, node: String, waiter: C) -> Ticket {
        let ticket = self.lanes.submit(key, node, waiter);
        self.grant(None);
        ticket
    }

    /// Takes a command back that has not got the lane.
    pub fn withdraw(&mut self, key: &K, ticket: Ticket) {
        if self.lanes.withdraw(key, ticket) {
            // What stood behind it may be for a node with room.
            self.grant(None);
        }
    }

    /// A pass takes the lane of a key, if it is free. If not, the key becomes dirty when it is.
    pub fn take(&mut self, key: &K, node: &str, now: Time) -> Result<(), WaitsOn> {
        let entry = self.keys.get(key);
        if self.is_looking && entry.is_some_and(|entry| entry.is_dirty) {
            return Err(WaitsOn::Look);
        }
        if entry.is_some_and(|entry| entry.operation.doubt().is_some()) {
            return Err(WaitsOn::Doubt);
        }
        let is_elsewhere = self.lanes.node_of(key).is_some_and(|reserved| reserved != node);
        if self.is_reserved(key) && is_elsewhere {
            // The key has moved since: the place is not where it is needed.
            self.apply(key, Event::Unneeded, now);
        }
        if !self.is_reserved(key) {
            self.lanes.mark(key, node.to_owned());
            self.grant(Some(key));
        }
        if !self.is_reserved(key) {
            return Err(self.waits_on(key));
        }
        self.apply(key, Event::Taken, now);
        if let Some(entry) = self.keys.get_mut(key) {
            entry.is_dirty = false;
        }
        Ok(())
    }

    fn is_reserved(&self, key: &K) -> bool {
        self.operation(key) == Some(&Operation::Reserved)
    }

    fn waits_on(&self, key: &K) -> WaitsOn {
        match self.operation(key) {
            Some(Operation::InFlight { task, .. }) => WaitsOn::Task(task.clone()),
            Some(Operation::InDoubt { .. } | Operation::Unresolved(_)) => WaitsOn::Doubt,
            Some(Operation::Held { .. }) => WaitsOn::Operation,
            Some(Operation::Idle | Operation::Reserved) | None => WaitsOn::Slot,
        }
    }

    /// Something happened to a key.
    pub fn happened(&mut self, key: &K, event: Event<I>, now: Time) -> Consequence {
        let consequence = self.apply(key, event, now);
        self.grant(None);
        consequence
    }

    /// The target works on a write that was in doubt, on this node. Returns whether it was still in doubt.
    pub fn adopt(&mut self, key: &K, write: Unended<I>, task: String, now: Time) -> bool {
        let doubt = self.operation(key).and_then(Operation::doubt);
        if doubt.is_none_or(|doubt| doubt.step != write.step) {
            return false;
        }
        // It may be at work elsewhere than was thought.
        self.lanes.end(key);
        self.lanes.occupy(key, &write.node);
        self.apply(key, Event::Adopted { write, task }, now);
        self.grant(None);
        true
    }

    /// The target does not show a write, or it could not be asked (`asked` is none). Says whether the doubt is over.
    pub fn unanswered(
        &mut self,
        key: &K,
        question: u64,
        asked: Option<Time>,
        now: Time,
    ) -> Consequence {
        let next = self.number();
        let event = match asked {
            Some(asked) => Event::NotFound { question, asked, next },
            None => Event::AskFailed { question, next },
        };
        self.apply(key, event, now)
    }

    /// The target can be asked, about all writes in doubt.
    pub fn attach(&mut self, doubt_lasts: Duration, now: Time) {
        (self.rules.doubt_lasts, self.can_ask) = (doubt_lasts, true);
        self.for_all(&Event::ConsumerChanged, now);
    }

    /// The target cannot be asked any more; what was asked is stale.
    pub fn detach(&mut self, now: Time) {
        self.can_ask = false;
        self.for_all(&Event::QuestionsDropped, now);
    }

    /// A pass begins: every write in doubt is asked about, also where no loop does. Returns their keys, for which
    /// nothing is sent by this pass.
    pub fn begin_pass(&mut self, now: Time) -> BTreeSet<K> {
        self.for_all(&Event::PassBegins, now);
        let doubts = self.keys.iter().filter(|(_, entry)| entry.operation.doubt().is_some());
        doubts.map(|(key, _)| key.clone()).collect()
    }

    /// A pass ends: reserved lanes that it was offered and did not need are free again.
    pub fn end_pass(&mut self, covers: impl Fn(&K) -> bool, now: Time) {
        self.is_looking = false;
        self.free_reserved(covers, now);
        // Where no loop receives the answers, the next holder of the lane asks.
        self.for_all(&Event::ConsumerChanged, now);
    }

    /// Frees reserved lanes that no pass will come for soon.
    pub fn free_reserved(&mut self, is_free: impl Fn(&K) -> bool, now: Time) {
        let reserved = self
            .keys
            .iter()
            .filter(|(key, entry)| entry.operation == Operation::Reserved && is_free(key));
        let reserved: Vec<K> = reserved.map(|(key, _)| key.clone()).collect();
        for key in reserved {
            self.apply(&key, Event::Unneeded, now);
        }
        self.grant(None);
    }

    /// The consumer of the lanes changed.
    pub fn set_consumer(&mut self, consumer: LaneConsumer, now: Time) {
        self.rules.consumer = consumer;
        if consumer == LaneConsumer::None {
            self.keys.values_mut().for_each(|entry| entry.result = None);
        }
        self.for_all(&Event::ConsumerChanged, now);
        self.is_looking = false;
    }

    /// A look at these keys begins: it sees why they are dirty.
    pub fn look(&mut self, focus: &Focus<K>) {
        self.is_looking = true;
        for (key, entry) in &mut self.keys {
            entry.is_dirty &= !focus.covers(key);
        }
        self.forget_idle();
    }

    /// The keys that a pass should look at again.
    pub fn take_dirty(&mut self) -> BTreeSet<K> {
        let dirty = self.keys.iter_mut().filter(|(_, entry)| entry.is_dirty);
        let dirty = dirty.map(|(key, entry)| {
            entry.is_dirty = false;
            key.clone()
        });
        let dirty = dirty.collect();
        self.forget_idle();
        dirty
    }

    /// Keys become dirty again unless the target works on them: their task may have ended before the pass that sent
    /// it was concluded.
    pub fn requeue_finished<'a>(&mut self, keys: impl Iterator<Item = &'a K>) {
        for key in keys {
            if !matches!(self.operation(key), Some(Operation::InFlight { .. })) {
                self.entry(key).is_dirty = true;
            }
        }
    }

    /// How writes ended since this was asked last.
    pub fn take_results(&mut self) -> BTreeMap<K, TaskResult> {
        let results = self.keys.iter_mut();
        let results =
            results.filter_map(|(key, entry)| Some((key.clone(), entry.result.take()?))).collect();
        self.forget_idle();
        results
    }

    /// The tasks that the target works on.
    #[must_use]
    pub fn in_flight(&self) -> BTreeMap<K, String> {
        let tasks = self.keys.iter().filter_map(|(key, entry)| match &entry.operation {
            Operation::InFlight { task, .. } => Some((key.clone(), task.clone())),
            _ => None,
        });
        tasks.collect()
    }

    /// Whether a task runs, may run and can be asked about, or has ended without the loop knowing its result.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        self.keys.values().any(|entry| {
            let is_open = match &entry.operation {
                Operation::InFlight { .. } => true,
                Operation::InDoubt { question, .. } => question.is_none_or(|it| !it.has_failed),
                _ => false,
            };
            is_open || entry.result.is_some()
        })
    }

    /// The state of a key; nothing if it is idle and has nothing to report.
    #[must_use]
    pub fn operation(&self, key: &K) -> Option<&Operation<I>> {
        self.keys.get(key).map(|entry| &entry.operation)
    }

    /// Whether the lane of a key is free.
    #[must_use]
    pub fn is_free(&self, key: &K) -> bool {
        self.operation(key).is_none_or(|operation| !operation.holds_lane())
    }

    /// The write in doubt that the holder of a key's lane has to see to.
    #[must_use]
    pub fn held_doubt(&self, key: &K) -> Option<&Doubt<I>> {
        match self.operation(key) {
            Some(Operation::Held { doubt, .. }) => doubt.as_ref(),
            _ => None,
        }
    }

    /// Whether a question about a write is still the one that counts.
    #[must_use]
    pub fn is_asked(&self, key: &K, number: u64) -> bool {
        matches!(
            self.operation(key),
            Some(Operation::InDoubt { question: Some(question), .. }) if question.number == number
        )
    }

    /// Whether the target has still to say something about one of these keys, and can.
    #[must_use]
    pub fn awaits_answers(&self, keys: &BTreeSet<K>) -> bool {
        keys.iter().any(|key| {
            matches!(
                self.operation(key),
                Some(Operation::InDoubt { question: Some(question), .. }) if !question.has_failed
            )
        })
    }

    /// How many keys have something running or waiting.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.lanes.len()
    }

    fn number(&mut self) -> u64 {
        self.next_question += 1;
        self.next_question
    }

    fn entry(&mut self, key: &K) -> &mut Entry<I> {
        let idle = || Entry { operation: Operation::Idle, is_dirty: false, result: None };
        self.keys.entry(key.clone()).or_insert_with(idle)
    }

    fn apply(&mut self, key: &K, event: Event<I>, now: Time) -> Consequence {
        let holds_lane = !self.is_free(key);
        self.transition(key, event, holds_lane, now)
    }

    /// One transition, with what follows from it for lane, dirty keys, results and questions. `held` says whether the
    /// lane is taken.
    fn transition(&mut self, key: &K, event: Event<I>, held: bool, now: Time) -> Consequence {
        let rules = self.rules;
        let entry = self.entry(key);
        let before = std::mem::take(&mut entry.operation);
        let (next, consequence) = before.advance(event, &rules, now);
        let holds = next.holds_lane();
        let doubt = next.doubt().map(|doubt| (doubt.step, doubt.node.clone()));
        let number = match &next {
            Operation::InDoubt { question, .. } => question.map(|question| question.number),
            _ => None,
        };
        entry.operation = next;
        entry.is_dirty |= consequence.is_dirty;
        if rules.consumer != LaneConsumer::None && consequence.result.is_some() {
            entry.result.clone_from(&consequence.result);
        }
        if held && !holds {
            self.lanes.end(key);
        }
        let Some((step, node)) = doubt else {
            self.forget_if_idle(key);
            return consequence;
        };
        if holds && !held {
            // It may be running: its place is taken, whatever the limits say.
            self.lanes.occupy(key, &node);
        }
        if let (Some(at), Some(question)) = (consequence.ask_at, number) {
            self.effects.push(Effect::Ask { key: key.clone(), step, question, at });
        } else if holds && number.is_none() && self.can_ask {
            let number = self.number();
            self.apply(key, Event::Asked { number }, now);
        }
        consequence
    }

    fn for_all(&mut self, event: &Event<I>, now: Time) {
        let keys: Vec<K> = self.keys.keys().cloned().collect();
        for key in keys {
            self.apply(&key, event.clone(), now);
        }
        self.grant(None);
    }

    /// Gives out lanes as long as some are free and wanted. A pass gets one only if it asks for it now, or if a loop
    /// will come for it.
    fn grant(&mut self, asks: Option<&K>) {
        while let Some(Start { key, job, .. }) = self.lanes.start() {
            match job {
                Job::Command(waiter) => {
                    self.transition(&key, Event::Granted, true, Time::EPOCH);
                    self.effects.push(Effect::Grant { key, waiter });
                }
                Job::Pass if asks == Some(&key) || self.rules.consumer == LaneConsumer::Active => {
                    self.transition(&key, Event::Offered, true, Time::EPOCH);
                    if self.is_free(&key) {
                        // It is not known how its last write ended: the offer was not taken.
                        self.entry(&key).is_dirty = true;
                    }
                }
                Job::Pass => {
                    self.entry(&key).is_dirty = true;
                    self.lanes.end(&key);
                }
            }
        }
    }

    fn forget_if_idle(&mut self, key: &K) {
        if self.keys.get(key).is_some_and(Entry::is_idle) {
            self.keys.remove(key);
        }
    }

    fn forget_idle(&mut self) {
        self.keys.retain(|_, entry| !entry.is_idle());
    }
}

impl<I: Eq> Entry<I> {
    fn is_idle(&self) -> bool {
        self.operation == Operation::Idle && !self.is_dirty && self.result.is_none()
    }
}
