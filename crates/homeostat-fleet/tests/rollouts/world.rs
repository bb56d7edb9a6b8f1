//! A simulated fleet: a store with revisions, nodes that apply, fail, vanish, return and are slow, and coordinators that
//! see parts of the store late, lose answers, send twice and go on after they were replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use homeostat_fleet::decide::{Act, Expected, Presence, Rollout, Step, Stored, Transaction, View};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::merkle::{Class, Leaf, Tree};
use homeostat_fleet::records::{
    NodePhase, Open, Phase, Record, Request, State, Statement, Status, Take, Verb, Want, Wave, Why,
};
use homeostat_fleet::{Digest, Name, Time};

use crate::dice::Dice;

pub(crate) type Decide = fn(&Rollout, &View, Time) -> Act;

const TTL: Duration = Duration::from_secs(15);
const GENERATION: u64 = 42;

/// All that has happened, in the order of revisions.
pub(crate) struct Event {
    pub(crate) revision: i64,
    pub(crate) time: Time,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Elected,
    Status(Name, Status),
    Act {
        term: i64,
        step: Step,
        state: State,
        wants: Vec<(Name, Want)>,
        /// How many failures about this rollout's documents the coordinator had seen.
        seen_failed: usize,
        /// Nodes that had been absent for too long in its view, or had not answered for too long.
        given_up: BTreeSet<Name>,
    },
}

/// Records as they were read from the bytes that were put: reading them again and again would take most of the time.
#[derive(Default)]
struct Store {
    revision: i64,
    /// Created and last changed, of each key.
    keys: BTreeMap<String, (i64, i64)>,
    state: Option<Stored<State>>,
    wants: BTreeMap<Name, Stored<Want>>,
    statuses: BTreeMap<Name, Status>,
}

impl Store {
    fn put(&mut self, key: &str) {
        let revision = self.revision;
        self.keys.entry(key.to_owned()).or_insert((revision, revision)).1 = revision;
    }

