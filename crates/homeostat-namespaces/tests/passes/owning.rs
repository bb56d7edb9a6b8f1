//! Which namespaces are ours, through deletes, recreations and crashes.

use std::fs;

use homeostat_engine::{Cascades, Edit, Explain as _, Kind};
use homeostat_namespaces::DesiredState;

use crate::world::{World, place, report_lines};

#[test]
fn a_declared_namespace_is_made_once_with_lo_down_and_goes_when_undeclared() {
    let world = World::new();
    let report = world.pass("blue");
    assert_eq!(report_lines(&report, Kind::Applied), ["+ namespace blue"]);
    assert!(report.is_converged());
    assert!(world.ip("-n blue -o link show lo").contains("<LOOPBACK>"));
    assert!(report_lines(&world.pass("blue"), Kind::Applied).is_empty());
    assert_eq!(report_lines(&world.pass(""), Kind::Applied), ["- namespace blue"]);
    assert!(world.names().is_empty());
}

#[test]
fn a_foreign_namespace_of_a_declared_name_is_matched_and_never_deleted() {
    let world = World::new();
    world.ip("netns add blue");
    let report = world.pass("blue");
    assert_eq!(report_lines(&report, Kind::Matched), ["namespace blue"]);
    assert!(report.is_converged() && report_lines(&report, Kind::Applied).is_empty());
    assert!(report_lines(&world.pass(""), Kind::Applied).is_empty());
    assert_eq!(world.names(), ["blue"]);
}

#[test]
fn what_somebody_deleted_is_made_again_and_is_ours_again() {
    let world = World::new();
    world.pass("blue");
    world.ip("netns delete blue");
    assert_eq!(report_lines(&world.pass("blue"), Kind::Applied), ["+ namespace blue"]);
    assert_eq!(report_lines(&world.pass(""), Kind::Applied), ["- namespace blue"]);
}

#[test]
fn what_somebody_deleted_and_made_again_is_not_ours() {
    let world = World::new();
    world.pass("blue red");
    for name in ["blue", "red"] {
        world.ip(&format!("netns delete {name}"));
        world.ip(&format!("netns add {name}"));
    }
    let report = world.pass("blue");
    assert_eq!(report_lines(&report, Kind::Matched), ["namespace blue"]);
    assert!(report_lines(&report, Kind::Applied).is_empty());
    assert!(report_lines(&world.pass(""), Kind::Applied).is_empty());
    assert_eq!(world.names(), ["blue", "red"]);
    assert!(
        world.ledger.page(&place()).unwrap().records.is_empty(),
        "a record outlived its object"
    );
}

#[test]
fn what_is_only_kept_stays_and_is_not_made_again() {
    let world = World::new();
    world.pass("blue");
    let kept = || DesiredState::default().keeping(["namespace blue".parse().unwrap()]);
    let report = world.pass_for(kept(), Cascades::Hold);
    assert!(report.is_converged() && report_lines(&report, Kind::Applied).is_empty());
    assert_eq!(world.names(), ["blue"]);
    world.ip("netns delete blue");
    let report = world.pass_for(kept(), Cascades::Hold);
    assert!(report.is_converged() && report_lines(&report, Kind::Applied).is_empty());
    assert!(world.names().is_empty());
}

/// What a process leaves that dies after it announced its intent to make `blue`.
fn crashed() -> World {
    let world = World::new();
    let record = r#"{"wrote":{},"original":"absent","stage":"intent"}"#.to_owned();
    let intent = Edit::Put { key: "namespace blue".to_owned(), record };
    world.ledger.write(&place(), &[intent]).unwrap();
    world
}

/// After a crash `blue` is as declared, is ours, and the ledger is at rest.
#[track_caller]
fn is_made_good(world: &World, applied: &[&str]) {
    let report = world.pass("blue");
    assert!(report.is_converged());
    assert_eq!(report_lines(&report, Kind::Applied), applied);
    assert_eq!(world.names(), ["blue"]);
    let recorded = world.ledger.page(&place()).unwrap();
    assert!(report_lines(&world.pass("blue"), Kind::Applied).is_empty());
    assert_eq!(world.ledger.page(&place()).unwrap(), recorded);
    assert_eq!(report_lines(&world.pass(""), Kind::Applied), ["- namespace blue"]);
}

#[test]
fn after_a_crash_between_intent_and_creation_it_is_made() {
    is_made_good(&crashed(), &["+ namespace blue"]);
}

#[test]
fn after_a_crash_in_the_middle_of_the_creation_the_leftover_is_replaced() {
    let world = crashed();
    fs::create_dir("/run/netns").unwrap();
    fs::write("/run/netns/blue", "").unwrap();
    is_made_good(&world, &["+ namespace blue"]);
}

#[test]
fn after_a_crash_between_creation_and_outcome_it_is_ours() {
    let world = crashed();
    world.ip("netns add blue");
    is_made_good(&world, &[]);
}

#[test]
fn what_a_crash_left_is_removed_when_nobody_declares_it_any_more() {
    let world = crashed();
    world.ip("netns add blue");
    assert_eq!(report_lines(&world.pass(""), Kind::Applied), ["- namespace blue"]);
    assert!(world.names().is_empty());
}

#[test]
fn the_file_that_a_crash_left_is_removed_when_nobody_declares_it_any_more() {
    let world = crashed();
    fs::create_dir("/run/netns").unwrap();
    fs::write("/run/netns/blue", "").unwrap();
    let report = world.pass("");
    assert_eq!(report_lines(&report, Kind::Applied), ["- namespace blue"]);
    assert!(report.is_converged());
    assert!(!fs::exists("/run/netns/blue").unwrap());
    assert!(world.ledger.page(&place()).unwrap().records.is_empty());
}

#[test]
fn a_file_with_content_is_not_ours_even_where_we_were_about_to_make_a_namespace() {
    let world = crashed();
    fs::create_dir("/run/netns").unwrap();
    fs::write("/run/netns/blue", "notes").unwrap();
    for names in ["blue", ""] {
        let report = world.pass(names);
        assert_eq!(report_lines(&report, Kind::Unknown).len(), 1);
        assert!(report_lines(&report, Kind::Applied).is_empty());
    }
    assert_eq!(fs::read_to_string("/run/netns/blue").unwrap(), "notes");
}

#[test]
fn a_leftover_of_somebody_else_is_unknown_and_stays() {
    let world = World::new();
    fs::create_dir("/run/netns").unwrap();
    fs::write("/run/netns/blue", "").unwrap();
    let report = world.pass("blue");
    let unknown = report_lines(&report, Kind::Unknown);
    assert!(unknown[0].contains("remove the leftover with `ip netns delete blue`"), "{unknown:?}");
    assert!(report_lines(&report, Kind::Applied).is_empty());
    assert!(fs::exists("/run/netns/blue").unwrap());
}
