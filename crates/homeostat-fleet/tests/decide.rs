//! The next act of a rollout, one situation at a time.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use homeostat_fleet::decide::{
    Act, Expected, MOST_WANTS, Presence, Rollout, Step, Stored, Transaction, View, cannot_follow,
    decide,
};
use homeostat_fleet::keys::Keys;
use homeostat_fleet::merkle::{Class, Leaf, Tree, verify};
use homeostat_fleet::records::{
    NodePhase, Open, Phase, Record, Request, State, Statement, Status, Take, Verb, Want, Wave, Why,
};
use homeostat_fleet::{Digest, Error, Name, Time};

const TTL: Duration = Duration::from_secs(15);
const TERM: i64 = 7;

/// A rollout and a store that carries out every act at once.
struct World {
    rollout: Rollout,
    view: View,
    now: Time,
    revision: i64,
}

fn leaves(count: usize) -> Vec<Leaf> {
    let digest = |what: &str, number: usize| Digest::of(format!("{what} {number}").as_bytes());
    let leaf = |number| Leaf {
        node: name(number),
        document: digest("new", number),
        fallback: digest("old", number),
        class: Class::Reversible,
    };
    (0..count).map(leaf).collect()
}

fn name(number: usize) -> Name {
    format!("n{number}").parse().unwrap()
}

fn statement(leaves: &[Leaf], waves: &[Wave]) -> Statement {
    Statement {
        fleet: "edge".parse().unwrap(),
        id: "r1".parse().unwrap(),
        generation: 42,
        not_after: "2026-11-17T00:00:00Z".parse().unwrap(),
        root: Tree::new(leaves.iter().map(Leaf::hash)).root(),
        nodes: leaves.len() as u64,
        waves: waves.to_vec(),
        max_in_flight: 1000,
        max_failed: 0,
        settle: "10s".parse().unwrap(),
        confirm_within: "60s".parse().unwrap(),
        soak: "5m".parse().unwrap(),
        accept: Vec::new(),
        plan: false,
    }
}

impl World {
    fn new(count: usize, waves: &[Wave], change: impl FnOnce(&mut Statement)) -> Self {
        let leaves = leaves(count);
        let mut statement = statement(&leaves, waves);
        change(&mut statement);
        let presence = leaves.iter().map(|leaf| (leaf.node.clone(), Presence::Alive)).collect();
        World {
            rollout: Rollout::new(statement, leaves).unwrap(),
            view: View { term: TERM, ttl: TTL, presence, ..View::default() },
            now: "2026-11-16T10:00:00Z".parse().unwrap(),
            revision: 100,
        }
    }

    fn decide(&self) -> Act {
        decide(&self.rollout, &self.view, self.now)
    }

    /// Carries out the next act, which must be this one; returns the nodes whose wants it wrote.
    #[track_caller]
    fn does(&mut self, step: Step) -> Vec<Name> {
        let act = self.decide();
        let Act::Write(Transaction { step: found, guards, puts }) = act else {
            panic!("{act:?} instead of {step:?}");
        };
        assert_eq!(found, step);
        let keys = Keys::new(&self.rollout.statement().fleet);
        let guard = |key: String| guards.iter().find(|it| it.key == key).unwrap().expected;
        assert_eq!(guard(keys.leader()), Expected::Created { revision: TERM });
        assert_eq!(guards.len(), puts.len() + 1);
        let since = |revision: Option<i64>| {
            revision.map_or(Expected::Absent, |revision| Expected::Unchanged { revision })
        };
        self.revision += 1;
        let revision = self.revision;
        self.view.wants_revision = revision;
        let mut nodes = Vec::new();
        for put in puts {
            if let Some(node) = keys.node_of(&put.key) {
                let known = self.view.wants.get(&node).map(|it| it.revision);
                assert_eq!(guard(put.key), since(known));
                let record = Want::read(&put.value).unwrap();
                self.view.wants.insert(node.clone(), Stored { record, revision });
                nodes.push(node);
            } else {
                let known = self.view.state.as_ref().map(|it| it.revision);
                assert_eq!(guard(put.key), since(known));
                let record = State::read(&put.value).unwrap();
                self.view.state = Some(Stored { record, revision });
            }
        }
        nodes
    }

    #[track_caller]
    fn waits(&self) -> Option<Time> {
        match self.decide() {
            Act::Wait { until } => until,
            other => panic!("{other:?}"),
        }
    }

    fn state(&self) -> &State {
        &self.view.state.as_ref().unwrap().record
    }