    fn holds(&self, expected: Expected, key: &str) -> bool {
        let entry = self.keys.get(key);
        match expected {
            Expected::Absent => entry.is_none(),
            Expected::Unchanged { revision } => entry.is_some_and(|it| it.1 == revision),
            Expected::Created { revision } => entry.is_some_and(|it| it.0 == revision),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nature {
    Applies,
    Fails,
    /// The document cuts it off; it rolls back and returns.
    CutOff,
    Refuses,
    HeldForAWhile,
}

pub(crate) struct Node {
    pub(crate) leaf: Leaf,
    nature: Nature,
    pub(crate) is_alive: bool,
    /// It never returns.
    pub(crate) is_dead: bool,
    /// The document that it runs, and the last good one.
    pub(crate) running: Digest,
    good: Digest,
    accepted: Option<(u64, Take)>,
    trial: Option<(Want, Time)>,
    pub(crate) status: Option<Status>,
    is_published: bool,
}

struct Coordinator {
    view: View,
}

struct Message {
    term: i64,
    transaction: Transaction,
    seen_failed: usize,
    given_up: BTreeSet<Name>,
}

pub(crate) struct World {
    dice: Dice,
    decide: Decide,
    pub(crate) rollout: Rollout,
    keys: Keys,
    now: Time,
    store: Store,
    pub(crate) nodes: Vec<Node>,
    coordinators: Vec<Coordinator>,
    messages: Vec<Message>,
    request: Request,
    pub(crate) history: Vec<Event>,
    /// Acts that a guard kept from being carried out.
    pub(crate) refused: u64,
}

fn digest(what: &str, number: usize) -> Digest {
    Digest::of(format!("{what} {number}").as_bytes())
}

impl World {
    pub(crate) fn new(seed: u64, decide: Decide) -> Self {
        let mut dice = Dice::new(seed);
        let count = 2 + dice.index(24);
        let leaves: Vec<Leaf> = (0..count)
            .map(|number| Leaf {
                node: format!("n{number}").parse().unwrap(),
                document: digest("new", number),
                fallback: digest("old", number),
                class: Class::Reversible,
            })
            .collect();
        let share = u8::try_from(dice.roll(80)).unwrap();
        let statement = Statement {
            fleet: "edge".parse().unwrap(),
            id: "r1".parse().unwrap(),
            generation: GENERATION,
            not_after: Time::of_millis(u64::MAX / 2),
            root: Tree::new(leaves.iter().map(Leaf::hash)).root(),
            nodes: count as u64,
            waves: vec![Wave::Nodes(1 + dice.roll(3)), Wave::Percent(share), Wave::Percent(100)],
            max_in_flight: 1 + dice.roll(6),
            max_failed: dice.roll(4).saturating_sub(1),
            settle: "1s".parse().unwrap(),
            confirm_within: "5s".parse().unwrap(),
            soak: "20s".parse().unwrap(),
            accept: Vec::new(),
            plan: false,
        };
        let keys = Keys::new(&statement.fleet);
        let bad = if dice.percent(50) { 0 } else { dice.roll(30) };
        let nodes = leaves.iter().map(|leaf| Node {
            leaf: leaf.clone(),
            nature: match dice.roll(100) {
                roll if roll >= bad => match roll {
                    97.. => Nature::HeldForAWhile,
                    _ => Nature::Applies,
                },
                roll if roll % 4 == 0 => Nature::CutOff,
                roll if roll % 4 == 1 => Nature::Refuses,
                _ => Nature::Fails,
            },
            is_alive: !dice.percent(5),
            is_dead: false,
            running: leaf.fallback,
            good: leaf.fallback,
            accepted: None,
            trial: None,
            status: None,
            is_published: true,
        });
        let nodes = nodes.collect();
        let coordinators =
            (0..3).map(|_| Coordinator { view: View { ttl: TTL, ..View::default() } });
        World {
            decide,
            rollout: Rollout::new(statement, leaves).unwrap(),
            keys,
            now: Time::of_millis(1_000_000),
            store: Store::default(),
            nodes,
            coordinators: coordinators.collect(),
            messages: Vec::new(),
            request: Request { verb: Verb::Run, serial: 1, by: String::new() },
            history: Vec::new(),
            refused: 0,
            dice,
        }
    }

    /// A time of faults, then a time without.
    pub(crate) fn run(&mut self) {
        self.elect(0);
        for _ in 0..self.dice.roll(600) {
            self.disturb();
        }
        self.calm();
    }

    fn disturb(&mut self) {
        self.now = self.now.after(Duration::from_millis(self.dice.roll(1500)));
        match self.dice.roll(100) {
            0..2 => {
                let who = self.dice.index(self.coordinators.len());
                self.elect(who);
            }
            2..40 => {
                let who = self.dice.index(self.coordinators.len());
                self.look(who);
                self.send(who);
            }
            40..65 => self.deliver(),
            65 => self.vanish(),
            66..70 => self.come_back(),
            70 => {
                let verb = match self.dice.roll(100) {
                    0..60 => Verb::Run,
                    60..95 => Verb::Pause,
                    _ => Verb::Abort,
                };
                self.ask(verb);
            }
            _ => {
                let node = self.dice.index(self.nodes.len());
                self.step(node);
            }
        }
    }

    /// Faults end: the dead stay dead, everybody else answers. The operator resumes what is paused.
    fn calm(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &self.nodes[index];
            if !node.is_alive && !node.is_dead {
                self.set_alive(index, true);
            }
        }
        if self.request.verb == Verb::Pause {
            self.ask(Verb::Run);
        }
        self.elect(0);
        for _ in 0..400 {
            self.now = self.now.after(Duration::from_secs(3));
            while !self.messages.is_empty() {
                self.deliver();
            }
            (0..self.nodes.len()).for_each(|node| self.step(node));
            self.look_at_all(0);
            if matches!(self.state().and_then(|state| state.why), Some(Why::MostAbsent { .. })) {
                self.ask(Verb::Run);
            }
            if self.send(0) == Act::Finished && self.nodes.iter().all(Node::is_settled) {
                return;
            }
        }
    }

    pub(crate) fn state(&self) -> Option<State> {
        self.store.state.as_ref().map(|stored| stored.record.clone())
    }

    /// The end, for people who look for a mistake.
    pub(crate) fn describe(&self) -> String {
        let state = format!("{:?}\n{:?}\n", self.now, self.state());
        let nodes = self.nodes.iter().map(|node| {
            let want = self.store.wants.get(&node.leaf.node).map(|want| (want.record.take, want.record.at));
            let status = node.status.as_ref().map(|it| (it.take, it.phase, it.since));
            let known = self.coordinators[0].view.presence.get(&node.leaf.node);
            let Node { is_alive, is_dead, is_published, .. } = node;
            let name = &node.leaf.node;
            format!("{name}: alive {is_alive} dead {is_dead} said {is_published} {want:?} {status:?} {known:?}\n")
        });
        std::iter::once(state).chain(nodes).collect()
    }

    fn record(&mut self, kind: Kind) {
        let event = Event { revision: self.store.revision, time: self.now, kind };
        self.history.push(event);
    }

    fn ask(&mut self, verb: Verb) {
        self.request = Request { verb, serial: self.request.serial + 1, by: "ann".to_owned() };
    }

    /// The former leader does not know of it.
    fn elect(&mut self, who: usize) {
        self.store.revision += 1;
        let leader = self.keys.leader();
        self.store.keys.remove(&leader);
        self.store.put(&leader);
        self.coordinators[who].view.term = self.store.revision;
        self.record(Kind::Elected);
        self.look_at_all(who);
    }

    /// Some parts of a view become new, others stay old.
    fn look(&mut self, who: usize) {
        let parts = self.dice.roll(32);
        self.refresh(who, parts);
    }

    fn look_at_all(&mut self, who: usize) {
        self.refresh(who, 31);
    }

    fn refresh(&mut self, who: usize, parts: u64) {
        let view = &mut self.coordinators[who].view;
        if parts & 1 != 0 {
            view.state.clone_from(&self.store.state);
        }
        if parts & 2 != 0 {
            view.request = Some(self.request.clone());
        }
        if parts & 4 != 0 {
            view.wants.clone_from(&self.store.wants);
            view.wants_revision = self.store.revision;
        }
        if parts & 8 != 0 {
            view.statuses.clone_from(&self.store.statuses);
        }
        if parts & 16 != 0 {
            for node in &self.nodes {
                let name = &node.leaf.node;
                let known = view.presence.get(name).copied();
                let presence = match known {
                    _ if node.is_alive => Presence::Alive,
                    Some(Presence::Absent { since }) => Presence::Absent { since },
                    _ => Presence::Absent { since: self.now },
                };
                view.presence.insert(name.clone(), presence);
            }
        }
    }

    fn send(&mut self, who: usize) -> Act {
        let view = &self.coordinators[who].view;
        if view.term == 0 {
            return Act::Wait { until: None };
        }
        let act = (self.decide)(&self.rollout, view, self.now);
        if let Act::Write(transaction) = &act {
            let leaves = self.rollout.leaves();
            let is_failed = |leaf: &&Leaf| {
                view.statuses
                    .get(&leaf.node)
                    .is_some_and(|status| is_failure(status) && status.take == Take::Document)
            };
            let seen_failed = leaves.iter().filter(is_failed).count();
            let is_given_up = |name: &Name| {
                let is_absent = match view.presence.get(name) {
                    Some(Presence::Absent { since }) => self.now.since(*since).as_secs() >= 30,
                    _ => false,
                };
                let wanted = view.wants.get(name).map(|want| want.record.at);
                is_absent || wanted.is_some_and(|at| self.now.since(at).as_secs() >= 126)
            };
            let names = leaves.iter().map(|leaf| leaf.node.clone());
            let given_up = names.filter(is_given_up).collect();
            let (term, transaction) = (view.term, transaction.clone());
            self.messages.push(Message { term, transaction, seen_failed, given_up });
        }
        act
    }

    /// Any message, in any order; some stay and are delivered again.
    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.dice.index(self.messages.len());
        let message = self.messages.swap_remove(at);
        let Message { term, transaction, seen_failed, given_up } = &message;
        let holds = transaction.guards.iter().all(|it| self.store.holds(it.expected, &it.key));
        self.refused += u64::from(!holds);
        if holds && !self.dice.percent(5) {
            self.store.revision += 1;
            let mut wants = Vec::new();
            let mut state = None;
            let revision = self.store.revision;
            for put in &transaction.puts {
                self.store.put(&put.key);
                match self.keys.node_of(&put.key) {
                    Some(node) => wants.push((node, Want::read(&put.value).unwrap())),
                    None => state = Some(State::read(&put.value).unwrap()),
                }
            }
            let (term, step, seen_failed) = (*term, transaction.step, *seen_failed);
            let state = state.expect("every act writes the state");
            self.store.state = Some(Stored { record: state.clone(), revision });
            for (node, record) in wants.iter().cloned() {
                self.store.wants.insert(node, Stored { record, revision });
            }
            let given_up = given_up.clone();
            self.record(Kind::Act { term, step, state, wants, seen_failed, given_up });
        }
        if self.dice.percent(20) {
            self.messages.push(message);
        }
    }

    fn set_alive(&mut self, node: usize, is_alive: bool) {
        self.nodes[node].is_alive = is_alive;
    }

    fn vanish(&mut self) {
        let is_many = self.dice.percent(20);
        let count = if is_many { self.nodes.len() } else { 1 };
        // Of many, few die for good, but for a disaster now and then.
        let deaths = if is_many && self.dice.percent(20) { 80 } else { 5 };
        for _ in 0..count {
            let node = self.dice.index(self.nodes.len());
            self.set_alive(node, false);
            self.nodes[node].is_dead |= self.dice.percent(deaths);
        }
    }

    fn come_back(&mut self) {
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_dead && self.dice.percent(50) {
                self.set_alive(node, true);
            }
        }
    }

