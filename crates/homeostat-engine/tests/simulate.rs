//! A seeded simulator: schedules of hints, passes, failures, desired states, saboteurs, stops and restarts,
//! in virtual time, each judged by the laws of the loop at its end.
//!
//! A schedule that breaks a law is named by its seed; `HOMEOSTAT_SEED` runs that one alone.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "simulate/dice.rs"]
mod dice;
#[path = "simulate/schedule.rs"]
mod schedule;
#[path = "simulate/world.rs"]
mod world;

use homeostat_engine::Ownership;

use crate::schedule::Schedule;

/// How many schedules are run.
fn extent() -> u64 {
    if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 100_000 } else { 400 }
}

fn check(ownership: fn() -> Ownership) {
    let only = std::env::var("HOMEOSTAT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..extent() / 2, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let verdict = runtime.unwrap().block_on(Schedule::new(seed, ownership()).run());
        if let Err((law, history)) = verdict {
            panic!("seed {seed}: {law}\n{}", history.join("\n"));
        }
    }
}

#[test]
fn every_schedule_keeps_the_laws_where_the_target_holds_marks() {
    check(|| Ownership::Marked);
}

#[test]
fn every_schedule_keeps_the_laws_where_only_the_ledger_knows_what_is_ours() {
    check(|| Ownership::Checkpoint);
}
