//! Operations: every transition by a table, and by chance that nothing is ever sent twice, lost or forgotten.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::cases;
use homeostat_core::operation::{
    Consequence, Doubt, Effect, Event, Holder, Operation, OperationSet, Question, Rules, Unended,
};
use homeostat_core::pacing::Time;
use homeostat_core::{Focus, LaneConsumer, Limits, TaskEnd, TaskResult, Ticket, WaitsOn};
use proptest::prelude::*;

const LASTS: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Time {
    Time::from_epoch(Duration::from_secs(seconds))
}

fn rules(consumer: LaneConsumer) -> Rules {
    Rules { consumer, doubt_lasts: LASTS }
}

fn write(step: u64) -> Unended<u64> {
    Unended { step, node: "n".to_owned() }
}

fn doubt(step: u64, since: u64) -> Doubt<u64> {
    Doubt { step, node: "n".to_owned(), since: at(since) }
}

fn held(by: Holder) -> Operation<u64> {
    Operation::Held { by, doubt: None }
}

fn in_flight(step: u64) -> Operation<u64> {
    let (node, task) = ("n".to_owned(), "t".to_owned());
    Operation::InFlight { step, node, task, change: None }
}

fn in_doubt(step: u64, since: u64, question: Option<u64>) -> Operation<u64> {
    let question = question.map(|number| Question { number, tries: 0, has_failed: false });
    Operation::InDoubt { doubt: doubt(step, since), question }
}

/// What a transition leads to beside the next state, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Also {
    Nothing,
    Dirty,
    Result,
    Ask(Time),
    Over,
}

