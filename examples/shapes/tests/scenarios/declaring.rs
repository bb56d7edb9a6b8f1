//! From the request to the service: one way, and no more than needed.

use homeostat_kit::normalize::broken;
use homeostat_kit::simple::{Api as _, DesiredObjects, Refusal, Versioned};
use homeostat_shapes::shape::{FIELDS, Shape};
use proptest::prelude::*;

use crate::stage::{DOOR, Stage, TWO, marker};

#[tokio::test]
async fn what_is_declared_is_made() {
    let stage = Stage::new(marker());
    let report = stage.life().pass(TWO).await;
    assert_eq!(report.applied, ["+ my-door", "+ my-window"]);
    assert!(report.converged);
    assert_eq!(stage.service.shown(), "green my-door, blue my-window");
}

#[tokio::test]
async fn a_second_pass_writes_nothing() {
    for strategy in crate::stage::shared() {
        let stage = Stage::new(strategy);
        let mut life = stage.life();
        life.pass(TWO).await;
        assert_eq!(stage.calls().len(), 2);
        for report in [life.pass(TWO).await, stage.life().pass(TWO).await] {
            assert!(report.converged && report.applied.is_empty(), "{report:?}");
        }
        assert!(stage.calls().is_empty());
    }
}

#[tokio::test]
async fn an_edit_patches_only_the_changed_field() {
    let stage = Stage::new(marker());
    let mut life = stage.life();
    life.pass(TWO).await;
    stage.calls();
    let report = life.pass(&[("my-door", "purple"), ("my-window", "blue")]).await;
    assert_eq!(report.applied, ["~ my-door"]);
    assert_eq!(stage.calls(), [r#"PATCH /shapes/my-door {"colour":"purple"}"#]);
}

#[tokio::test]
async fn what_is_no_longer_declared_goes() {
    let stage = Stage::new(marker());
    let mut life = stage.life();
    life.pass(TWO).await;
    assert_eq!(life.pass(DOOR).await.applied, ["- my-window"]);
    assert_eq!(stage.service.shown(), "green my-door");
}

#[tokio::test]
async fn a_field_that_does_not_read_back_is_reported_and_never_corrected() {
    let stage = Stage::new(marker());
    let mut life = stage.life();
    let noted = |colour: &str| {
        let note = Some("a long story".to_owned());
        let shape = Versioned::declared(Shape { note, ..Shape::square(colour) });
        DesiredObjects::new([("my-door".to_owned(), shape)]).unwrap()
    };
    life.try_pass(noted("green")).await.unwrap();
    stage.calls();
    for _ in 0..3 {
        let report = life.try_pass(noted("green")).await.unwrap();
        assert!(report.open["my-door"].contains("`note` differs"), "{report:?}");
    }
    assert!(stage.calls().is_empty(), "the service cuts notes short: correcting it never ends");
    let report = life.try_pass(noted("red")).await.unwrap();
    assert!(report.open["my-door"].contains("`note` differs"), "{report:?}");
    assert_eq!(stage.calls(), [r#"PATCH /shapes/my-door {"colour":"red"}"#]);
}

#[tokio::test]
async fn a_write_is_refused_if_somebody_changed_the_shape_since_it_was_seen() {
    let stage = Stage::new(marker());
    stage.life().pass(DOOR).await;
    let api = stage.api();
    let listed = api.list().await.unwrap();
    let homeostat_engine::Seen::Present { key, object, .. } = &listed[0] else { panic!() };
    stage.service.paint("my-door", "red");
    let wanted = Versioned::declared(Shape::square("blue"));
    assert_eq!(api.update(key, object, &wanted).await, Err(Refusal::Moved));
    assert_eq!(api.delete(key, object).await, Err(Refusal::Moved));
    assert_eq!(stage.service.colour("my-door").unwrap(), "red");
}

fn shapes() -> impl Strategy<Value = Shape> {
    let labels = prop::collection::btree_map("[a-z]{1,4}", "[ -~]{0,6}", 0..3);
    ("[a-z]{1,6}", "[ a-zA-ZäÖß]{1,9}", labels).prop_map(|(kind, colour, labels)| Shape {
        kind,
        colour,
        labels,
        note: None,
    })
}

#[test]
fn every_proven_field_reads_back_as_it_was_written() {
    let stage = Stage::new(marker());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api = stage.api();
    proptest!(ProptestConfig::with_cases(64), |(shape in shapes())| {
        let found = runtime.block_on(broken(&FIELDS, shape, async |shape| {
            stage.service.remove("my-sample");
            let made = api.create(&"my-sample".to_owned(), &Versioned::declared(shape)).await;
            Ok((*made.unwrap().unwrap()).clone())
        }));
        prop_assert_eq!(found.unwrap(), vec![]);
    });
}

#[tokio::test]
async fn a_field_that_is_wrongly_called_proven_is_found_out() {
    let wrong = homeostat_kit::normalize::Fields::new(&[homeostat_kit::normalize::Field {
        name: "note",
        normalize: |shape: Shape| shape,
        agrees: |wanted, seen| wanted.note == seen.note,
        trust: homeostat_kit::normalize::Trust::Proven,
    }]);
    let stage = Stage::new(marker());
    let api = stage.api();
    let shape = Shape { note: Some("a long story".to_owned()), ..Shape::square("green") };
    let found = broken(&wrong, shape, async |shape| {
        let made = api.create(&"my-sample".to_owned(), &Versioned::declared(shape)).await;
        Ok((*made.unwrap().unwrap()).clone())
    });
    let found = found.await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].field, found[0].law), ("note", "what was written reads back equal"));
}
