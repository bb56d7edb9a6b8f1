//! References: for each shape a record in the store says whose it is. Who deletes it owns the shape.

use std::sync::Arc;

use homeostat_engine::Finding;
use homeostat_kit::simple::Versioned;
use homeostat_kit::strategy::Strategy;
use homeostat_kit::{Objects, Reconciler, Report};
use homeostat_shapes::client::Client;
use homeostat_shapes::refs::ShapeRefs;
use homeostat_shapes::shape::Shape;
use homeostat_shapes::source::Shapes;
use serde_json::json;

use crate::stage::{DOOR, Squares, Stage, TWO};

/// A process on any machine: what it knows of ownership is in the store.
fn process(stage: &Stage) -> Reconciler<Shapes> {
    let refs = ShapeRefs::new(Client::new(stage.service.addr()));
    Reconciler::new(stage.api(), Strategy::Checkpoint).ledger(Arc::new(refs))
}

fn objects(squares: Squares<'_>) -> Objects<Shapes> {
    let object = |colour: &str| Versioned::declared(Shape::square(colour));
    squares.iter().map(|(name, colour)| ((*name).to_owned(), object(colour))).collect()
}

async fn pass(reconciler: &Reconciler<Shapes>, squares: Squares<'_>) -> Report<String> {
    reconciler.reconcile(&objects(squares)).await.unwrap()
}

fn refs(stage: &Stage) -> Vec<String> {
    stage.service.state().refs.keys().cloned().collect()
}

/// What a user does who cleans up in the wrong place.
fn delete_reference(stage: &Stage, name: &str) {
    let client = Client::new(stage.service.addr());
    let reply = client.blocking("DELETE", &format!("/refs/{name}"), &json!(null)).unwrap();
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_reference_is_there_before_its_shape_and_goes_after_it() {
    let stage = Stage::new(Strategy::Checkpoint);
    assert!(pass(&process(&stage), DOOR).await.is_converged());
    let calls = stage.calls();
    assert!(calls[0].starts_with("POST /refs"), "{calls:?}");
    assert!(calls[1].starts_with("POST /shapes"), "{calls:?}");
    assert_eq!(refs(&stage), ["my-door"]);

    stage.calls();
    assert!(pass(&process(&stage), &[]).await.is_converged());
    let calls = stage.calls();
    assert!(calls[0].starts_with("DELETE /shapes"), "{calls:?}");
    assert_eq!(calls.last().unwrap(), r#"POST /refs {"my-door":null}"#);
    assert!(refs(&stage).is_empty());
}

#[tokio::test]
async fn a_dangling_reference_is_found_by_the_next_process_on_any_machine() {
    let stage = Stage::new(Strategy::Checkpoint);
    stage.service.paint("cloud", "white");
    pass(&process(&stage), TWO).await;
    // Both declarations go while no loop runs, and one shape does, too.
    stage.service.remove("my-window");
    assert_eq!(refs(&stage), ["my-door", "my-window"]);
    pass(&process(&stage), &[]).await;
    assert_eq!(stage.service.shown(), "white cloud");
    assert!(refs(&stage).is_empty());
}

#[tokio::test]
async fn who_deletes_a_reference_owns_the_shape_until_it_is_adopted() {
    let stage = Stage::new(Strategy::Checkpoint);
    pass(&process(&stage), TWO).await;
    delete_reference(&stage, "my-door");
    delete_reference(&stage, "my-window");
    stage.calls();

    // One is still declared, and the other is not. Both are somebody else's now.
    pass(&process(&stage), DOOR).await;
    stage.service.paint("my-door", "red");
    let report = pass(&process(&stage), DOOR).await;
    let finding = report.finding(&"my-door".to_owned());
    assert!(matches!(finding, Some(Finding::Conflict { .. })), "{report}");
    assert_eq!(stage.service.shown(), "red my-door, blue my-window");
    assert!(stage.calls().is_empty(), "nothing is healed, and nothing is deleted");

    // The way back is a person's decision.
    let report = pass(&process(&stage).adopting(["my-door".to_owned()]), DOOR).await;
    assert!(report.is_converged(), "{report}");
    assert_eq!(refs(&stage), ["my-door"]);
    pass(&process(&stage), &[]).await;
    assert_eq!(stage.service.shown(), "blue my-window", "the window stays with who broke it");
}