    fn status(&self, number: usize, take: Take, phase: NodePhase) -> Status {
        let leaf = &self.rollout.leaves()[number];
        Status {
            generation: 42,
            take,
            document: if take == Take::Document { leaf.document } else { leaf.fallback },
            phase,
            why: String::new(),
            converged: true,
            since: self.now,
            open: Open::default(),
            accepted: 42,
            agent: String::new(),
            boot: String::new(),
        }
    }

    fn says(&mut self, number: usize, take: Take, phase: NodePhase) {
        let status = self.status(number, take, phase);
        self.view.statuses.insert(name(number), status);
    }

    fn are_good(&mut self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            self.says(number, Take::Document, NodePhase::Good);
        }
    }

    fn vanish(&mut self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            self.view.presence.insert(name(number), Presence::Absent { since: self.now });
        }
    }

    fn ask(&mut self, verb: Verb, serial: u64) {
        self.view.request = Some(Request { verb, serial, by: "ann".to_owned() });
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }
}

fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<Name> {
    numbers.into_iter().map(name).collect()
}

/// All nodes in one wave.
fn at_once(count: usize) -> World {
    World::new(count, &[Wave::Percent(100)], |_| {})
}

#[test]
fn waves_follow_each_other_after_their_soak() {
    let mut world =
        World::new(10, &[Wave::Nodes(1), Wave::Percent(50), Wave::Percent(100)], |_| {});
    world.does(Step::Start);
    assert_eq!(world.does(Step::Assign), names([0]));
    // Trial, answer, grace: then the node would count as failed.
    let deadline = world.now.after(Duration::from_millis(190_001));
    assert_eq!(world.waits(), Some(deadline));
    world.says(0, Take::Document, NodePhase::Trial);
    assert_eq!(world.waits(), Some(deadline));
    world.are_good([0]);
    world.does(Step::CompleteWave);
    let soaked = world.now.after(Duration::from_mins(5));
    assert_eq!(world.waits(), Some(soaked));
    world.pass(300);
    world.does(Step::NextWave);
    assert_eq!(world.does(Step::Assign), names(1..5));
    world.are_good(1..5);
    world.does(Step::CompleteWave);
    world.pass(300);
    world.does(Step::NextWave);
    assert_eq!(world.does(Step::Assign), names(5..10));
    world.are_good(5..10);
    world.does(Step::CompleteWave);
    world.pass(300);
    world.does(Step::Finish);
    assert_eq!(world.decide(), Act::Finished);
    assert_eq!((world.state().phase, world.state().counts.good), (Phase::Done, 10));
}

#[test]
fn a_want_has_what_a_node_needs_to_check_it() {
    let mut world = at_once(5);
    world.does(Step::Start);
    world.does(Step::Assign);
    let statement = world.rollout.statement();
    for leaf in world.rollout.leaves() {
        let want = &world.view.wants[&leaf.node].record;
        let found = Leaf {
            node: leaf.node.clone(),
            document: want.document,
            fallback: want.fallback,
            class: want.class,
        };
        assert!(verify(&statement.root, 5, want.index, &found.hash(), &want.proof));
        assert_eq!((want.generation, want.take, want.at), (42, Take::Document, world.now));
    }
}

#[test]
fn one_act_has_at_most_sixty_wants() {
    let mut world = at_once(130);
    world.does(Step::Start);
    assert_eq!(MOST_WANTS, 60);
    for expected in [0..60, 60..120, 120..130] {
        assert_eq!(world.does(Step::Assign), names(expected));
    }
    world.ask(Verb::Abort, 1);
    world.does(Step::Stop);
    for expected in [0..60, 60..120, 120..130] {
        assert_eq!(world.does(Step::FallBack), names(expected));
    }
    // A transaction takes the term, the state and the wants.
    world.waits();
}

#[test]
fn nodes_in_flight_are_limited() {
    let mut world = World::new(5, &[Wave::Percent(100)], |it| it.max_in_flight = 2);
    world.does(Step::Start);
    assert_eq!(world.does(Step::Assign), names(0..2));
    world.waits();
    world.are_good([1]);
    assert_eq!(world.does(Step::Assign), names([2]));
    world.waits();
    // A status about another document or another generation is no answer.
    let answer = world.status(0, Take::Document, NodePhase::Good);
    for other in [
        Status { generation: 41, ..answer.clone() },
        Status { take: Take::Fallback, ..answer.clone() },
        Status { document: Digest::of(b"other"), ..answer.clone() },
    ] {
        world.view.statuses.insert(name(0), other);
        world.waits();
    }
    world.view.statuses.insert(name(0), answer);
    assert_eq!(world.does(Step::Assign), names([3]));
}

