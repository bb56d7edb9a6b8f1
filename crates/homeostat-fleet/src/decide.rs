//! What the coordinator does next in a rollout. Pure: all state is in the store, `now` is an argument.
//!
//! [`decide`] looks at everything that is known and returns one [`Act`]. An act that writes is one transaction: it holds
//! only if the coordinator still leads and if nothing that it writes has changed since it was read. Every act writes the
//! state of the rollout, so of two acts that were decided on the same state only one can be carried out, and an act that
//! is sent again does nothing. So a view may be old: it can delay a rollout, but not break it.
//!
//! The questions are asked in this order, each time anew: Is it over? Does a node belong to a newer rollout? Was an abort
//! or a pause asked for? Is the store behind a node? Have too many nodes reported a failure? Is most of the wave absent? Are
//! too many nodes lost? What can be assigned? Is the wave complete, and has it soaked?

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::keys::Keys;
use crate::merkle::{Leaf, Tree};
use crate::records::{
    Counts, NodePhase, Phase, Record, Request, State, Statement, Status, Take, Verb, Want, Why,
};
use crate::{Error, Name, Time};

/// A transaction has two operations for each want, and etcd takes 128.
pub const MOST_WANTS: usize = 60;

/// A node that is alive may take this long for everything but its trial: fetching, a pass, the answer.
const ANSWER: Duration = Duration::from_mins(2);

/// Fewer absent nodes than this are never a fault of the store or the network.
const FEWEST_ABSENT: usize = 3;

/// How many nodes a reason names.
const NAMED: usize = 10;

/// A statement with the leaves of its tree, in order.
#[derive(Clone, Debug)]
pub struct Rollout {
    statement: Statement,
    leaves: Vec<Leaf>,
    tree: Tree,
    /// Where each wave ends among the leaves.
    ends: Vec<usize>,
    keys: Keys,
}

impl Rollout {
    /// Refuses leaves that are not those of the signed root.
    pub fn new(statement: Statement, leaves: Vec<Leaf>) -> Result<Self, Error> {
        let tree = Tree::new(leaves.iter().map(Leaf::hash));
        if leaves.len() as u64 != statement.nodes || tree.root() != statement.root {
            let why = "its leaves are not those of the signed root".to_owned();
            return Err(Error::Invalid { record: "rollout", why });
        }
        let mut names = BTreeSet::new();
        if let Some(twin) = leaves.iter().find(|leaf| !names.insert(&leaf.node)) {
            return Err(Error::TwinNode { node: twin.node.clone() });
        }
        // No end is behind the number of leaves.
        let ends = statement.wave_ends().into_iter();
        let ends = ends.map(|end| usize::try_from(end).unwrap_or(leaves.len())).collect();
        let keys = Keys::new(&statement.fleet);
        Ok(Rollout { statement, leaves, tree, ends, keys })
    }

    #[must_use]
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    #[must_use]
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The nodes of one wave, without those of earlier ones.
    #[must_use]
    pub fn wave(&self, wave: usize) -> &[Leaf] {
        let end = self.ends.get(wave).copied().unwrap_or(self.leaves.len());
        self.leaves.get(self.start(wave)..end).unwrap_or_default()
    }

    /// The index of the first node of a wave.
    fn start(&self, wave: usize) -> usize {
        let former = wave.checked_sub(1);
        former.map_or(0, |wave| self.ends.get(wave).copied().unwrap_or(self.leaves.len()))
    }

    fn want(&self, index: usize, leaf: &Leaf, take: Take, now: Time) -> Want {
        Want {
            rollout: self.statement.id.clone(),
            generation: self.statement.generation,
            take,
            document: leaf.document,
            fallback: leaf.fallback,
            class: leaf.class,
            index: index as u64,
            proof: self.tree.proof(index).unwrap_or_default(),
            at: now,
        }
    }
}

