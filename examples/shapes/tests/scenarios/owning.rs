//! Whose is it? What is ours is never leaked, and what is not is never touched.

use homeostat_engine::MassDelete;
use homeostat_kit::simple::{BindRefused, place};
use homeostat_kit::strategy::{Copies, Marker, Strategy};
use homeostat_shapes::service::Stored;
use homeostat_shapes::source::{MARK, Shapes};

use crate::stage::{DOOR, Stage, TWO, desired, exclusive, marker, prefix, shared};

#[tokio::test]
async fn a_strangers_shape_is_left_alone_for_a_thousand_passes() {
    for strategy in shared() {
        let stage = Stage::new(strategy);
        stage.service.paint("cloud", "white");
        let before = stage.service.state().shapes["cloud"].clone();
        let mut life = stage.life();
        for _ in 0..1000 {
            life.pass(DOOR).await;
        }
        assert_eq!(stage.service.state().shapes["cloud"], before);
        assert_eq!(stage.calls().len(), 1, "the door was made, and that was all");
    }
}

#[tokio::test]
async fn a_strangers_shape_on_a_declared_name_is_a_conflict_for_a_thousand_passes() {
    for strategy in [marker(), Strategy::Checkpoint] {
        let stage = Stage::new(strategy);
        stage.service.paint("my-door", "red");
        let before = stage.service.state().shapes["my-door"].clone();
        let mut life = stage.life();
        for _ in 0..1000 {
            let report = life.pass(TWO).await;
            assert_eq!(report.open["my-door"], "conflict: belongs to another owner");
        }
        assert_eq!(stage.service.state().shapes["my-door"], before);
        assert_eq!(stage.calls().len(), 1, "the window was made: the rest goes on");
    }
}

#[tokio::test]
async fn a_strangers_shape_goes_in_exclusive_mode_only() {
    let stage = Stage::new(exclusive());
    stage.service.paint("cloud", "white");
    let report = stage.life().pass(DOOR).await;
    assert_eq!(report.applied, ["- cloud", "+ my-door"]);
    assert_eq!(stage.service.shown(), "green my-door");
}

#[tokio::test]
async fn a_mass_delete_in_exclusive_mode_is_held_until_somebody_allows_it() {
    let stage = Stage::new(exclusive());
    for number in 0..20 {
        stage.service.paint(&format!("cloud-{number}"), "white");
    }
    let mut life = stage.life();
    let report = life.pass(DOOR).await;
    assert_eq!(report.applied, ["+ my-door"], "creates go on");
    assert!(report.open["cloud-7"].starts_with("held: 20 of 20"), "{report:?}");
    life.config.guards.mass_delete = MassDelete::Allow;
    life.pass(DOOR).await;
    assert_eq!(stage.service.shown(), "green my-door");
}

#[tokio::test]
async fn what_left_the_desired_state_while_we_were_down_is_not_leaked() {
    for strategy in shared() {
        let stage = Stage::new(strategy);
        stage.service.paint("cloud", "white");
        stage.life().pass(TWO).await;
        // The process is gone: no loop sees the change of the desired state.
        let report = stage.life().pass(DOOR).await;
        assert_eq!(report.applied, ["- my-window"]);
        assert_eq!(stage.service.shown(), "white cloud, green my-door");
    }
}

#[tokio::test]
async fn the_mark_is_written_in_the_creating_call() {
    let instance = Marker::new("me").unwrap().with_instance("east").unwrap().with_generation(7);
    let stage = Stage::new(Strategy::Marker(instance));
    stage.life().pass(DOOR).await;
    let calls = stage.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].contains(r#""labels":{"homeostat-owner":"me@east#7"}"#), "{calls:?}");
}

#[tokio::test]
async fn a_copy_with_another_instance_or_generation_is_reported_and_untouched() {
    let here = Marker::new("me").unwrap().with_instance("east").unwrap().with_generation(7);
    let stage = Stage::new(Strategy::Marker(here.clone()));
    for (name, mark) in [("a", "me@east#6"), ("b", "me@west#7"), ("c", "me")] {
        stage.service.state().put(Stored::plain(name, "black").labelled(MARK, mark));
    }
    let report = stage.life().pass(DOOR).await;
    assert_eq!(report.open.len(), 3, "{report:?}");
    assert!(report.open["b"].contains("a copy of us?"));
    assert_eq!(stage.service.shown(), "black a, black b, black c, green my-door");

    let ours = Strategy::Marker(here.with_copies(Copies::Ours));
    let source = crate::stage::source(&stage.service, &ours);
    let mut life = crate::stage::Life::begin(&source, &ours, stage.ledger.clone());
    assert_eq!(life.pass(DOOR).await.applied, ["- a", "- b", "- c"], "this owner has no copies");
}