#[test]
fn a_failure_beyond_the_limit_stops_and_every_touched_node_falls_back() {
    for phase in [NodePhase::RolledBack, NodePhase::Refused] {
        let mut world =
            World::new(6, &[Wave::Nodes(4), Wave::Percent(100)], |it| it.max_failed = 1);
        world.does(Step::Start);
        world.does(Step::Assign);
        world.are_good(0..2);
        world.says(2, Take::Document, phase);
        world.waits();
        world.says(3, Take::Document, phase);
        world.does(Step::Stop);
        let why = Why::Failed { count: 2, nodes: names(2..4) };
        assert_eq!(world.state().why, Some(why.clone()));
        assert_eq!(world.does(Step::FallBack), names(0..4));
        for number in 0..3 {
            world.says(number, Take::Fallback, NodePhase::Good);
            world.waits();
        }
        world.says(3, Take::Fallback, NodePhase::Good);
        world.does(Step::FinishStop);
        assert_eq!((world.state().phase, &world.state().why), (Phase::Stopped, &Some(why)));
        assert_eq!(world.decide(), Act::Finished);
    }
}

#[test]
fn absent_nodes_are_set_aside_by_name_and_count_once_they_return_and_fail() {
    let mut world = World::new(6, &[Wave::Percent(100)], |it| it.max_in_flight = 4);
    world.vanish([4, 5]);
    world.does(Step::Start);
    assert_eq!(world.does(Step::Assign), names(0..6));
    assert_eq!(world.state().set_aside, names([4, 5]).into_iter().collect());
    world.pass(3600);
    world.are_good(0..4);
    world.does(Step::CompleteWave);
    world.view.presence.insert(name(5), Presence::Alive);
    world.says(5, Take::Document, NodePhase::RolledBack);
    world.does(Step::Stop);
    assert_eq!(world.does(Step::FallBack), names(0..6));
    for number in [0, 1, 2, 3, 5] {
        world.says(number, Take::Fallback, NodePhase::Good);
    }
    // Nobody waits for the one that never came.
    world.does(Step::FinishStop);
}

#[test]
fn a_node_that_flaps_while_its_wave_opens_is_awaited_once_it_is_back() {
    let mut world = at_once(4);
    world.vanish([3]);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good(0..3);
    world.view.presence.insert(name(3), Presence::Alive);
    assert!(world.waits().is_some());
    world.are_good([3]);
    world.does(Step::CompleteWave);
}

#[test]
fn a_touched_node_fails_if_it_is_lost_or_silent_for_too_long() {
    let begun = || {
        let mut world = at_once(4);
        world.does(Step::Start);
        world.does(Step::Assign);
        world.are_good(0..3);
        world
    };
    let mut lost = begun();
    lost.vanish([3]);
    assert_eq!(lost.waits(), Some(lost.now.after(Duration::from_millis(30_001))));
    lost.pass(30);
    lost.waits();
    lost.pass(1);
    lost.does(Step::Stop);
    let mut silent = begun();
    silent.pass(190);
    silent.waits();
    silent.pass(1);
    silent.does(Step::Stop);
    assert_eq!(silent.state().why, Some(Why::Failed { count: 1, nodes: names([3]) }));
    // A good node that is lost in its wave may be the document's fault, too.
    let mut good = begun();
    good.are_good([3]);
    good.does(Step::CompleteWave);
    good.vanish([3]);
    good.pass(31);
    good.does(Step::Stop);
}

#[test]
fn a_lost_node_within_the_limit_takes_no_place_in_flight() {
    let mut world = World::new(3, &[Wave::Percent(100)], |it| {
        (it.max_in_flight, it.max_failed) = (1, 1);
    });
    world.does(Step::Start);
    assert_eq!(world.does(Step::Assign), names([0]));
    world.vanish([0]);
    world.waits();
    world.pass(31);
    assert_eq!(world.does(Step::Assign), names([1]));
}

#[test]
fn most_of_a_wave_absent_pauses_and_does_not_roll_back() {
    let mut world = World::new(8, &[Wave::Nodes(1), Wave::Percent(100)], |_| {});
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good([0]);
    world.does(Step::CompleteWave);
    world.pass(300);
    world.does(Step::NextWave);
    world.does(Step::Assign);
    world.vanish(1..5);
    world.does(Step::Pause);
    assert_eq!(world.state().why, Some(Why::MostAbsent { absent: 4, wave: 7 }));
    world.vanish(5..8);
    world.pass(3600);
    world.waits();
    // They are back before anybody asked.
    for number in 1..8 {
        world.view.presence.insert(name(number), Presence::Alive);
    }
    world.are_good(1..8);
    world.does(Step::Resume);
    world.does(Step::CompleteWave);
}