/// What a coordinator knows. Parts of it may be older than others.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The create revision of the leader's key, while it is this coordinator's.
    pub term: i64,
    pub state: Option<Stored<State>>,
    pub request: Option<Request>,
    pub wants: BTreeMap<Name, Stored<Want>>,
    /// Nodes whose want cannot be understood, and why. They are not in `wants`.
    pub unreadable: BTreeMap<Name, String>,
    /// Up to which revision `wants` is complete. While the state is newer, nothing is decided: wants that an act wrote
    /// together with that state might be missing.
    pub wants_revision: i64,
    pub statuses: BTreeMap<Name, Status>,
    /// Who is not named here is absent, and has been so all the time.
    pub presence: BTreeMap<Name, Presence>,
    /// Of the key by which a node says that it is alive.
    pub ttl: Duration,
}

/// A record and the revision of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<R> {
    pub record: R,
    pub revision: i64,
}

/// Whether a node's key of life is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Alive,
    /// Not since then, as far as this coordinator knows: its own start, if it never saw the node.
    Absent {
        since: Time,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Write(Transaction),
    /// Nothing to do until something changes, or until then.
    Wait {
        until: Option<Time>,
    },
    /// The rollout is over.
    Finished,
}

/// Carried out as a whole, if all guards hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub step: Step,
    pub guards: Vec<Guard>,
    pub puts: Vec<Put>,
}

/// What an act does, for logs and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    Start,
    Assign,
    CompleteWave,
    NextWave,
    Finish,
    Pause,
    Resume,
    /// Nodes that the operator does not want to wait for.
    SetAside,
    /// It says what it waits for.
    Wait,
    Stop,
    FallBack,
    FinishStop,
    Supersede,
}

/// What must hold of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    pub key: String,
    pub expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    /// Not changed since this revision.
    Unchanged {
        revision: i64,
    },
    /// Created at this revision: the term of a leader.
    Created {
        revision: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: String,
    pub value: Vec<u8>,
}

/// The next act of a rollout.
#[must_use]
pub fn decide(rollout: &Rollout, view: &View, now: Time) -> Act {
    let Some(stored) = &view.state else {
        // Nothing of this rollout exists yet, so there is nothing to say about it.
        let is_newer = view.newer(rollout).is_some();
        return if is_newer {
            Act::Wait { until: None }
        } else {
            start(&rollout.statement, view, None)
        };
    };
    let state = &stored.record;
    let verb = view.request.as_ref().map_or(Verb::Run, |request| request.verb);
    if matches!(state.phase, Phase::Stopped | Phase::Superseded) {
        return Act::Finished;
    }
    if view.wants_revision < stored.revision {
        return Act::Wait { until: None };
    }
    let newer = view.newer(rollout);
    if state.phase == Phase::Done && verb != Verb::Abort && newer.is_none() {
        return Act::Finished;
    }
    let decision = Decision::new(rollout, view, now, stored);
    match state.phase {
        // Nodes that belong to a newer rollout are left to it.
        Phase::Stopping => return decision.fall_back(),
        _ if newer.is_some() => return decision.enter(Step::Supersede, Phase::Superseded, newer),
        Phase::Running | Phase::Paused | Phase::Done if verb == Verb::Abort => {
            return decision.enter(Step::Stop, Phase::Stopping, Some(Why::Asked));
        }
        Phase::Stopped | Phase::Superseded | Phase::Done => return Act::Finished,
        Phase::Running | Phase::Paused => {}
    }
    if let Some(why) = decision.reason_to_pause(verb) {
        return decision.pause(why);
    }
    if let Some(why) = decision.too_many_failed(Lost::Ignored) {
        return decision.enter(Step::Stop, Phase::Stopping, Some(why));
    }
    if let Some(absent) = decision.most_absent() {
        return decision.pause_for_absent(absent);
    }
    if let Some(why) = decision.too_many_failed(Lost::Counted) {
        return decision.enter(Step::Stop, Phase::Stopping, Some(why));
    }
    if state.phase == Phase::Paused {
        return decision.enter(Step::Resume, Phase::Running, None);
    }
    decision.advance()
}