    /// A node reads its want, goes on with its trial, and publishes its status.
    fn step(&mut self, index: usize) {
        let name = self.nodes[index].leaf.node.clone();
        let want = self.store.wants.get(&name).map(|stored| stored.record.clone());
        let now = self.now;
        let duration = Duration::from_millis(500 + self.dice.roll(5000));
        let is_released = self.dice.percent(20);
        let node = &mut self.nodes[index];
        if node.is_dead {
            return;
        }
        if node.is_alive
            && let Some(want) = want
            && node.accepted.is_none_or(|accepted| (want.generation, want.take) > accepted)
        {
            node.begin(want, now, duration);
        }
        node.go_on(now, is_released);
        if node.is_alive && !node.is_published {
            let status = node.status.clone().unwrap();
            node.is_published = true;
            self.store.revision += 1;
            let record = Status::read(&status.write()).unwrap();
            self.store.statuses.insert(name.clone(), record);
            self.record(Kind::Status(name, status));
        }
    }
}

pub(crate) fn is_failure(status: &Status) -> bool {
    matches!(status.phase, NodePhase::RolledBack | NodePhase::Refused)
}

impl Node {
    fn begin(&mut self, want: Want, now: Time, duration: Duration) {
        self.accepted = Some((want.generation, want.take));
        let is_new = want.take == Take::Document;
        let document = if is_new { want.document } else { want.fallback };
        let phase = match self.nature {
            Nature::Refuses if is_new => NodePhase::Refused,
            Nature::HeldForAWhile if is_new => NodePhase::Held,
            _ => NodePhase::Trial,
        };
        if phase == NodePhase::Trial {
            self.running = document;
            if is_new && self.nature == Nature::CutOff {
                self.is_alive = false;
            }
        } else {
            // A former trial ends where it was.
            self.running = self.good;
        }
        let status = Status {
            generation: want.generation,
            take: want.take,
            document,
            phase,
            why: String::new(),
            converged: phase != NodePhase::Trial,
            since: now,
            open: Open::default(),
            accepted: want.generation,
            agent: String::new(),
            boot: String::new(),
        };
        let is_waiting = matches!(phase, NodePhase::Trial | NodePhase::Held);
        self.trial = is_waiting.then(|| (want, now.after(duration)));
        self.publish(status);
    }

