//! Declarations in a store: the finalizer is set, the shape created; deleted, the shape goes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_kit::Reconciler;
use homeostat_kit::lifecycle::{Finalizers as _, Lifecycle};
use homeostat_kit::strategy::Strategy;
use homeostat_shapes::client::{Client, Tap};
use homeostat_shapes::declarations::Declarations;
use homeostat_shapes::service::Effect;
use homeostat_shapes::shape::Shape;
use homeostat_shapes::source::Shapes;
use homeostat_testkit::ledger::Tapped;

use crate::stage::{Lent, Stage, marker, until};

const FINALIZER: &str = "shapes";

fn store(client: Client) -> Declarations {
    Declarations { client, finalizer: FINALIZER.to_owned() }
}

fn users(stage: &Stage) -> Declarations {
    store(Client::new(stage.service.addr()))
}

/// A process that dies at one of its boundaries: before or after a request to write or a record. Nothing that it tries
/// after that takes effect.
#[derive(Clone)]
struct Fuse {
    at: u64,
    passed: Arc<AtomicU64>,
}

impl Fuse {
    fn new(at: u64) -> Self {
        Fuse { at, passed: Arc::default() }
    }

    fn is_dead(&self) -> bool {
        self.passed.load(Ordering::SeqCst) >= self.at
    }

    fn tap(&self) -> Tap {
        let fuse = self.clone();
        Arc::new(move |when| {
            fuse.passed.fetch_add(1, Ordering::SeqCst);
            assert!(!fuse.is_dead(), "the process dies {when} it");
        })
    }
}

/// One process: it follows the store until the goal is reached or it dies. Returns whether it died.
async fn runs(stage: &Arc<Stage>, at: u64, goal: fn(&Stage) -> bool) -> bool {
    let fuse = Fuse::new(at);
    let client = Client::new(stage.service.addr()).tapped(fuse.tap());
    let (before, after) = (fuse.tap(), fuse.tap());
    let ledger = Tapped::new(Lent(stage.ledger.clone()))
        .before(move |_, _| before("before"))
        .after(move |_, _| after("after"));
    let strategy = stage.strategy.clone();
    let source = Shapes { client: client.clone(), strategy: strategy.clone() };
    let reconciler = Reconciler::new(source, strategy).ledger(Arc::new(ledger));
    let process = tokio::spawn({
        let stage = Arc::clone(stage);
        let goal = async move { until("the goal", || goal(&stage)).await };
        async move { reconciler.run(Lifecycle::new(store(client)), goal).await.unwrap() }
    });
    until("the end", || process.is_finished() || fuse.is_dead()).await;
    // A loop survives a panic in its pass, a process does not survive its death.
    process.abort();
    let ended = process.await;
    assert!(ended.is_ok() || fuse.is_dead(), "{ended:?}");
    fuse.is_dead()
}

const NEVER: u64 = u64::MAX;

fn is_made(stage: &Stage) -> bool {
    stage.service.colour("my-door").is_some()
}

fn is_vanished(stage: &Stage) -> bool {
    stage.service.state().store.declarations.is_empty()
}

/// Nothing is made for a declaration that could vanish: it is there, and has its finalizer.
#[track_caller]
fn check(stage: &Stage, context: &str) {
    let left = stage.service.state();
    for name in left.shapes.keys().filter(|name| *name != "cloud") {
        let declared = left.store.declarations.get(name);
        let is_held = declared.is_some_and(|one| one.finalizers.contains(FINALIZER));
        assert!(is_held, "{context}: {name} could be leaked");
    }
}

#[tokio::test]
async fn a_declaration_that_is_deleted_vanishes_after_its_shape_and_not_before() {
    let stage = Arc::new(Stage::new(marker()));
    users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
    let running = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { runs(&stage, NEVER, is_vanished).await }
    });
    until("the door", || is_made(&stage)).await;
    let calls = stage.calls();
    assert!(calls[1].starts_with("PUT /declarations/my-door/finalizers/shapes"), "{calls:?}");
    assert!(calls[2].starts_with("POST /shapes"), "{calls:?}");

    stage.service.state().faults.frozen.insert("my-door".to_owned());
    users(&stage).delete("my-door").await.unwrap();
    let is_tried = || stage.service.state().calls.iter().any(|call| call.starts_with("DELETE /sh"));
    until("a failed delete", is_tried).await;
    assert!(stage.service.state().store.declarations["my-door"].deleting, "its cleanup failed");
    stage.service.state().faults.frozen.clear();
    assert!(!running.await.unwrap());
    assert_eq!(stage.service.shown(), "");
}

#[tokio::test]
async fn a_declaration_is_followed_by_the_watch_of_its_store() {
    let stage = Arc::new(Stage::new(marker()));
    let running = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { runs(&stage, NEVER, |stage| stage.service.shown() == "blue my-door").await }
    });
    users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
    until("the door", || is_made(&stage)).await;
    // The watch ends, and the changes meanwhile are no longer known: the store is listed again.
    stage.service.state().store.compact();
    users(&stage).declare("my-door", &Shape::square("blue")).await.unwrap();
    stage.service.state().store.compact();
    assert!(!running.await.unwrap());
}

#[tokio::test]
async fn finalizers_survive_a_crash_at_every_step() {
    let mut boundaries = 0;
    for strategy in [marker(), Strategy::Checkpoint] {
        for at in 1.. {
            let stage = Arc::new(Stage::new(strategy.clone()));
            stage.service.paint("cloud", "white");
            let context = format!("killed at {at}");
            users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
            let died_young = runs(&stage, at, is_made).await;
            check(&stage, &context);
            runs(&stage, NEVER, is_made).await;
            assert_eq!(stage.service.shown(), "white cloud, green my-door", "{context}");
            users(&stage).delete("my-door").await.unwrap();
            let died_old = runs(&stage, at, is_vanished).await;
            check(&stage, &context);
            runs(&stage, NEVER, is_vanished).await;
            let left = stage.service.state();
            assert_eq!(left.shapes.len(), 1, "{context}");
            let made = left.effects.iter().filter(|effect| matches!(effect, Effect::Made(..)));
            assert_eq!(made.count(), 2, "{context}: the cloud, and the door once");
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
    assert!(runs(&stage, 3, is_made).await);
    let declared = stage.service.state().store.declarations["my-door"].clone();
    assert!(declared.finalizers.contains(FINALIZER));
    assert_eq!(stage.service.shown(), "");
    users(&stage).delete("my-door").await.unwrap();
    runs(&stage, NEVER, is_vanished).await;
    assert!(!stage.calls().iter().any(|call| call.starts_with("POST")), "nothing was made for it");
}

#[tokio::test]
async fn an_operator_can_take_a_finalizer_off_by_force() {
    let stage = Arc::new(Stage::new(marker()));
    users(&stage).declare("my-door", &Shape::square("green")).await.unwrap();
    runs(&stage, NEVER, is_made).await;
    users(&stage).delete("my-door").await.unwrap();
    // Nobody will ever clean up: the owner is gone for good.
    assert!(!is_vanished(&stage));
    users(&stage).remove_finalizer(&"my-door".to_owned()).await.unwrap();
    assert!(is_vanished(&stage));
    assert_eq!(stage.service.shown(), "green my-door", "what was made stays");
}
