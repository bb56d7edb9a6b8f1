//! Lanes: never two at once on a key, no key starved, no command lost, no limit passed.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::cases;
use homeostat_core::{Job, Lanes, Limits, Start};
use proptest::prelude::*;

type Guests = Lanes<u32, u8, u32>;
type Started = Start<u32, u8, u32>;

const WIDE: Limits = Limits { total: 100, per_node: 100 };

fn pass(key: u32, node: u8) -> Started {
    Start { key, node, job: Job::Pass }
}

fn command(key: u32, node: u8, number: u32) -> Started {
    Start { key, node, job: Job::Command(number) }
}

#[test]
fn a_key_runs_one_job_at_a_time_in_the_order_in_which_they_came() {
    let mut lanes = Guests::new(WIDE);
    lanes.submit(&101, 1, 1);
    lanes.submit(&101, 1, 2);
    assert!(lanes.mark(&101, 1));
    assert_eq!(lanes.start(), Some(command(101, 1, 1)));
    assert_eq!(lanes.start(), None);
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(command(101, 1, 2)));
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    lanes.end(&101);
    assert!(lanes.is_empty());
}

#[test]
fn marks_merge_while_a_pass_waits_and_one_more_follows_the_running_one() {
    let mut lanes = Guests::new(WIDE);
    assert!(lanes.mark(&101, 1));
    assert!(!lanes.mark(&101, 1));
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    assert!(lanes.mark(&101, 1), "a change during a pass queues another pass");
    assert!(!lanes.mark(&101, 1));
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    lanes.end(&101);
    assert_eq!(lanes.start(), None);
    assert!(lanes.is_empty());
}

#[test]
fn a_busy_node_delays_its_own_keys_only() {
    let mut lanes = Guests::new(Limits { total: 100, per_node: 1 });
    for (key, node) in [(101, 1), (102, 1), (201, 2)] {
        lanes.mark(&key, node);
    }
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    assert_eq!(lanes.start(), Some(pass(201, 2)));
    assert_eq!(lanes.start(), None);
    lanes.end(&201);
    assert_eq!(lanes.start(), None);
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(pass(102, 1)));
}

#[test]
fn other_limits_hold_for_what_begins_after_them() {
    let mut lanes = Guests::new(Limits { total: 100, per_node: 1 });
    for key in 101..106 {
        lanes.mark(&key, 1);
    }
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    assert_eq!(lanes.start(), None);
    lanes.limit(Limits { total: 100, per_node: 3 });
    assert_eq!(lanes.start(), Some(pass(102, 1)));
    assert_eq!(lanes.start(), Some(pass(103, 1)));
    assert_eq!(lanes.start(), None);
    lanes.limit(Limits { total: 100, per_node: 1 });
    lanes.end(&101);
    lanes.end(&102);
    assert_eq!(lanes.start(), None, "one still runs");
    lanes.end(&103);
    assert_eq!(lanes.start(), Some(pass(104, 1)));
    assert_eq!(lanes.start(), None);
}

#[test]
fn what_waited_longest_goes_first_however_much_comes_after_it() {
    let mut lanes = Guests::new(Limits { total: 1, per_node: 1 });
    lanes.mark(&101, 1);
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    lanes.mark(&102, 2);
    for again in 0..100 {
        lanes.submit(&101, 1, again);
    }
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(pass(102, 2)));
}

#[test]
fn a_guest_that_moved_counts_where_it_runs() {
    let mut lanes = Guests::new(Limits { total: 100, per_node: 1 });
    lanes.submit(&101, 1, 1);
    lanes.submit(&101, 2, 2);
    lanes.submit(&102, 1, 3);
    assert_eq!(lanes.start(), Some(command(101, 1, 1)));
    assert_eq!(lanes.start(), None);
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(command(101, 2, 2)));
    assert_eq!(lanes.start(), Some(command(102, 1, 3)));
}

