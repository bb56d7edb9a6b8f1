//! The finalizer dance: set it, apply; asked to go, clean up, take it off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_kit::simple::{Adapted, DesiredObjects, Versioned};
use homeostat_kit::strategy::Strategy;
use homeostat_shapes::client::{Client, Tap};
use homeostat_shapes::declarations::Declarations;
use homeostat_shapes::lifecycle::{Lifecycle, Store as _};
use homeostat_shapes::service::Effect;
use homeostat_shapes::shape::Shape;
use homeostat_shapes::source::Shapes;
use homeostat_testkit::ledger::Tapped;

use crate::stage::{Life, Stage, marker};

const FINALIZER: &str = "shapes";

fn store(client: Client) -> Declarations {
    Declarations { client, finalizer: FINALIZER.to_owned() }
}

/// Dies at one of its boundaries: before or after a request to write or a record.
fn fuse(at: u64) -> Tap {
    let passed = AtomicU64::new(0);
    Arc::new(move |when| {
        assert!(passed.fetch_add(1, Ordering::SeqCst) + 1 != at, "the process dies {when} it");
    })
}

/// One process: it looks at the store, makes one pass, and takes finalizers off.
async fn round(stage: &Stage, tap: Tap) {
    let client = Client::new(stage.service.addr()).tapped(Arc::clone(&tap));
    let (before, after) = (Arc::clone(&tap), tap);
    let ledger = Tapped::new(crate::stage::Lent(stage.ledger.clone()))
        .before(move |_, _| before("before"))
        .after(move |_, _| after("after"));
    let (strategy, lifecycle) = (stage.strategy.clone(), Lifecycle::new(store(client.clone())));
    let source = Adapted::new(Shapes { client, strategy: strategy.clone() });
    let mut life = Life::begin(&source, &strategy, Arc::new(ledger));
    let round = lifecycle.begin().await.unwrap();
    let declared = round.declared().iter().cloned();
    let desired =
        DesiredObjects::new(declared.map(|(key, shape)| (key, Versioned::declared(shape))))
            .unwrap();
    let report = life.report(desired).await.unwrap();
    lifecycle.finish(round.judged(&report)).await.unwrap();
}

/// Lets a process live until it dies at a boundary; tells whether it did.
async fn dies(stage: &Arc<Stage>, at: u64) -> bool {
    let stage = Arc::clone(stage);
    // A panic ends the task as a kill would: what was in flight is cut off, nothing runs after it.
    tokio::spawn(async move { round(&stage, fuse(at)).await }).await.is_err()
}

async fn live(stage: &Arc<Stage>) {
    assert!(!dies(stage, 0).await);
}

/// Nothing is made for a declaration that could vanish: it is there, and held.
#[track_caller]
fn check(stage: &Stage, told: &str) {
    let held = stage.service.state();
    for name in held.shapes.keys().filter(|name| *name != "cloud") {
        let declared = held.declarations.get(name);
        let is_held = declared.is_some_and(|one| one.finalizers.contains(FINALIZER));
        assert!(is_held, "{told}: {name} could be leaked");
    }
}

fn users(stage: &Stage) -> Declarations {
    store(Client::new(stage.service.addr()))
}

#[tokio::test]
async fn a_declaration_that_is_deleted_vanishes_after_its_shape_and_not_before() {
    let stage = Arc::new(Stage::new(marker()));
    users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
    live(&stage).await;
    assert_eq!(stage.service.shown(), "green my-door");
    let calls = stage.calls();
    assert!(calls[1].starts_with("PUT /declarations/my-door/finalizers/shapes"), "{calls:?}");
    assert!(calls[2].starts_with("POST /shapes"), "{calls:?}");

    users(&stage).delete("my-door").await.unwrap();
    stage.service.state().faults.frozen.insert("my-door".to_owned());
    live(&stage).await;
    assert!(stage.service.state().declarations["my-door"].deleting, "its cleanup failed");
    stage.service.state().faults.frozen.clear();
    live(&stage).await;
    assert_eq!(stage.service.shown(), "");
    assert!(stage.service.state().declarations.is_empty());
}

#[tokio::test]
async fn the_finalizer_dance_survives_a_crash_at_every_step() {
    let mut boundaries = 0;
    for strategy in [marker(), Strategy::Checkpoint] {
        for at in 1.. {
            let stage = Arc::new(Stage::new(strategy.clone()));
            stage.service.paint("cloud", "white");
            let told = format!("killed at {at}");
            users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
            let died_young = dies(&stage, at).await;
            check(&stage, &told);
            live(&stage).await;
            assert_eq!(stage.service.shown(), "white cloud, green my-door", "{told}");
            users(&stage).delete("my-door").await.unwrap();
            let died_old = dies(&stage, at).await;
            check(&stage, &told);
            live(&stage).await;
            check(&stage, &told);
            let left = stage.service.state();
            assert!(left.declarations.is_empty(), "{told}");
            assert_eq!(left.shapes.len(), 1, "{told}");
            let made = left.effects.iter().filter(|effect| matches!(effect, Effect::Made(..)));
            assert_eq!(made.count(), 2, "{told}: the cloud, and the door once");
            if !died_young && !died_old {
                break;
            }
            boundaries += 1;
        }
    }
    assert!(boundaries > 10, "only {boundaries} boundaries");
}

#[tokio::test]
async fn a_cleanup_runs_although_nothing_was_ever_applied() {
    let stage = Arc::new(Stage::new(marker()));
    users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
    // The finalizer is set, and the process dies before it makes anything.
    assert!(dies(&stage, 3).await);
    assert!(stage.service.state().declarations["my-door"].finalizers.contains(FINALIZER));
    assert_eq!(stage.service.shown(), "");
    users(&stage).delete("my-door").await.unwrap();
    live(&stage).await;
    assert!(stage.service.state().declarations.is_empty());
    assert!(!stage.calls().iter().any(|call| call.starts_with("POST")), "nothing was made for it");
}

#[tokio::test]
async fn an_operator_can_take_a_finalizer_off_by_force() {
    let stage = Arc::new(Stage::new(marker()));
    users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
    live(&stage).await;
    users(&stage).delete("my-door").await.unwrap();
    // Nobody will ever clean up: the owner is gone for good.
    assert_eq!(users(&stage).list().await.unwrap().len(), 1);
    Lifecycle::new(users(&stage)).release(&"my-door".to_owned()).await.unwrap();
    assert!(stage.service.state().declarations.is_empty());
    assert_eq!(stage.service.shown(), "green my-door", "what was made stays");
}
