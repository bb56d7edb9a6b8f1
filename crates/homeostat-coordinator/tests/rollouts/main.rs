//! Whole rollouts over a store in memory and over real members of etcd: coordinators that are killed, a store with faults,
//! and simulated nodes. The history of the store is the judge's only evidence.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod members;
mod simulated;
mod world;

use std::sync::Arc;
use std::time::Duration;

use homeostat_fleet::records::{NodePhase, Phase, Take};
use homeostat_store::{Call, Fault, MemoryStore, RuntimeTime};

use simulated::{Dice, SECOND, pass_time};
use world::{NODES, World};

const HOUR: Duration = Duration::from_hours(1);

async fn in_memory() -> (MemoryStore, World) {
    let store = MemoryStore::new();
    let world = World::new(Arc::new(store.clone()), Arc::new(RuntimeTime::new()), "edge");
    world.publish().await;
    (store, world)
}

#[tokio::test(start_paused = true)]
async fn a_rollout_reaches_every_node_in_waves() {
    let (store, world) = in_memory().await;
    world.live(|_| Arc::new(store.clone()), &[], 1);
    let _leader = world.coordinate(Arc::new(store.clone()), "a");
    let _standby = world.coordinate(Arc::new(store.clone()), "b");
    assert_eq!(world.ended(HOUR, SECOND).await.phase, Phase::Done);
    let judged = world.judge(&store.history());
    assert_eq!(judged.wants.len() as u64, NODES);
    let is_good = |answer: &(Take, NodePhase)| *answer == (Take::Document, NodePhase::Good);
    assert!(judged.answers.values().all(is_good));
}

#[tokio::test(start_paused = true)]
async fn a_bad_node_stops_it_and_every_touched_node_goes_to_its_fallback() {
    for bad in [0, 4, 15] {
        let (store, world) = in_memory().await;
        world.live(|_| Arc::new(store.clone()), &[bad], 2);
        let _leader = world.coordinate(Arc::new(store.clone()), "a");
        let state = world.ended(HOUR, SECOND).await;
        assert_eq!(state.phase, Phase::Stopped, "{bad}");
        let judged = world.judge(&store.history());
        let untouched = if bad == 0 {
            1
        } else if bad < 10 {
            10
        } else {
            NODES
        };
        assert!(
            judged.wants.len() as u64 <= untouched,
            "{bad}: {} are touched",
            judged.wants.len()
        );
        for (node, takes) in &judged.wants {
            assert_eq!(takes, &[Take::Document, Take::Fallback], "{node}");
            assert_eq!(judged.answers[node], (Take::Fallback, NodePhase::Good), "{node}");
        }
    }
}

/// The leader is killed, answers of the store are lost or late, watches break or fall silent, and history is compacted.
#[tokio::test(start_paused = true)]
async fn thirty_disturbed_rollouts_break_no_rule() {
    let seeds = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 10_000 } else { 30 };
    for seed in 0..seeds {
        let (store, world) = in_memory().await;
        let bad: &[u64] = if seed % 3 == 0 { &[12] } else { &[] };
        world.live(|_| Arc::new(store.clone()), bad, seed);
        let mut dice = Dice(seed);
        let mut fault_dice = Dice(seed + 77);
        store.set_faults(move |call| match fault_dice.roll(60) {
            0 => Fault::Unreachable,
            1 if call != Call::Grant => Fault::LostAnswer,
            2 if call == Call::Commit => {
                Fault::LateRequest(Duration::from_millis(fault_dice.roll(2000)))
            }
            3 => Fault::NoLeader,
            4 => Fault::Delay(Duration::from_millis(fault_dice.roll(1500))),
            _ => Fault::None,
        });
        let mut coordinators: Vec<_> =
            ["a", "b", "c"].map(|name| world.coordinate(Arc::new(store.clone()), name)).into();
        for nth in 0..20 {
            pass_time(Duration::from_millis(dice.roll(4000))).await;
            match dice.roll(5) {
                0 => store.compact(),
                1 => store.break_watches(),
                2 => store.mute_watches(),
                3 => {
                    let which = usize::try_from(dice.roll(3)).unwrap();
                    coordinators[which].abort();
                    coordinators[which] =
                        world.coordinate(Arc::new(store.clone()), &format!("again{nth}"));
                }
                _ => {}
            }
        }
        store.clear_faults();
        let state = world.ended(HOUR, SECOND).await;
        let expected = if bad.is_empty() { Phase::Done } else { Phase::Stopped };
        assert_eq!(state.phase, expected, "seed {seed}: {state:?}");
        world.judge(&store.history());
    }
}
