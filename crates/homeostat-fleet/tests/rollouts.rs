//! Rollouts over a simulated fleet with faults, judged by their whole history; and wrong decisions, which the judge finds.
//!
//! A history that breaks a law is named by its seed; `HOMEOSTAT_SEED` runs that one alone.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "rollouts/dice.rs"]
mod dice;
#[path = "rollouts/laws.rs"]
mod laws;
#[path = "rollouts/world.rs"]
mod world;

use std::collections::BTreeMap;

use homeostat_fleet::Time;
use homeostat_fleet::decide::{Act, Expected, Rollout, Step, Transaction, View, decide};
use homeostat_fleet::records::{Phase, Record, State, Statement, Wave};

use crate::laws::{Law, judge};
use crate::world::{Decide, Kind, World, is_failure};

/// All but the end by a newer rollout, of which these histories have none.
const EXPECTED: [Step; 11] = [
    Step::Start,
    Step::Assign,
    Step::CompleteWave,
    Step::NextWave,
    Step::Finish,
    Step::Pause,
    Step::Resume,
    Step::SetAside,
    Step::Stop,
    Step::FallBack,
    Step::FinishStop,
];

fn extent() -> u64 {
    if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 200_000 } else { 400 }
}

#[test]
fn every_history_keeps_the_laws() {
    let only = std::env::var("HOMEOSTAT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..extent(), |seed: u64| seed..seed + 1);
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    let mut steps: BTreeMap<Step, u64> = BTreeMap::new();
    let mut refused = 0;
    for seed in seeds {
        let mut world = World::new(seed, decide);
        world.run();
        if let Err((law, what)) = judge(&world) {
            panic!("seed {seed}: {law:?}: {what}\n{}", world.describe());
        }
        *ends.entry(format!("{:?}", world.state().unwrap().phase)).or_default() += 1;
        refused += world.refused;
        for event in &world.history {
            if let Kind::Act { step, .. } = &event.kind {
                *steps.entry(*step).or_default() += 1;
            }
        }
    }
    println!("{ends:?} {steps:?}, {refused} acts refused by guards");
    // The histories are worth something only if rollouts end in both ways.
    if only.is_none() {
        assert!(ends.len() == 2 && ends.values().all(|count| *count > 50), "{ends:?}");
        assert!(EXPECTED.iter().all(|step| steps.contains_key(step)), "{steps:?}");
        assert!(refused > 1000, "{refused}");
    }
}

/// A wrong decision is found, and named by one of these laws.
#[track_caller]
fn check(wrong: Decide, laws: &[Law]) {
    let mut found: BTreeMap<Law, u64> = BTreeMap::new();
    for seed in 0..300 {
        let mut world = World::new(seed, wrong);
        world.run();
        if let Err((law, _)) = judge(&world) {
            *found.entry(law).or_default() += 1;
        }
        if laws.iter().any(|law| found.contains_key(law)) {
            return;
        }
    }
    panic!("it was not found, but only {found:?}");
}

/// Decides by another statement than the signed one.
fn by(rollout: &Rollout, view: &View, now: Time, change: fn(&mut Statement)) -> Act {
    let mut statement = rollout.statement().clone();
    change(&mut statement);
    decide(&Rollout::new(statement, rollout.leaves().to_vec()).unwrap(), view, now)
}

/// Changes the transaction of an act.
fn but(act: Act, change: impl FnOnce(&mut Transaction)) -> Act {
    match act {
        Act::Write(mut transaction) => {
            change(&mut transaction);
            Act::Write(transaction)
        }
        other => other,
    }
}

#[test]
fn the_judge_finds_who_ignores_the_limit() {
    let wrong: Decide =
        |rollout, view, now| by(rollout, view, now, |it| it.max_in_flight = u64::MAX);
    check(wrong, &[Law::InFlight]);
}

#[test]
fn the_judge_finds_who_assigns_all_at_once() {
    let wrong: Decide =
        |rollout, view, now| by(rollout, view, now, |it| it.waves = vec![Wave::Percent(100)]);
    check(wrong, &[Law::WaveOrder]);
}

#[test]
fn the_judge_finds_who_does_not_soak() {
    let wrong: Decide =
        |rollout, view, now| by(rollout, view, now, |it| it.soak = "0s".parse().unwrap());
    check(wrong, &[Law::Soak]);
}

#[test]
fn the_judge_finds_who_ignores_failures() {
    let wrong: Decide = |rollout, view, now| by(rollout, view, now, |it| it.max_failed = u64::MAX);
    check(wrong, &[Law::Stop]);
}

#[test]
fn the_judge_finds_who_acts_without_the_term() {
    let wrong: Decide = |rollout, view, now| {
        but(decide(rollout, view, now), |transaction| {
            transaction.guards.retain(|it| !matches!(it.expected, Expected::Created { .. }));
        })
    };
    check(wrong, &[Law::Terms]);
}

#[test]
fn the_judge_finds_who_acts_on_an_old_state() {
    let wrong: Decide = |rollout, view, now| {
        but(decide(rollout, view, now), |transaction| {
            transaction.guards.retain(|it| matches!(it.expected, Expected::Created { .. }));
        })
    };
    check(wrong, &[Law::Generations, Law::Acts]);
}

#[test]
fn the_judge_finds_who_forgets_the_touched_nodes() {
    let wrong: Decide = |rollout, view, now| {
        but(decide(rollout, view, now), |transaction| {
            if transaction.step == Step::Stop {
                let state = State::read(&transaction.puts[0].value).unwrap();
                transaction.puts[0].value = State { phase: Phase::Stopped, ..state }.write();
            }
        })
    };
    check(wrong, &[Law::GoodEnd]);
}

#[test]
fn the_judge_finds_who_tries_a_failed_node_again() {
    let wrong: Decide = |rollout, view, now| {
        let mut view = view.clone();
        let failed: Vec<_> = view
            .statuses
            .iter()
            .filter(|(_, it)| is_failure(it))
            .map(|(node, _)| node.clone())
            .collect();
        for node in &failed {
            view.wants.remove(node);
            view.statuses.remove(node);
        }
        but(decide(rollout, &view, now), |transaction| {
            transaction
                .guards
                .retain(|it| failed.iter().all(|node| !it.key.contains(node.as_str())));
        })
    };
    check(wrong, &[Law::Generations]);
}

#[test]
fn the_judge_finds_who_gives_up() {
    let wrong: Decide = |rollout, view, now| match decide(rollout, view, now) {
        Act::Write(transaction) if transaction.step == Step::NextWave => Act::Wait { until: None },
        act => act,
    };
    check(wrong, &[Law::End]);
}