/// The next act of a rollout that cannot be followed, which says why.
#[must_use]
pub fn cannot_follow(statement: &Statement, view: &View, why: &str) -> Act {
    let why = Some(Why::Unusable { why: why.to_owned() });
    let Some(Stored { record, revision }) = &view.state else {
        return start(statement, view, why);
    };
    // What is stopping goes on with that once it can be followed again.
    if !matches!(record.phase, Phase::Running | Phase::Paused) || record.why == why {
        return Act::Wait { until: None };
    }
    let acts = record.acts + 1;
    let state = State { phase: Phase::Paused, why, acts, ..record.clone() };
    let keys = Keys::new(&statement.fleet);
    let key = keys.state(&statement.id);
    let expected = Expected::Unchanged { revision: *revision };
    let guards = vec![view.leads(&keys), Guard { key: key.clone(), expected }];
    let put = Put { key, value: state.write() };
    Act::Write(Transaction { step: Step::Pause, guards, puts: vec![put] })
}

/// One that cannot go on begins with a pause, and the reason for it.
fn start(statement: &Statement, view: &View, why: Option<Why>) -> Act {
    let Statement { id, generation, nodes, .. } = statement;
    let (phase, step) = match why {
        None => (Phase::Running, Step::Start),
        Some(_) => (Phase::Paused, Step::Pause),
    };
    let state = State {
        rollout: id.clone(),
        generation: *generation,
        phase,
        wave: 0,
        complete: None,
        why,
        set_aside: BTreeSet::new(),
        request: view.request.as_ref().map_or(0, |request| request.serial),
        acts: 1,
        counts: Counts { nodes: *nodes, ..Counts::default() },
    };
    let keys = Keys::new(&statement.fleet);
    let guard = Guard { key: keys.state(id), expected: Expected::Absent };
    let put = Put { key: keys.state(id), value: state.write() };
    let guards = vec![view.leads(&keys), guard];
    Act::Write(Transaction { step, guards, puts: vec![put] })
}

impl View {
    fn leads(&self, keys: &Keys) -> Guard {
        Guard { key: keys.leader(), expected: Expected::Created { revision: self.term } }
    }

    /// A node of this rollout that belongs to a newer one.
    fn newer(&self, rollout: &Rollout) -> Option<Why> {
        rollout.leaves.iter().find_map(|leaf| {
            let generation = self.wants.get(&leaf.node)?.record.generation;
            let is_newer = generation > rollout.statement.generation;
            is_newer.then(|| Why::Newer { node: leaf.node.clone(), generation })
        })
    }
}

/// Where a node is with what its want says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It has no want of this rollout.
    Untouched,
    Pending,
    /// A person or a window at the node holds it.
    Held,
    Good {
        converged: bool,
    },
    /// It reported a failure.
    Failed,
}

/// Whether nodes that say nothing count as failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Counted,
    Ignored,
}

struct Decision<'a> {
    rollout: &'a Rollout,
    view: &'a View,
    now: Time,
    stored: &'a Stored<State>,
    /// In the order of the leaves.
    nodes: Vec<Node<'a>>,
}

/// What is known of one node.
struct Node<'a> {
    index: usize,
    leaf: &'a Leaf,
    /// Of this rollout.
    take: Option<Take>,
    progress: Progress,
    is_alive: bool,
    is_set_aside: bool,
    /// Absent for two times of its lease.
    is_lost: bool,
    /// When it should have answered, or will be lost.
    deadline: Option<Time>,
    /// Lost, or alive without an answer for too long.
    is_given_up: bool,
}

impl Node<'_> {
    /// Touched, neither done nor failed, and not given up.
    fn is_in_flight(&self) -> bool {
        let is_away = self.is_set_aside && !self.is_alive;
        self.progress == Progress::Pending && !is_away && !self.is_given_up
    }
}