fn also(consequence: &Consequence) -> Also {
    match consequence {
        Consequence { is_over: true, .. } => Also::Over,
        Consequence { ask_at: Some(at), .. } => Also::Ask(*at),
        Consequence { result: Some(_), is_dirty: true, .. } => Also::Result,
        Consequence { is_dirty: true, .. } => Also::Dirty,
        _ => Also::Nothing,
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn every_transition() {
    use LaneConsumer::{Active, None as Nobody, Paused};
    use Operation::{Idle, Reserved, Unresolved};
    let lost = || Event::Released(Some(write(1)));
    let given_up = || TaskEnd::GivenUp(String::new());
    let unknown = || TaskEnd::Unknown(String::new());
    let accepted = || Event::Accepted { write: write(1), task: "t".to_owned(), change: None };
    let adopted = || Event::Adopted { write: write(1), task: "t".to_owned() };
    let not_found = |asked| Event::NotFound { question: 7, asked: at(asked), next: 8 };
    let asked_again = |has_failed| Operation::InDoubt {
        doubt: doubt(1, 0),
        question: Some(Question { number: 8, tries: 1, has_failed }),
    };
    let command_in_doubt = || Operation::Held { by: Holder::Command, doubt: Some(doubt(1, 0)) };
    let pause = Duration::from_millis(250);
    let table = [
        // A pass waits for its lane, takes it, and lets go of it.
        (Active, Idle, Event::Offered, Reserved, Also::Dirty),
        (Active, Reserved, Event::Taken, held(Holder::Pass), Also::Nothing),
        (Active, Reserved, Event::Unneeded, Idle, Also::Nothing),
        (Active, Reserved, Event::ConsumerChanged, Reserved, Also::Nothing),
        (Paused, Reserved, Event::ConsumerChanged, Idle, Also::Nothing),
        (Active, held(Holder::Pass), Event::Released(None), Idle, Also::Nothing),
        // A command does, and the loop looks at what it did.
        (Active, Idle, Event::Granted, held(Holder::Command), Also::Nothing),
        (Active, held(Holder::Command), Event::Returned, Idle, Also::Nothing),
        (Active, held(Holder::Command), Event::Released(None), Idle, Also::Dirty),
        // The target works on it, and ends.
        (Active, held(Holder::Pass), accepted(), in_flight(1), Also::Nothing),
        (Active, in_flight(1), Event::TaskEnded(1, TaskEnd::Succeeded), Idle, Also::Result),
        (
            Active,
            in_flight(1),
            Event::TaskEnded(2, TaskEnd::Succeeded),
            in_flight(1),
            Also::Nothing,
        ),
        (
            Active,
            in_flight(1),
            Event::TaskEnded(1, given_up()),
            in_doubt(1, 100, None),
            Also::Result,
        ),
        (
            Nobody,
            in_flight(1),
            Event::TaskEnded(1, given_up()),
            Unresolved(doubt(1, 100)),
            Also::Result,
        ),
        // The answer is lost.
        (Active, held(Holder::Pass), lost(), in_doubt(1, 100, None), Also::Nothing),
        (Paused, held(Holder::Pass), lost(), Unresolved(doubt(1, 100)), Also::Nothing),
        (Nobody, held(Holder::Command), lost(), Unresolved(doubt(1, 100)), Also::Dirty),
        (Active, Idle, Event::Found(write(1)), in_doubt(1, 100, None), Also::Nothing),
        (Nobody, Idle, Event::Found(write(1)), Unresolved(doubt(1, 100)), Also::Nothing),
        (Active, held(Holder::Pass), Event::Found(write(1)), held(Holder::Pass), Also::Nothing),
        (Active, in_flight(1), Event::Found(write(1)), in_flight(1), Also::Nothing),
        // Who holds a lane in doubt keeps its time.
        (Nobody, Unresolved(doubt(1, 0)), Event::Granted, command_in_doubt(), Also::Nothing),
        (Nobody, command_in_doubt(), Event::Returned, Unresolved(doubt(1, 0)), Also::Nothing),
        (Nobody, command_in_doubt(), lost(), Unresolved(doubt(1, 0)), Also::Dirty),
        (
            Nobody,
            command_in_doubt(),
            Event::Released(Some(write(2))),
            Unresolved(doubt(2, 100)),
            Also::Dirty,
        ),
        (
            Nobody,
            command_in_doubt(),
            Event::AnswerLost(write(1)),
            command_in_doubt(),
            Also::Nothing,
        ),
        // A pass is not offered what is in doubt.
        (Nobody, Unresolved(doubt(1, 0)), Event::Offered, Unresolved(doubt(1, 0)), Also::Nothing),
        // Where a loop receives the answer, it is asked for.
        (
            Active,
            Unresolved(doubt(1, 0)),
            Event::ConsumerChanged,
            in_doubt(1, 0, None),
            Also::Nothing,
        ),
        (
            Paused,
            in_doubt(1, 0, Some(7)),
            Event::ConsumerChanged,
            Unresolved(doubt(1, 0)),
            Also::Nothing,
        ),
        (Nobody, Unresolved(doubt(1, 0)), Event::PassBegins, in_doubt(1, 0, None), Also::Nothing),
        (
            Active,
            in_doubt(1, 0, None),
            Event::Asked { number: 7 },
            in_doubt(1, 0, Some(7)),
            Also::Ask(at(100)),
        ),
        (
            Active,
            in_doubt(1, 0, Some(7)),
            Event::Asked { number: 8 },
            in_doubt(1, 0, Some(7)),
            Also::Nothing,
        ),
        (
            Active,
            in_doubt(1, 0, Some(7)),
            Event::QuestionsDropped,
            in_doubt(1, 0, None),
            Also::Nothing,
        ),
        // What is not there proves something only if it was asked for after the end of the doubt.
        (
            Active,
            in_doubt(1, 0, Some(7)),
            not_found(29),
            asked_again(false),
            Also::Ask(at(100).after(pause)),
        ),
        (Active, in_doubt(1, 0, Some(7)), not_found(30), in_doubt(1, 0, Some(7)), Also::Over),
        (Active, in_doubt(1, 0, Some(6)), not_found(30), in_doubt(1, 0, Some(6)), Also::Nothing),
        (
            Active,
            in_doubt(1, 0, Some(7)),
            Event::AskFailed { question: 7, next: 8 },
            asked_again(true),
            Also::Ask(at(100).after(pause)),
        ),
        // The end of a doubt.
        (Active, in_doubt(1, 0, Some(7)), Event::Resolved(1, unknown()), Idle, Also::Result),
        (
            Active,
            in_doubt(1, 0, Some(7)),
            Event::Resolved(2, unknown()),
            in_doubt(1, 0, Some(7)),
            Also::Nothing,
        ),
        (Active, in_doubt(1, 0, Some(7)), adopted(), in_flight(1), Also::Nothing),
        (Nobody, Unresolved(doubt(1, 0)), adopted(), in_flight(1), Also::Nothing),
        (
            Nobody,
            command_in_doubt(),
            Event::Resolved(1, unknown()),
            held(Holder::Command),
            Also::Nothing,
        ),
    ];
    for (consumer, from, event, to, consequence) in table {
        let story = format!("{consumer:?}: {from:?} with {event:?}");
        let (next, actual) = from.advance(event, &rules(consumer), at(100));
        assert_eq!(next, to, "{story}");
        assert_eq!(also(&actual), consequence, "{story}");
    }
}

#[test]
fn questions_come_after_growing_pauses_and_one_when_the_doubt_ends() {
    let doubt = doubt(1, 0);
    let (mut now, mut asked) = (at(0), Vec::new());
    for tries in 0.. {
        asked.push(now.since_epoch().as_millis());
        if doubt.is_over(now, LASTS) {
            break;
        }
        now = doubt.next_question(tries, now, LASTS);
    }
    assert_eq!(asked, [0, 250, 750, 1750, 3750, 7750, 12750, 17750, 22750, 27750, 30000]);
}

#[test]
fn what_may_be_running_takes_its_place_on_its_node_and_gives_it_back() {
    let limits = Limits { total: 9, per_node: 1 };
    let mut set = OperationSet::<String, u8, u64>::new(limits);
    let [a, b] = ["a", "b"].map(str::to_owned);
    set.set_consumer(LaneConsumer::Active, at(0));
    set.happened(&a, Event::Found(write(1)), at(0));
    assert_eq!(set.take(&a, "n", at(0)), Err(WaitsOn::Doubt));
    assert_eq!(set.take(&b, "n", at(0)), Err(WaitsOn::Slot));
    set.attach(LASTS, at(0));
    assert!(matches!(&set.take_effects()[..], [Effect::Ask { step: 1, .. }]));
    assert!(set.adopt(&a, write(1), "t".to_owned(), at(1)));
    assert_eq!(set.take(&a, "n", at(0)), Err(WaitsOn::Task("t".to_owned())));
    set.happened(&a, Event::TaskEnded(1, TaskEnd::Succeeded), at(2));
    assert_eq!(set.take_dirty(), [a.clone(), b.clone()].into());
    let (task, end) = (Some("t".to_owned()), TaskEnd::Succeeded);
    let ended = TaskResult { task, change: None, end };
    assert_eq!(set.take_results(), [(a.clone(), ended)].into());
    // Both waited, and the lane of the first came free.
    assert_eq!((set.take(&b, "n", at(2)), set.take(&a, "n", at(2))), (Ok(()), Err(WaitsOn::Slot)));
    set.happened(&b, Event::Released(None), at(3));
    assert_eq!(set.take(&a, "n", at(3)), Ok(()));
}

#[test]
fn a_pass_does_not_write_to_what_ended_after_its_look() {
    let mut set = OperationSet::<String, u8, u64>::new(Limits { total: 9, per_node: 9 });
    let key = "a".to_owned();
    set.set_consumer(LaneConsumer::Active, at(0));
    set.take(&key, "n", at(0)).unwrap();
    let accepted = Event::Accepted { write: write(1), task: "t".to_owned(), change: None };
    set.happened(&key, accepted, at(0));
    set.look(&Focus::All);
    set.happened(&key, Event::TaskEnded(1, TaskEnd::Succeeded), at(1));
    assert_eq!(set.take(&key, "n", at(1)), Err(WaitsOn::Look));
    set.end_pass(|_| true, at(1));
    set.look(&Focus::All);
    assert_eq!(set.take(&key, "n", at(2)), Ok(()));
}

/// What a test driver and a target do by chance.
#[derive(Clone, Debug)]
enum Act {
    /// A pass tries to take the lane of a key.
    Take(u32),
    /// The holder of the lane of a key sends a write, unless it has to ask first.
    Send(u32, Fate),
    /// The holder of the lane releases it.
    Release(u32),
    Submit(u32),
    Withdraw(usize),
    Consumer(LaneConsumer),
    Attach,
    Detach,
    Look,
    EndPass,
    /// The process dies, and another one reads its journal.
    Crash,
    /// Time passes, and questions that are due are answered, or not.
    Pass {
        millis: u64,
        answers: bool,
    },
}

/// What becomes of a write: whether it arrives, when its task begins and how long it takes, and whether the answer comes.
#[derive(Clone, Copy, Debug)]
struct Fate {
    arrives: bool,
    begins_after: u64,
    takes: u64,
    is_answered: bool,
}

const KEYS: u32 = 3;
/// Longer than any write takes to begin.
const DOUBT: u64 = 1000;

fn fate() -> impl Strategy<Value = Fate> {
    (any::<bool>(), 0..DOUBT, 0..500_u64, any::<bool>()).prop_map(
        |(arrives, begins_after, takes, is_answered)| Fate {
            arrives: arrives || is_answered,
            begins_after,
            takes,
            is_answered,
        },
    )
}

fn act() -> impl Strategy<Value = Act> {
    let consumer = prop_oneof![
        3 => Just(LaneConsumer::Active),
        1 => Just(LaneConsumer::Paused),
        1 => Just(LaneConsumer::None),
    ];
    prop_oneof![
        6 => (0..KEYS).prop_map(Act::Take),
        6 => (0..KEYS, fate()).prop_map(|(key, fate)| Act::Send(key, fate)),
        4 => (0..KEYS).prop_map(Act::Release),
        2 => (0..KEYS).prop_map(Act::Submit),
        1 => (0..10_usize).prop_map(Act::Withdraw),
        1 => consumer.prop_map(Act::Consumer),
        2 => Just(Act::Attach),
        1 => Just(Act::Detach),
        1 => Just(Act::Look),
        2 => Just(Act::EndPass),
        1 => Just(Act::Crash),
        6 => (0..400_u64, prop_oneof![3 => Just(true), 1 => Just(false)]).prop_map(|(millis, answers)| Act::Pass { millis, answers }),
    ]
}

/// A write that has arrived: its task begins and ends by itself.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    step: u64,
    begins: u64,
    ends: u64,
}

/// A driver with a journal, and a target.
struct Driver {
    set: OperationSet<u32, Ticket, u64>,
    limits: Limits,
    now: u64,
    steps: u64,
    /// The journal: the open step of each key.
    open: BTreeMap<u32, u64>,
    /// What has arrived of each key, the newest last.
    target: BTreeMap<u32, Vec<Arrived>>,
    asks: Vec<(u64, u32, u64, u64)>,
    /// Commands that wait, by their place in `tickets`.
    tickets: Vec<(u32, Ticket)>,
    /// Keys that should become dirty, because of something that ended.
    owed: BTreeSet<u32>,
}

fn node(key: u32) -> String {
    format!("n{}", key % 2)
}

impl Driver {
    fn new(limits: Limits) -> Self {
        Driver {
            set: OperationSet::new(limits),
            limits,
            now: 0,
            steps: 0,
            open: BTreeMap::new(),
            target: BTreeMap::new(),
            asks: Vec::new(),
            tickets: Vec::new(),
            owed: BTreeSet::new(),
        }
    }

    fn time(&self) -> Time {
        Time::from_epoch(Duration::from_millis(self.now))
    }

    fn unended(&self, key: u32) -> Option<Unended<u64>> {
        self.open.get(&key).map(|step| Unended { step: *step, node: node(key) })
    }

    fn holder(&self, key: u32) -> Option<(Holder, Option<Doubt<u64>>)> {
        match self.set.operation(&key) {
            Some(Operation::Held { by, doubt }) => Some((*by, doubt.clone())),
            _ => None,
        }
    }

    /// How many lanes are taken on a node, and in all.
    fn taken(&self, on: &str) -> (usize, usize) {
        let is_held = |key: &u32| !self.set.is_free(key);
        let on_node = (0..KEYS).filter(|key| node(*key) == on && is_held(key)).count();
        (on_node, (0..KEYS).filter(is_held).count())
    }

    /// Lanes are granted within the limits.
    fn check_limits(&self, key: u32) {
        let (on_node, in_all) = self.taken(&node(key));
        assert!(on_node <= self.limits.per_node && in_all <= self.limits.total);
    }

    fn effects(&mut self) {
        for effect in self.set.take_effects() {
            match effect {
                Effect::Grant { key, waiter } => {
                    self.tickets.retain(|(_, ticket)| *ticket != waiter);
                    self.check_limits(key);
                }
                Effect::Ask { key, step, question, at } => {
                    let at = u64::try_from(at.since_epoch().as_millis()).unwrap();
                    self.asks.push((at, key, step, question));
                }
            }
        }
    }

    /// A key has one write under way, in the target's own view too.
    fn send(&mut self, key: u32, fate: Fate) {
        let Some((by, doubt)) = self.holder(key) else { return };
        assert!(doubt.is_none() || by == Holder::Command, "a pass never holds a lane in doubt");
        if self.open.contains_key(&key) {
            // It has to ask first, or waits for the answer to what it has sent.
            return;
        }
        self.steps += 1;
        let (step, now) = (self.steps, self.now);
        self.open.insert(key, step);
        let arrived = self.target.entry(key).or_default();
        assert!(arrived.iter().all(|write| write.ends <= now), "two writes: {arrived:?} at {now}");
        let begins = if fate.is_answered { now } else { now + fate.begins_after };
        if fate.arrives {
            arrived.push(Arrived { step, begins, ends: begins + fate.takes });
        }
        if fate.is_answered {
            let write = Unended { step, node: node(key) };
            let event = Event::Accepted { write, task: step.to_string(), change: None };
            self.set.happened(&key, event, self.time());
        }
    }

    fn release(&mut self, key: u32) {
        if let Some((by, _)) = self.holder(key) {
            if by == Holder::Command {
                self.owed.insert(key);
            }
            let open = self.unended(key);
            self.set.happened(&key, Event::Released(open), self.time());
        }
    }

    /// Tasks that have ended by now are over, as their followers report.
    fn tasks_end(&mut self) {
        for (key, _) in self.set.in_flight() {
            let step = self.open[&key];
            let is_over = self.target[&key].last().is_some_and(|write| write.ends <= self.now);
            if is_over {
                self.open.remove(&key);
                self.owed.insert(key);
                let event = Event::TaskEnded(step, TaskEnd::Succeeded);
                self.set.happened(&key, event, self.time());
            }
        }
    }

    fn answer(&mut self, (at, key, step, question): (u64, u32, u64, u64), answers: bool) {
        if !self.set.is_asked(&key, question) {
            return;
        }
        assert!(at <= self.now);
        let found = self.target.get(&key).and_then(|all| all.last()).filter(|it| it.step == step);
        let resolved = match found.filter(|write| write.begins <= self.now) {
            _ if !answers => {
                self.set.unanswered(&key, question, None, self.time());
                None
            }
            None => {
                let asked = Some(self.time());
                let over = self.set.unanswered(&key, question, asked, self.time()).is_over;
                over.then(|| TaskEnd::Unknown(String::new()))
            }
            Some(write) if write.ends > self.now => {
                let write = Unended { step, node: node(key) };
                assert!(self.set.adopt(&key, write, step.to_string(), self.time()));
                None
            }
            Some(_) => Some(TaskEnd::Succeeded),
        };
        if let Some(end) = resolved {
            self.open.remove(&key);
            self.owed.insert(key);
            self.set.happened(&key, Event::Resolved(step, end), self.time());
        }
    }

    /// Time passes in small steps, so that everything happens when it is due.
    fn pass(&mut self, millis: u64, answers: bool) {
        for _ in 0..millis.div_ceil(50) {
            self.now += 50;
            self.tasks_end();
            let (due, later): (Vec<_>, _) =
                std::mem::take(&mut self.asks).into_iter().partition(|(at, ..)| *at <= self.now);
            self.asks = later;
            for ask in due {
                self.answer(ask, answers);
                self.effects();
            }
        }
    }

    /// Commands ask about what is in doubt, as long as it takes, and then let go.
    fn settle_command(&mut self, key: u32) {
        let Some((Holder::Command, _)) = self.holder(key) else { return };
        if let Some(write) = self.unended(key) {
            self.set.happened(&key, Event::AnswerLost(write), self.time());
            let doubt = self.set.held_doubt(&key).cloned().unwrap();
            self.now =
                self.now.max(DOUBT + u64::try_from(doubt.since.since_epoch().as_millis()).unwrap());
            let ends = self.target.get(&key).and_then(|all| all.last()).map_or(0, |last| last.ends);
            self.now = self.now.max(ends);
            assert!(doubt.is_over(self.time(), Duration::from_millis(DOUBT)));
            self.open.remove(&key);
        }
        self.release(key);
    }

    fn do_it(&mut self, act: &Act) {
        let now = self.time();
        match act {
            Act::Take(key) => {
                if self.set.take(key, &node(*key), now).is_ok() {
                    self.owed.remove(key);
                    assert_eq!(self.open.get(key), None, "nothing is known to be open");
                    self.check_limits(*key);
                }
            }
            Act::Send(key, fate) => self.send(*key, *fate),
            Act::Release(key) => self.release(*key),
            Act::Submit(key) => {
                // The waiter is known by the ticket that it will get: they are counted.
                let ticket = self.set.submit(key, node(*key), Ticket::default());
                let granted = self.set.take_effects();
                let is_granted =
                    granted.iter().any(|effect| matches!(effect, Effect::Grant { .. }));
                if is_granted {
                    self.check_limits(*key);
                } else {
                    self.tickets.push((*key, ticket));
                }
            }
            Act::Withdraw(at) => {
                if let Some((key, ticket)) = self.tickets.get(*at).copied() {
                    self.tickets.remove(*at);
                    self.set.withdraw(&key, ticket);
                }
            }
            Act::Consumer(consumer) => self.set.set_consumer(*consumer, now),
            Act::Attach => self.set.attach(Duration::from_millis(DOUBT), now),
            Act::Detach => self.set.detach(now),
            Act::Look => {
                self.set.look(&Focus::All);
                self.owed.clear();
            }
            Act::EndPass => self.set.end_pass(|_| true, now),
            Act::Crash => {
                self.set = OperationSet::new(self.limits);
                (self.asks, self.tickets) = (Vec::new(), Vec::new());
                self.owed.clear();
                self.set.set_consumer(LaneConsumer::Active, now);
                for key in 0..KEYS {
                    if let Some(write) = self.unended(key) {
                        self.set.happened(&key, Event::Found(write), now);
                    }
                }
            }
            Act::Pass { millis, answers } => self.pass(*millis, *answers),
        }
        self.effects();
        let dirty = self.set.take_dirty();
        self.owed.retain(|key| !dirty.contains(key));
        assert_eq!(self.owed, BTreeSet::new(), "a wakeup was lost after {act:?}");
    }

    /// A loop is there, everybody can be asked, and everything comes to its end.
    fn drain(&mut self) {
        self.do_it(&Act::Consumer(LaneConsumer::Active));
        self.do_it(&Act::Attach);
        for _ in 0..100 {
            for key in 0..KEYS {
                self.settle_command(key);
                self.release(key);
            }
            self.effects();
            self.pass(500, true);
            self.set.end_pass(|_| true, self.time());
            self.effects();
        }
        assert_eq!(
            self.set.busy(),
            0,
            "{:?}",
            (0..KEYS).map(|key| self.set.operation(&key)).collect::<Vec<_>>()
        );
        assert_eq!(self.open, BTreeMap::new(), "every write has an end");
    }
}

proptest! {
    #![proptest_config(cases(512))]

    /// At most one write of a key is under way, in the target's own view; none is sent again while the one before may
    /// still begin; lanes are granted within the limits; every end wakes a waiter; and in the end nothing is left.
    #[test]
    fn nothing_is_sent_twice_lost_or_forgotten(
        acts in proptest::collection::vec(act(), 0..120),
        total in 1..6_usize,
        per_node in 1..4_usize,
    ) {
        let mut driver = Driver::new(Limits { total, per_node });
        driver.do_it(&Act::Consumer(LaneConsumer::Active));
        driver.do_it(&Act::Attach);
        for act in &acts {
            driver.do_it(act);
        }
        driver.drain();
    }
}
