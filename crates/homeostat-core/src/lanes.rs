//! Whose turn it is: serial per key, parallel across keys, within limits. A pure state machine.
//!
//! A lane is a key with something to do. It has at most one job running and one pass waiting, however
//! often it is marked, and any number of commands, none of which may be lost. Jobs of one key run in the
//! order in which they came; across keys the one that has waited longest goes first, unless its node is
//! busy. A key with nothing to do leaves no trace.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

/// How many jobs may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub total: usize,
    /// On one node.
    pub per_node: usize,
}

/// Something to do for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job<C> {
    /// Bring it to its desired state. Two that wait are one.
    Pass,
    /// A command, done once.
    Command(C),
}

/// A job that may run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Start<K, N, C> {
    /// Its key; [`Lanes::end`] frees it.
    pub key: K,
    /// Where it runs.
    pub node: N,
    pub job: Job<C>,
}

/// The order of arrival; a waiting command is withdrawn by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

struct Waiting<N, C> {
    ticket: Ticket,
    node: N,
    job: Job<C>,
}

struct Lane<N, C> {
    /// Where its job runs, if one does.
    running: Option<N>,
    waiting: VecDeque<Waiting<N, C>>,
}

struct Node<K> {
    running: usize,
    /// Keys whose next job is for this node, and that have none running.
    ready: BTreeMap<Ticket, K>,
}

/// The lanes of all keys.
pub struct Lanes<K, N, C> {
    limits: Limits,
    keys: HashMap<K, Lane<N, C>>,
    nodes: BTreeMap<N, Node<K>>,
    /// Nodes with room and something ready, by what has waited longest there.
    open: BTreeSet<(Ticket, N)>,
    running: usize,
    next: Ticket,
}