impl<'a> Decision<'a> {
    fn new(rollout: &'a Rollout, view: &'a View, now: Time, stored: &'a Stored<State>) -> Self {
        let mut decision = Decision { rollout, view, now, stored, nodes: Vec::new() };
        let leaves = rollout.leaves.iter().enumerate();
        decision.nodes = leaves.map(|(index, leaf)| decision.node(index, leaf)).collect();
        decision
    }

    fn node(&self, index: usize, leaf: &'a Leaf) -> Node<'a> {
        let Statement { generation, settle, confirm_within, .. } = &self.rollout.statement;
        let want = self.view.wants.get(&leaf.node).map(|want| &want.record);
        let want = want.filter(|want| want.generation == *generation);
        let take = want.map(|want| want.take);
        let lost_at = match self.view.presence.get(&leaf.node) {
            Some(Presence::Alive) => None,
            Some(Presence::Absent { since }) => Some(since.after(2 * self.view.ttl)),
            None => Some(Time::default()),
        };
        let is_over = |time: Option<Time>| time.is_some_and(|time| self.now > time);
        let answer = want.map(|want| want.at.after(settle.get() + confirm_within.get() + ANSWER));
        Node {
            index,
            leaf,
            take,
            progress: self.progress(leaf, take),
            is_alive: lost_at.is_none(),
            is_set_aside: self.state().set_aside.contains(&leaf.node),
            is_lost: is_over(lost_at),
            deadline: answer.into_iter().chain(lost_at).min(),
            is_given_up: is_over(lost_at) || is_over(answer),
        }
    }

    fn progress(&self, leaf: &Leaf, take: Option<Take>) -> Progress {
        let Some(take) = take else { return Progress::Untouched };
        let document = match take {
            Take::Document => leaf.document,
            Take::Fallback => leaf.fallback,
        };
        let generation = self.rollout.statement.generation;
        // A status about anything else says nothing about this want.
        let about = |status: &&Status| {
            (status.generation, status.take, status.document) == (generation, take, document)
        };
        match self.view.statuses.get(&leaf.node).filter(about) {
            None => Progress::Pending,
            Some(status) => match status.phase {
                NodePhase::Trial | NodePhase::Stale => Progress::Pending,
                NodePhase::Held => Progress::Held,
                NodePhase::Good => Progress::Good { converged: status.converged },
                NodePhase::RolledBack | NodePhase::Refused => Progress::Failed,
            },
        }
    }

    fn state(&self) -> &'a State {
        &self.stored.record
    }

    /// The nodes of the current wave.
    fn wave(&self) -> &[Node<'a>] {
        let start = self.rollout.start(self.state().wave);
        let end = start + self.rollout.wave(self.state().wave).len();
        self.nodes.get(start..end).unwrap_or_default()
    }

    fn reason_to_pause(&self, verb: Verb) -> Option<Why> {
        if verb == Verb::Pause {
            return Some(Why::Asked);
        }
        let unreadable = self.nodes.iter().find_map(|node| {
            let why = self.view.unreadable.get(&node.leaf.node)?.clone();
            Some(Why::Unreadable { node: node.leaf.node.clone(), why })
        });
        if unreadable.is_some() {
            return unreadable;
        }
        let Statement { generation, not_after, .. } = &self.rollout.statement;
        let behind = self.nodes.iter().find_map(|node| {
            let accepted = self.view.statuses.get(&node.leaf.node)?.accepted;
            let node = node.leaf.node.clone();
            (accepted > *generation).then_some(Why::StoreBehind { node, accepted })
        });
        let expired = Why::Expired { since: *not_after };
        let has_more = || self.nodes.iter().any(|node| node.take.is_none());
        behind.or_else(|| (self.now > *not_after && has_more()).then_some(expired))
    }