#[test]
fn the_operator_may_go_on_without_most_of_a_wave() {
    let mut world = at_once(5);
    world.ask(Verb::Run, 3);
    world.vanish(0..4);
    world.does(Step::Start);
    world.does(Step::Pause);
    world.waits();
    world.ask(Verb::Run, 4);
    world.does(Step::SetAside);
    assert_eq!(world.state().set_aside, names(0..4).into_iter().collect());
    world.does(Step::Resume);
    assert_eq!(world.does(Step::Assign), names(0..5));
    world.are_good([4]);
    world.does(Step::CompleteWave);
}

#[test]
fn reported_failures_stop_even_if_most_are_absent() {
    let mut world = at_once(5);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.says(0, Take::Document, NodePhase::RolledBack);
    world.vanish(1..5);
    world.does(Step::Stop);
}

#[test]
fn pause_holds_everything_and_run_goes_on() {
    let mut world = World::new(4, &[Wave::Percent(100)], |it| it.max_in_flight = 2);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.ask(Verb::Pause, 1);
    world.does(Step::Pause);
    assert_eq!(world.state().why, Some(Why::Asked));
    world.are_good(0..2);
    world.waits();
    world.ask(Verb::Run, 2);
    world.does(Step::Resume);
    assert_eq!(world.does(Step::Assign), names(2..4));
}

#[test]
fn abort_falls_back_also_when_all_was_done() {
    let mut world = at_once(2);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good(0..2);
    world.does(Step::CompleteWave);
    world.pass(300);
    world.does(Step::Finish);
    world.ask(Verb::Abort, 1);
    world.does(Step::Stop);
    assert_eq!(world.does(Step::FallBack), names(0..2));
    // And before anything was done.
    let mut world = at_once(2);
    world.ask(Verb::Abort, 1);
    world.does(Step::Start);
    world.does(Step::Stop);
    world.does(Step::FinishStop);
    assert_eq!(world.state().counts.touched, 0);
}

#[test]
fn a_store_that_is_behind_a_node_pauses() {
    let mut world = at_once(3);
    let status =
        Status { generation: 43, accepted: 43, ..world.status(1, Take::Document, NodePhase::Good) };
    world.view.statuses.insert(name(1), status);
    world.does(Step::Start);
    world.does(Step::Pause);
    assert_eq!(world.state().why, Some(Why::StoreBehind { node: name(1), accepted: 43 }));
    world.waits();
    world.ask(Verb::Abort, 1);
    world.does(Step::Stop);
}

#[test]
fn an_expired_statement_assigns_nothing_more_but_falls_back() {
    let mut world = World::new(3, &[Wave::Percent(100)], |it| it.max_in_flight = 1);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good([0]);
    world.now = "2026-11-17T00:00:01Z".parse().unwrap();
    world.does(Step::Pause);
    assert!(matches!(world.state().why, Some(Why::Expired { .. })));
    world.ask(Verb::Abort, 1);
    world.does(Step::Stop);
    assert_eq!(world.does(Step::FallBack), names([0]));
    // What was assigned to all may still end well.
    let mut world = at_once(1);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good([0]);
    world.now = "2026-11-17T00:00:01Z".parse().unwrap();
    world.does(Step::CompleteWave);
}

#[test]
fn a_newer_rollout_ends_this_one_and_keeps_its_nodes() {
    let mut world = at_once(3);
    world.does(Step::Start);
    world.does(Step::Assign);
    let mut newer = world.view.wants[&name(1)].clone();
    newer.record.generation = 43;
    world.view.wants.insert(name(1), newer.clone());
    let mut stopping = World { view: world.view.clone(), ..at_once(3) };
    world.does(Step::Supersede);
    assert_eq!(world.state().why, Some(Why::Newer { node: name(1), generation: 43 }));
    assert_eq!(world.decide(), Act::Finished);
    // A stop that had begun goes on for the others.
    let mut state = stopping.view.state.clone().unwrap();
    state.record.phase = Phase::Stopping;
    stopping.view.state = Some(state);
    assert_eq!(stopping.does(Step::FallBack), names([0, 2]));
    // It does not begin at all where a newer one is.
    let mut late = at_once(3);
    late.view.wants.insert(name(1), newer);
    late.waits();
}