#[tokio::test]
async fn a_mark_stripped_by_hand_is_reported_and_untouched_until_it_is_adopted() {
    let stage = Stage::new(marker()).witnessed();
    let mut life = stage.life();
    life.pass(TWO).await;
    stage.service.strip("my-door", MARK);
    stage.service.strip("my-window", MARK);
    stage.calls();
    // One is still declared, and the other is not.
    let report = life.pass(DOOR).await;
    assert_eq!(report.open["my-door"], "conflict: our mark was taken off");
    assert_eq!(report.open["my-window"], "conflict: our mark was taken off");
    assert!(stage.calls().is_empty() && !report.converged);

    life.config.adopt.insert("my-door".to_owned());
    assert_eq!(life.pass(DOOR).await.applied, ["~ my-door"]);
    assert_eq!(stage.service.state().shapes["my-door"].labels[MARK], "me");
    life.config.adopt.clear();
    stage.service.paint("my-door", "red");
    assert_eq!(life.pass(DOOR).await.applied, ["~ my-door"], "it is ours again");
}

#[tokio::test]
async fn a_dangling_record_is_found_at_the_start_and_at_each_resync() {
    let stage = Stage::new(Strategy::Checkpoint);
    stage.life().pass(TWO).await;
    // At the start: the desired state shrank while no loop ran, and one shape is gone already.
    stage.service.remove("my-window");
    let mut life = stage.life();
    assert_eq!(life.recorded(), ["my-door", "my-window"]);
    let report = life.pass(&[]).await;
    assert_eq!(report.applied, ["- my-door"]);
    assert!(life.recorded().is_empty() && stage.life().recorded().is_empty());

    // At a resync: the shape goes without a hint.
    life.pass(TWO).await;
    stage.service.remove("my-window");
    life.pass(DOOR).await;
    assert_eq!(life.recorded(), ["my-door"]);
}

#[tokio::test]
async fn a_record_goes_only_after_the_shape_was_seen_to_be_gone() {
    let stage = Stage::new(Strategy::Checkpoint);
    let mut life = stage.life();
    life.pass(TWO).await;
    stage.service.state().faults.frozen.insert("my-window".to_owned());
    let report = life.pass(DOOR).await;
    assert!(report.open["my-window"].starts_with("failed"), "{report:?}");
    assert_eq!(stage.life().recorded(), ["my-door", "my-window"]);
    stage.service.state().faults.frozen.clear();
    life.pass(DOOR).await;
    assert_eq!(stage.life().recorded(), ["my-door"]);
}

#[tokio::test]
async fn an_equal_shape_that_was_there_before_us_is_not_stolen() {
    let stage = Stage::new(Strategy::Checkpoint);
    let mut theirs = Stored::plain("my-door", "green");
    theirs.kind = "square".to_owned();
    stage.service.state().put(theirs);
    let mut life = stage.life();
    assert!(life.pass(DOOR).await.converged, "it is as declared, and somebody else's");
    assert!(life.pass(&[]).await.applied.is_empty());
    assert_eq!(stage.service.shown(), "green my-door");
}

#[tokio::test]
async fn a_shape_that_a_stranger_made_anew_under_our_name_is_not_ours() {
    let stage = Stage::new(Strategy::Checkpoint);
    let mut life = stage.life();
    life.pass(TWO).await;
    for name in ["my-door", "my-window"] {
        stage.service.remove(name);
        stage.service.paint(name, "red");
    }
    let report = life.pass(DOOR).await;
    assert_eq!(report.open["my-door"], "conflict: belongs to another owner");
    assert_eq!(stage.service.shown(), "red my-door, red my-window");
    assert!(life.recorded().is_empty());
}

#[test]
fn a_desired_state_outside_of_the_prefix_is_refused() {
    let stage = Stage::new(prefix());
    let place = place::<Shapes>("me", "loopback");
    let refused = stage.source.bind(&stage.strategy, desired(&[("cloud", "white")]), place);
    let Err(error) = refused else { panic!("once made, it would have no owner") };
    assert_eq!(error, BindRefused::OutsidePrefix { key: "cloud".to_owned() });
}