    /// Nodes that were touched and have failed, if they are too many. Good nodes that are lost count in the current wave only:
    /// machines die for other reasons, too.
    fn too_many_failed(&self, lost: Lost) -> Option<Why> {
        let start = self.rollout.start(self.state().wave);
        let is_failed = |node: &&Node| match node.progress {
            Progress::Failed => true,
            Progress::Untouched | Progress::Held => false,
            _ if lost == Lost::Ignored || node.is_set_aside => false,
            Progress::Pending => node.is_given_up,
            Progress::Good { .. } => node.index >= start && node.is_lost,
        };
        let failed: Vec<&Name> =
            self.nodes.iter().filter(is_failed).map(|node| &node.leaf.node).collect();
        let count = failed.len() as u64;
        let nodes = failed.into_iter().take(NAMED).cloned().collect();
        (count > self.rollout.statement.max_failed).then_some(Why::Failed { count, nodes })
    }

    /// The absent nodes of the wave that nobody has set aside, if they are most of it.
    fn most_absent(&self) -> Option<Vec<&Name>> {
        let counted = self.wave().iter().filter(|node| !node.is_set_aside);
        let absent = counted.clone().filter(|node| !node.is_alive);
        let absent: Vec<&Name> = absent.map(|node| &node.leaf.node).collect();
        let is_most = absent.len() >= FEWEST_ABSENT && absent.len() * 2 > counted.count();
        is_most.then_some(absent)
    }

    fn pause_for_absent(&self, absent: Vec<&Name>) -> Act {
        let state = self.state();
        // A request to run that came after the pause says: go on without them.
        let request = self.view.request.as_ref().map_or(0, |request| request.serial);
        let is_paused = matches!(state.why, Some(Why::MostAbsent { .. }));
        if is_paused && request > state.request {
            let mut state = State { request, ..state.clone() };
            state.set_aside.extend(absent.into_iter().cloned());
            return self.write(Step::SetAside, state, Vec::new());
        }
        let why = Why::MostAbsent { absent: absent.len() as u64, wave: self.wave().len() as u64 };
        if is_paused { Act::Wait { until: None } } else { self.pause(why) }
    }

    fn pause(&self, why: Why) -> Act {
        let State { phase, why: known, .. } = self.state();
        if *phase == Phase::Paused && known.as_ref() == Some(&why) {
            return Act::Wait { until: None };
        }
        self.enter(Step::Pause, Phase::Paused, Some(why))
    }

    /// Assigns what may be assigned; else completes the wave, lets it soak, and opens the next one.
    fn advance(&self) -> Act {
        if let Some(act) = self.assign() {
            return act;
        }
        let state = self.state();
        // Who was given up is within the number that may fail, or it would have stopped the rollout.
        let is_done = |node: &Node| node.take.is_some() && !node.is_in_flight();
        if !self.wave().iter().all(is_done) {
            return Act::Wait { until: self.next_deadline() };
        }
        let complete = match state.complete {
            // A clock that was set back must not hold the rollout for years.
            Some(complete) if complete <= self.now => complete,
            _ => {
                let state = State { complete: Some(self.now), ..state.clone() };
                return self.write(Step::CompleteWave, state, Vec::new());
            }
        };
        let soaked = complete.after(self.rollout.statement.soak.get());
        if self.now < soaked {
            return Act::Wait { until: Some(soaked) };
        }
        let is_open = |node: &Node| node.progress == Progress::Good { converged: false };
        let open = self.wave().iter().filter(|node| is_open(node) && !node.is_set_aside);
        let open: Vec<&Name> = open.map(|node| &node.leaf.node).collect();
        if !open.is_empty() {
            let count = open.len() as u64;
            let nodes = open.into_iter().take(NAMED).cloned().collect();
            let why = Some(Why::Diverged { count, nodes });
            if state.why == why {
                return Act::Wait { until: None };
            }
            return self.enter(Step::Wait, Phase::Running, why);
        }
        if state.wave + 1 == self.rollout.ends.len() {
            return self.enter(Step::Finish, Phase::Done, None);
        }
        let state = State { wave: state.wave + 1, complete: None, why: None, ..state.clone() };
        self.write(Step::NextWave, state, Vec::new())
    }