#[test]
fn a_guest_that_moves_while_it_waits_keeps_its_turn_and_waits_where_it_is() {
    let mut lanes = Guests::new(Limits { total: 100, per_node: 1 });
    for (key, node) in [(101, 1), (102, 2), (103, 1), (104, 2)] {
        lanes.mark(&key, node);
    }
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    assert_eq!(lanes.start(), Some(pass(102, 2)));
    assert!(!lanes.mark(&103, 2), "it waits already");
    lanes.end(&101);
    assert_eq!(lanes.start(), None, "no pass waits for the first node any more");
    lanes.end(&102);
    assert_eq!(lanes.start(), Some(pass(103, 2)), "it came before the other one");
    assert_eq!((lanes.node_of(&103), lanes.node_of(&104)), (Some(&2), None));
}

#[test]
fn ending_what_does_not_run_changes_nothing() {
    let mut lanes = Guests::new(WIDE);
    lanes.end(&101);
    lanes.mark(&101, 1);
    lanes.end(&101);
    assert_eq!((lanes.len(), lanes.node_of(&101)), (1, None));
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    assert!(lanes.node_of(&101).is_some());
}

#[test]
fn what_runs_already_takes_its_lane_and_its_place_on_the_node() {
    let mut lanes = Guests::new(Limits { total: 100, per_node: 1 });
    lanes.mark(&101, 1);
    lanes.mark(&102, 1);
    assert!(lanes.occupy(&101, &1));
    assert!(!lanes.occupy(&101, &1));
    assert!(lanes.occupy(&103, &1), "it runs, whatever the limit says");
    assert_eq!(
        (lanes.start(), lanes.node_of(&101), lanes.node_of(&103)),
        (None, Some(&1), Some(&1))
    );
    lanes.end(&103);
    assert_eq!(lanes.start(), None);
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(pass(101, 1)));
    lanes.end(&101);
    assert_eq!(lanes.start(), Some(pass(102, 1)));
    lanes.end(&102);
    assert!(lanes.is_empty());
}

#[test]
fn a_command_that_is_taken_back_leaves_no_trace_and_lets_the_next_one_move_up() {
    let mut lanes = Guests::new(Limits { total: 100, per_node: 1 });
    let only = lanes.submit(&101, 1, 1);
    assert!(lanes.withdraw(&101, only));
    assert!(lanes.is_empty(), "an idle key");
    assert_eq!((lanes.withdraw(&101, only), lanes.start()), (false, None));
    // The one behind it is for a node with room.
    lanes.submit(&102, 1, 2);
    assert_eq!(lanes.start(), Some(command(102, 1, 2)));
    let first = lanes.submit(&101, 1, 3);
    lanes.submit(&101, 2, 4);
    assert_eq!(lanes.start(), None);
    assert!(lanes.withdraw(&101, first));
    assert_eq!(lanes.start(), Some(command(101, 2, 4)));
    assert!(!lanes.withdraw(&101, first));
    let running = lanes.submit(&103, 3, 5);
    assert_eq!(lanes.start(), Some(command(103, 3, 5)));
    assert!(!lanes.withdraw(&103, running), "it runs");
    for key in [101, 102, 103] {
        lanes.end(&key);
    }
    assert!(lanes.is_empty());
}

#[test]
fn a_limit_of_zero_lets_one_run() {
    let mut lanes = Guests::new(Limits { total: 0, per_node: 0 });
    lanes.mark(&101, 1);
    assert_eq!(lanes.start(), Some(pass(101, 1)));
}

/// The same rules, said in the plainest way.
struct Model {
    limits: Limits,
    waiting: Vec<Started>,
    running: BTreeMap<u32, u8>,
}

impl Model {
    fn mark(&mut self, key: u32, node: u8) -> bool {
        let waits = |one: &&mut Started| one.key == key && one.job == Job::Pass;
        if let Some(waiting) = self.waiting.iter_mut().find(waits) {
            waiting.node = node;
            return false;
        }
        self.waiting.push(pass(key, node));
        true
    }

