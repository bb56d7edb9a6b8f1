//! Whole rollouts over a store in memory and over real members of etcd: coordinators that are killed, a store with faults,
//! and simulated nodes. The history of the store is the judge's only evidence.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod counted;
mod disturbed;
mod members;
mod simulated;
mod world;

use std::sync::Arc;
use std::time::Duration;

use homeostat_fleet::records::{NodePhase, Phase, Take, Why};
use homeostat_store::{
    Call, Fault, Keys as Range, MemoryStore, RuntimeTime, Store as _, Transaction,
};

use counted::Counted;
use simulated::{Dice, SECOND, name, pass_time};
use world::{NODES, World, Written, node, run};

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

/// The leader lists everything several times while the node is away: it has been away all the time.
#[tokio::test(start_paused = true)]
async fn a_good_node_that_is_lost_while_its_wave_soaks_stops_the_rollout() {
    let store = MemoryStore::new();
    let world = World::new(Arc::new(store.clone()), Arc::new(RuntimeTime::new()), "edge");
    let world = world.soaking("10m");
    world.publish().await;
    let nodes = world.live(|_| Arc::new(store.clone()), &[], 3);
    let _leader = world.coordinate(Arc::new(store.clone()), "a");
    let soaks = async {
        while world.state().await.is_none_or(|state| state.complete.is_none()) {
            pass_time(SECOND).await;
        }
    };
    tokio::time::timeout(HOUR, soaks).await.expect("the first wave is complete");
    nodes[0].abort();
    let state = world.ended(HOUR, SECOND).await;
    assert_eq!(state.phase, Phase::Stopped);
    assert_eq!(state.why, Some(Why::Failed { count: 1, nodes: vec![node(0)] }));
}

#[tokio::test(start_paused = true)]
async fn only_what_is_needed_is_listed() {
    let (store, world) = in_memory().await;
    let blob = Transaction::new().put(world.keys.all("blob") + "all/x", vec![0; 1000]);
    let _ = store.commit(blob).await.unwrap();
    world.live(|_| Arc::new(store.clone()), &[], 4);
    let counted = Arc::new(Counted::new(store));
    let _leader = world.coordinate(Arc::clone(&counted) as _, "a");
    assert_eq!(world.ended(HOUR, SECOND).await.phase, Phase::Done);
    // Then there is nothing to do.
    pass_time(Duration::from_mins(2)).await;
    let seen = counted.take();
    assert!(!seen.is_empty());
    for kind in ["blob", "doc", "inventory", "plan"] {
        let key = world.keys.all(kind) + "x";
        assert!(seen.iter().all(|keys| !keys.contain(&key)), "{seen:?}");
    }
    pass_time(Duration::from_mins(30)).await;
    let rollouts = Range::Below(world.keys.all("rollout"));
    let quiet = counted.take();
    assert!(quiet.iter().all(|keys| *keys == rollouts), "{quiet:?}");
    assert!(quiet.len() < 2 * 31, "{}", quiet.len());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_understood_or_followed_holds_no_other_rollout_and_says_why() {
    let (store, world) = in_memory().await;
    world.publish_as("without-leaves", 9, Written::Nothing).await;
    world.publish_as("of-a-newer-version", 8, Written::Leaves).await;
    let state = world.keys.state(&name("of-a-newer-version"));
    let _ = store.commit(Transaction::new().put(state, "{\"format\":2}")).await.unwrap();
    world.live(|_| Arc::new(store.clone()), &[], 5);
    let _leader = world.coordinate(Arc::new(store.clone()), "a");
    assert_eq!(world.ended(HOUR, SECOND).await.phase, Phase::Done);
    let state = world.state_of("without-leaves").await.unwrap();
    assert_eq!(state.phase, Phase::Paused);
    let why = "its leaves are not those of the signed root";
    assert!(
        matches!(&state.why, Some(Why::Unusable { why: found }) if found.contains(why)),
        "{state:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_is_not_signed_as_it_must_be_replaces_no_rollout() {
    let (store, world) = in_memory().await;
    world.publish_as("forged", u64::MAX, Written::Leaves).await;
    world.live(|_| Arc::new(store.clone()), &[], 6);
    let verified = world.coordinator(Arc::new(store.clone()), "a").with_verification(|signed| {
        let is_forged = signed.statement.contains("forged");
        if is_forged { Err("nobody signed it".to_owned()) } else { Ok(()) }
    });
    let _leader = run(verified);
    assert_eq!(world.ended(HOUR, SECOND).await.phase, Phase::Done);
    let state = world.state_of("forged").await.unwrap();
    assert_eq!(state.why, Some(Why::Unusable { why: "nobody signed it".to_owned() }));
    assert_eq!(state.counts.touched, 0);
    world.judge(
        &store.history().into_iter().filter(|(_, key, _)| !key.contains("forged")).collect(),
    );
}