#[test]
fn nothing_is_decided_while_wants_are_older_than_the_state() {
    let mut world = at_once(3);
    world.does(Step::Start);
    let (wants, revision) = (world.view.wants.clone(), world.view.wants_revision);
    world.does(Step::Assign);
    world.ask(Verb::Abort, 1);
    world.does(Step::Stop);
    // With these wants it would seem that no node was ever touched, and the stop would be over.
    let whole = world.view.clone();
    world.view = View { wants, wants_revision: revision, ..whole.clone() };
    assert_eq!(world.waits(), None);
    world.view = whole;
    assert_eq!(world.does(Step::FallBack), names(0..3));
}

#[test]
fn held_nodes_do_not_hold_the_wave() {
    let mut world = at_once(2);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good([0]);
    world.says(1, Take::Document, NodePhase::Held);
    world.pass(3600);
    world.does(Step::CompleteWave);
}

#[test]
fn a_wave_ends_when_its_nodes_are_converged_after_the_soak() {
    let mut world = at_once(2);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good(0..2);
    world.does(Step::CompleteWave);
    world.pass(300);
    let drifted = Status { converged: false, ..world.status(1, Take::Document, NodePhase::Good) };
    world.view.statuses.insert(name(1), drifted);
    world.does(Step::Wait);
    assert_eq!(world.state().phase, Phase::Running);
    assert_eq!(world.state().why, Some(Why::Diverged { count: 1, nodes: names([1]) }));
    assert_eq!(world.waits(), None);
    world.are_good([1]);
    world.does(Step::Finish);
    assert_eq!(world.state().why, None);
}

#[test]
fn a_want_that_cannot_be_understood_pauses_and_is_left_alone() {
    let mut world = at_once(3);
    world.does(Step::Start);
    world.view.unreadable.insert(name(1), "format 2".to_owned());
    world.does(Step::Pause);
    let why = Why::Unreadable { node: name(1), why: "format 2".to_owned() };
    assert_eq!(world.state().why, Some(why));
    world.waits();
    world.view.unreadable.clear();
    world.does(Step::Resume);
    assert_eq!(world.does(Step::Assign).len(), 3);
}

#[test]
fn what_cannot_be_followed_says_why_and_goes_on_once_it_can() {
    let mut world = at_once(1);
    let follow =
        |world: &World, why: &str| cannot_follow(world.rollout.statement(), &world.view, why);
    let take = |world: &mut World, act: Act| {
        let Act::Write(act) = act else { panic!("{act:?}") };
        world.revision += 1;
        let record = State::read(&act.puts[0].value).unwrap();
        world.view.state = Some(Stored { record, revision: world.revision });
        world.view.wants_revision = world.revision;
    };
    let begun = follow(&world, "its leaves are gone");
    take(&mut world, begun);
    let why = |why: &str| Some(Why::Unusable { why: why.to_owned() });
    assert_eq!(
        (world.state().phase, &world.state().why),
        (Phase::Paused, &why("its leaves are gone"))
    );
    assert_eq!(follow(&world, "its leaves are gone"), Act::Wait { until: None });
    let other = follow(&world, "it is not signed");
    take(&mut world, other);
    assert_eq!((&world.state().why, world.state().acts), (&why("it is not signed"), 2));
    world.does(Step::Resume);
    world.does(Step::Assign);
}

#[test]
fn a_clock_that_was_set_back_makes_the_soak_longer_and_not_endless() {
    let mut world = at_once(1);
    world.does(Step::Start);
    world.does(Step::Assign);
    world.are_good([0]);
    world.now = "2026-11-16T20:00:00Z".parse().unwrap();
    world.does(Step::CompleteWave);
    world.now = "2026-11-16T12:00:00Z".parse().unwrap();
    world.does(Step::CompleteWave);
    world.pass(299);
    world.waits();
    world.pass(1);
    world.does(Step::Finish);
}

#[test]
fn leaves_that_were_not_signed_are_refused() {
    let signed = leaves(4);
    let statement = statement(&signed, &[Wave::Percent(100)]);
    let check = |leaves: Vec<Leaf>| {
        let error = Rollout::new(statement.clone(), leaves).unwrap_err();
        assert!(error.to_string().contains("its leaves are not those of the signed root"));
    };
    check(leaves(3));
    check(leaves(5));
    check(signed.iter().rev().cloned().collect());
    let mut twins = signed;
    twins[3].node = name(0);
    let root = Tree::new(twins.iter().map(Leaf::hash)).root();
    let error = Rollout::new(Statement { root, ..statement.clone() }, twins).unwrap_err();
    assert_eq!(error, Error::TwinNode { node: name(0) });
}