    fn withdraw(&mut self, number: u32) -> Option<u32> {
        let waits = |one: &Started| one.job == Job::Command(number);
        let at = self.waiting.iter().position(waits)?;
        self.waiting.remove(at);
        Some(number)
    }

    fn start(&mut self) -> Option<Started> {
        let on = |node: u8| self.running.values().filter(|one| **one == node).count();
        let is_first = |at: usize| {
            self.waiting.iter().position(|one| one.key == self.waiting[at].key) == Some(at)
        };
        let may = |at: &usize| {
            let Start { key, node, .. } = self.waiting[*at];
            !self.running.contains_key(&key)
                && is_first(*at)
                && self.running.len() < self.limits.total
                && on(node) < self.limits.per_node
        };
        let at = (0..self.waiting.len()).find(may)?;
        let started = self.waiting.remove(at);
        self.running.insert(started.key, started.node);
        Some(started)
    }
}

#[derive(Clone, Debug)]
enum Act {
    Mark(u32, u8),
    Submit(u32, u8),
    Withdraw(usize),
    Start,
    Occupy(u32, u8),
    End(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..8_u32, 0..3_u8).prop_map(|(key, node)| Act::Mark(key, node)),
        3 => (0..8_u32, 0..3_u8).prop_map(|(key, node)| Act::Submit(key, node)),
        3 => (0..30_usize).prop_map(Act::Withdraw),
        4 => Just(Act::Start),
        1 => (0..8_u32, 0..3_u8).prop_map(|(key, node)| Act::Occupy(key, node)),
        3 => (0..8_usize).prop_map(Act::End),
    ]
}

proptest! {
    #![proptest_config(cases(256))]

    /// Equal to the model at every step; and when all is drained, every command ran or was taken back, once.
    #[test]
    fn lanes_do_what_the_plainest_model_does(
        acts in proptest::collection::vec(act(), 0..200),
        total in 1..5_usize,
        per_node in 1..4_usize,
    ) {
        let limits = Limits { total, per_node };
        let mut lanes = Guests::new(limits);
        let mut model = Model { limits, waiting: Vec::new(), running: BTreeMap::new() };
        let (mut submitted, mut done, mut tickets) = (0, Vec::new(), Vec::new());
        let note = |started: &Option<Started>, done: &mut Vec<u32>| {
            if let Some(Start { job: Job::Command(number), .. }) = started {
                done.push(*number);
            }
        };
        for act in acts {
            match act {
                Act::Mark(key, node) => prop_assert_eq!(lanes.mark(&key, node), model.mark(key, node)),
                Act::Submit(key, node) => {
                    tickets.push((key, lanes.submit(&key, node, submitted)));
                    model.waiting.push(command(key, node, submitted));
                    submitted += 1;
                }
                Act::Withdraw(at) => {
                    let Some((key, ticket)) = tickets.get(at).copied() else { continue };
                    let withdrawn = lanes.withdraw(&key, ticket);
                    let expected = model.withdraw(u32::try_from(at).unwrap());
                    prop_assert_eq!(withdrawn, expected.is_some());
                    done.extend(expected);
                }
                Act::Start => {
                    let started = lanes.start();
                    prop_assert_eq!(started, model.start());
                    note(&started, &mut done);
                }
                Act::Occupy(key, node) => {
                    let is_free = !model.running.contains_key(&key);
                    prop_assert_eq!(lanes.occupy(&key, &node), is_free);
                    model.running.entry(key).or_insert(node);
                }
                Act::End(at) => {
                    if let Some(key) = model.running.keys().nth(at).copied() {
                        model.running.remove(&key);
                        lanes.end(&key);
                    }
                }
            }
            for key in 0..8 {
                prop_assert_eq!(lanes.node_of(&key), model.running.get(&key));
            }
        }
        // Drained one at a time, no key is left behind.
        while !lanes.is_empty() {
            let started = lanes.start();
            note(&started, &mut done);
            match started.map(|started| started.key).or(model.running.keys().next().copied()) {
                Some(key) => {
                    model.running.remove(&key);
                    lanes.end(&key);
                }
                None => prop_assert!(false, "something waits, nothing runs and nothing may start"),
            }
        }
        done.sort_unstable();
        prop_assert_eq!(done, (0..submitted).collect::<Vec<_>>());
    }
}