    fn assign(&self) -> Option<Act> {
        let in_flight = self.nodes.iter().filter(|node| node.is_in_flight()).count() as u64;
        let mut room = self.rollout.statement.max_in_flight.saturating_sub(in_flight);
        let mut chosen = Vec::new();
        for node in self.wave().iter().filter(|node| node.take.is_none()) {
            if chosen.len() == MOST_WANTS {
                break;
            }
            // Absent nodes get their want at once, and take no place.
            if node.is_alive && room == 0 {
                continue;
            }
            room -= u64::from(node.is_alive);
            chosen.push(node);
        }
        if chosen.is_empty() {
            return None;
        }
        let mut state = State { complete: None, ..self.state().clone() };
        for node in &chosen {
            if node.is_alive {
                state.set_aside.remove(&node.leaf.node);
            } else {
                state.set_aside.insert(node.leaf.node.clone());
            }
        }
        let wants = chosen.into_iter().map(|node| self.want(node, Take::Document));
        Some(self.write(Step::Assign, state, wants.collect()))
    }

    fn next_deadline(&self) -> Option<Time> {
        let awaited = self.nodes.iter().filter(|node| node.is_in_flight());
        // Limits are exceeded a moment later.
        awaited.filter_map(|node| node.deadline).min().map(|it| it.after(Duration::from_millis(1)))
    }

    /// Sends every touched node to its fallback, without a limit; each node still tries it and may roll back.
    fn fall_back(&self) -> Act {
        let touched = self.nodes.iter().filter(|node| node.take == Some(Take::Document));
        let wants = touched.take(MOST_WANTS).map(|node| self.want(node, Take::Fallback));
        let wants: Vec<_> = wants.collect();
        if !wants.is_empty() {
            return self.write(Step::FallBack, self.state().clone(), wants);
        }
        if self.nodes.iter().any(Node::is_in_flight) {
            return Act::Wait { until: self.next_deadline() };
        }
        self.enter(Step::FinishStop, Phase::Stopped, self.state().why.clone())
    }

    fn want(&self, node: &Node, take: Take) -> (Name, Want) {
        (node.leaf.node.clone(), self.rollout.want(node.index, node.leaf, take, self.now))
    }

    fn enter(&self, step: Step, phase: Phase, why: Option<Why>) -> Act {
        let state = State { phase, why, ..self.state().clone() };
        self.write(step, state, Vec::new())
    }

    fn write(&self, step: Step, state: State, wants: Vec<(Name, Want)>) -> Act {
        let Rollout { statement, keys, .. } = self.rollout;
        let state = State { acts: state.acts + 1, counts: self.counts(), ..state };
        let key = keys.state(&statement.id);
        let unchanged = Expected::Unchanged { revision: self.stored.revision };
        let mut guards =
            vec![self.view.leads(keys), Guard { key: key.clone(), expected: unchanged }];
        let mut puts = vec![Put { key, value: state.write() }];
        for (node, want) in wants {
            let known = self.view.wants.get(&node).map(|want| want.revision);
            let expected =
                known.map_or(Expected::Absent, |revision| Expected::Unchanged { revision });
            guards.push(Guard { key: keys.want(&node), expected });
            puts.push(Put { key: keys.want(&node), value: want.write() });
        }
        Act::Write(Transaction { step, guards, puts })
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts { nodes: self.rollout.statement.nodes, ..Counts::default() };
        for node in &self.nodes {
            counts.touched += u64::from(node.take.is_some());
            counts.good += u64::from(matches!(node.progress, Progress::Good { .. }));
            counts.failed += u64::from(node.progress == Progress::Failed);
            counts.in_flight += u64::from(node.is_in_flight());
        }
        counts
    }
}