    fn go_on(&mut self, now: Time, is_released: bool) {
        let Some(status) = self.status.clone() else { return };
        let Some((want, end)) = self.trial.clone() else { return };
        if status.phase == NodePhase::Held {
            if is_released {
                self.running = status.document;
                self.trial = Some((want, now.after(Duration::from_secs(2))));
                self.publish(Status { phase: NodePhase::Trial, ..status });
            }
            return;
        }
        if now < end {
            return;
        }
        self.trial = None;
        let fails = matches!(self.nature, Nature::Fails | Nature::CutOff);
        let phase = if fails && want.take == Take::Document {
            self.running = self.good;
            self.is_alive |= self.nature == Nature::CutOff;
            NodePhase::RolledBack
        } else {
            self.good = self.running;
            NodePhase::Good
        };
        self.publish(Status { phase, converged: true, ..status });
    }

    fn publish(&mut self, status: Status) {
        self.status = Some(status);
        self.is_published = false;
    }

    /// Nothing is under way, and everything was said.
    fn is_settled(&self) -> bool {
        self.is_dead || self.trial.is_none() && self.is_published
    }
}

/// A world whose rollout is over, whatever its end.
pub(crate) fn is_over(world: &World) -> bool {
    world.state().is_some_and(|state| {
        matches!(state.phase, Phase::Done | Phase::Stopped | Phase::Superseded)
    })
}