/// Lanes whose keys and nodes are counted by reference.
type Counted = Lanes<Arc<u32>, Arc<u8>, u32>;

/// Does what chance says, and then ends all that runs and all that can still start.
fn play_and_drain(lanes: &mut Counted, acts: &[Act], (keys, nodes): (&[Arc<u32>], &[Arc<u8>])) {
    let key = |key: u32| &keys[usize::try_from(key).unwrap()];
    let node = |node: u8| Arc::clone(&nodes[usize::from(node)]);
    let mut tickets = Vec::new();
    for act in acts {
        match *act {
            Act::Mark(on, at) => _ = lanes.mark(key(on), node(at)),
            Act::Submit(on, at) => tickets.push((on, lanes.submit(key(on), node(at), 0))),
            Act::Withdraw(at) => {
                if let Some((on, ticket)) = tickets.get(at) {
                    lanes.withdraw(key(*on), *ticket);
                }
            }
            Act::Start => drop(lanes.start()),
            Act::Occupy(on, at) => _ = lanes.occupy(key(on), &node(at)),
            Act::End(at) => lanes.end(&keys[at]),
        }
    }
    // Each round begins something, or nothing ever will.
    for _ in 0..=acts.len() {
        while lanes.start().is_some() {}
        for key in keys {
            lanes.end(key);
        }
    }
}

proptest! {
    #![proptest_config(cases(256))]

    /// A long run does not keep memory for every node and key that ever was.
    #[test]
    fn nothing_is_left_of_an_idle_key_nor_of_an_idle_node(
        acts in proptest::collection::vec(act(), 0..40),
        total in 1..5_usize,
        per_node in 1..4_usize,
    ) {
        let keys: Vec<_> = (0..8).map(Arc::new).collect();
        let nodes: Vec<_> = (0..3).map(Arc::new).collect();
        let mut lanes = Counted::new(Limits { total, per_node });
        play_and_drain(&mut lanes, &acts, (&keys, &nodes));
        prop_assert!(lanes.is_empty(), "something waits, and nothing may start");
        let kept_keys = keys.iter().filter(|key| Arc::strong_count(key) > 1);
        let kept_nodes = nodes.iter().filter(|node| Arc::strong_count(node) > 1);
        prop_assert_eq!((kept_keys.count(), kept_nodes.count()), (0, 0));
        // The limits hold for what comes after, as if nothing had been before.
        for key in &keys {
            lanes.mark(key, Arc::clone(&nodes[0]));
        }
        let started = std::iter::from_fn(|| lanes.start()).count();
        prop_assert_eq!(started, total.min(per_node));
    }
}

/// What came, when, and how long it takes.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: u64,
    key: u32,
    node: u8,
    takes: u64,
    is_command: bool,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let parts = (0..300_u64, 0..12_u32, 0..4_u8, 1..40_u64, any::<bool>());
    parts.prop_map(|(at, key, node, takes, is_command)| {
        // Passes of one key are for one node: a pass that moves to another node is overtaken by others there.
        let node = if is_command { node } else { u8::try_from(key % 4).unwrap() };
        Arrival { at, key, node, takes, is_command }
    })
}

/// One that has begun, in virtual time.
#[derive(Clone, Copy, Debug)]
struct Ran {
    key: u32,
    node: u8,
    from: u64,
    to: u64,
    /// The first arrival that it serves, and when that came.
    arrival: usize,
    came: u64,
}