impl<K: Clone + Eq + Hash, N: Clone + Ord, C> Lanes<K, N, C> {
    /// Lanes with nothing to do. A limit of zero counts as one: nothing would ever run.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let (keys, nodes, open) = (HashMap::new(), BTreeMap::new(), BTreeSet::new());
        let mut lanes = Lanes { limits, keys, nodes, open, running: 0, next: Ticket::default() };
        lanes.limit(limits);
        lanes
    }

    /// Sets other limits. What runs goes on, even if it is more than may begin from here on.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = Limits { total: limits.total.max(1), per_node: limits.per_node.max(1) };
        self.open.clear();
        let nodes: Vec<N> = self.nodes.keys().cloned().collect();
        for node in nodes {
            self.reopen(&node);
        }
    }

    /// Queues a pass over a key. Returns false if a pass was already queued: that one sees the change, too, and waits
    /// for this node from here on.
    pub fn mark(&mut self, key: &K, node: N) -> bool {
        let is_like = |one: &Waiting<N, C>| matches!(one.job, Job::Pass) && one.node == node;
        if self.keys.get(key).is_some_and(|lane| lane.waiting.iter().any(is_like)) {
            return false;
        }
        self.hide(key);
        let waits = self.lane(key).waiting.iter_mut().find(|one| matches!(one.job, Job::Pass));
        let Some(waits) = waits else {
            self.push(key, node, Job::Pass);
            return true;
        };
        waits.node = node;
        self.ready(key);
        false
    }

    /// Queues a command.
    pub fn submit(&mut self, key: &K, node: N, command: C) -> Ticket {
        self.push(key, node, Job::Command(command))
    }

    /// Takes back a command that has not begun, and says whether it could. What comes after it moves up.
    pub fn withdraw(&mut self, key: &K, ticket: Ticket) -> bool {
        self.hide(key);
        let Some(lane) = self.keys.get_mut(key) else { return false };
        let before = lane.waiting.len();
        lane.waiting.retain(|waiting| waiting.ticket != ticket);
        let is_withdrawn = lane.waiting.len() < before;
        self.ready(key);
        is_withdrawn
    }

    /// The next job that may run. Its lane is taken until [`Lanes::end`].
    pub fn start(&mut self) -> Option<Start<K, N, C>> {
        if self.running >= self.limits.total {
            return None;
        }
        let (ticket, node) = self.open.pop_first()?;
        let key = self.nodes.get_mut(&node)?.ready.remove(&ticket)?;
        let lane = self.keys.get_mut(&key)?;
        let Waiting { job, .. } = lane.waiting.pop_front()?;
        lane.running = Some(node.clone());
        self.running += 1;
        self.place(&node).running += 1;
        self.reopen(&node);
        Some(Start { key, node, job })
    }

    /// Takes a lane for something that runs already, whatever the limits say. Says whether it was free.
    pub fn occupy(&mut self, key: &K, node: &N) -> bool {
        if self.node_of(key).is_some() {
            return false;
        }
        self.hide(key);
        let lane = self.lane(key);
        lane.running = Some(node.clone());
        self.running += 1;
        self.place(node).running += 1;
        self.reopen(node);
        true
    }

    /// The job of a key ended, however it did. Ending what does not run changes nothing.
    pub fn end(&mut self, key: &K) {
        let Some(lane) = self.keys.get_mut(key) else { return };
        let Some(node) = lane.running.take() else { return };
        self.running -= 1;
        self.place(&node).running -= 1;
        self.ready(key);
        self.reopen(&node);
    }

    /// The node that a job of the key runs on, if one does.
    pub fn node_of(&self, key: &K) -> Option<&N> {
        self.keys.get(key)?.running.as_ref()
    }

    /// How many keys have something running or waiting; the others cost nothing.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing runs or waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn lane(&mut self, key: &K) -> &mut Lane<N, C> {
        let lane = self.keys.entry(key.clone());
        lane.or_insert_with(|| Lane { running: None, waiting: VecDeque::new() })
    }

    fn place(&mut self, node: &N) -> &mut Node<K> {
        let place = self.nodes.entry(node.clone());
        place.or_insert_with(|| Node { running: 0, ready: BTreeMap::new() })
    }

    fn push(&mut self, key: &K, node: N, job: Job<C>) -> Ticket {
        let ticket = self.next;
        self.next = Ticket(ticket.0 + 1);
        self.lane(key).waiting.push_back(Waiting { ticket, node, job });
        self.ready(key);
        ticket
    }

    /// Puts the next job of a lane where it can be found, unless one runs, or forgets an idle lane.
    fn ready(&mut self, key: &K) {
        let Some(lane) = self.keys.get(key).filter(|lane| lane.running.is_none()) else { return };
        let Some(Waiting { ticket, node, .. }) = lane.waiting.front() else {
            self.keys.remove(key);
            return;
        };
        let (ticket, node) = (*ticket, node.clone());
        let first = self.place(&node).ready.first_key_value().map(|(first, _)| *first);
        if let Some(first) = first {
            self.open.remove(&(first, node.clone()));
        }
        self.place(&node).ready.insert(ticket, key.clone());
        self.reopen(&node);
    }

    /// Takes the next job of a lane out of where it can be found.
    fn hide(&mut self, key: &K) {
        let next = self.keys.get(key).and_then(|lane| lane.waiting.front());
        let next = next.map(|waiting| (waiting.ticket, waiting.node.clone()));
        let Some((ticket, node)) = next else { return };
        self.open.remove(&(ticket, node.clone()));
        self.place(&node).ready.remove(&ticket);
        self.reopen(&node);
    }

    /// Offers what has waited longest on a node, as long as there is room, and forgets a node without work.
    fn reopen(&mut self, node: &N) {
        let Some(place) = self.nodes.get(node) else { return };
        match place.ready.first_key_value() {
            Some((first, _)) if place.running < self.limits.per_node => {
                self.open.insert((*first, node.clone()));
            }
            Some((first, _)) => _ = self.open.remove(&(*first, node.clone())),
            None if place.running == 0 => drop(self.nodes.remove(node)),
            _ => {}
        }
    }
}