/// Plays arrivals in virtual time, minute by minute, until nothing is left to do.
fn play(arrivals: &[Arrival], limits: Limits) -> Vec<Ran> {
    let mut lanes = Guests::new(limits);
    let mut marked: BTreeMap<u32, usize> = BTreeMap::new();
    let mut running: Vec<Ran> = Vec::new();
    let mut ran = Vec::new();
    for now in 0.. {
        for over in running.extract_if(.., |one| one.to <= now) {
            lanes.end(&over.key);
        }
        for (number, one) in arrivals.iter().enumerate().filter(|(_, one)| one.at == now) {
            if one.is_command {
                lanes.submit(&one.key, one.node, u32::try_from(number).unwrap());
            } else if lanes.mark(&one.key, one.node) {
                marked.insert(one.key, number);
            }
        }
        while let Some(Start { key, node, job }) = lanes.start() {
            let arrival = match job {
                Job::Command(number) => number as usize,
                Job::Pass => marked.remove(&key).unwrap(),
            };
            let Arrival { at: came, takes, .. } = arrivals[arrival];
            let one = Ran { key, node, from: now, to: now + takes, arrival, came };
            running.push(one);
            ran.push(one);
        }
        if now > 300 && lanes.is_empty() {
            return ran;
        }
        assert!(now < 100_000, "a key starves: {} keys wait", lanes.len());
    }
    ran
}

proptest! {
    #![proptest_config(cases(128))]

    /// In virtual time: a key has never two at once and keeps its order, limits hold, every command runs
    /// once, and none is overtaken by a later one, unless its key or its node was busy at that moment.
    #[test]
    fn in_virtual_time_no_key_is_doubled_starved_or_robbed_of_a_command(
        arrivals in proptest::collection::vec(arrival(), 1..120),
        total in 1..6_usize,
        per_node in 1..3_usize,
    ) {
        let ran = play(&arrivals, Limits { total, per_node });
        let order = |one: &Ran| (one.came, one.arrival);
        let at = |time: u64| ran.iter().filter(move |one| one.from <= time && time < one.to);
        for one in &ran {
            prop_assert_eq!(at(one.from).filter(|other| other.key == one.key).count(), 1);
            prop_assert!(at(one.from).count() <= total);
            prop_assert!(at(one.from).filter(|other| other.node == one.node).count() <= per_node);
            for later in ran.iter().filter(|later| order(later) > order(one)) {
                let is_passed = later.from < one.from;
                prop_assert!(!(is_passed && later.key == one.key), "{:?} before {:?}", later, one);
                // Those that passed it in this very moment took no place that was theirs.
                let on_node = at(later.from).filter(|other| {
                    let is_before = other.from < later.from || order(other) < order(one);
                    other.node == one.node && is_before
                });
                let on_node = on_node.count();
                let is_key_busy = ran.iter().any(|other| {
                    other.key == one.key && order(other) < order(one) && other.to > later.from
                });
                prop_assert!(!is_passed || is_key_busy || on_node >= per_node, "{:?} passed {:?}", later, one);
            }
        }
        let mut commands: Vec<_> = ran.iter().map(|one| one.arrival).collect();
        commands.retain(|number| arrivals[*number].is_command);
        commands.sort_unstable();
        let all = arrivals.iter().enumerate().filter(|(_, one)| one.is_command);
        prop_assert_eq!(commands, all.map(|(number, _)| number).collect::<Vec<_>>());
        // Every mark is followed by a pass that begins no earlier.
        for mark in arrivals.iter().filter(|one| !one.is_command) {
            let is_seen = |one: &Ran| one.key == mark.key && one.from >= mark.at && !arrivals[one.arrival].is_command;
            prop_assert!(ran.iter().any(is_seen), "{:?} was never looked at", mark);
        }
    }
}
