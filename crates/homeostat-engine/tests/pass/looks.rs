//! What a pass sees before it writes, and what it does not write when it cannot see.

use homeostat_engine::Error;

use crate::Toys;
use crate::common::rig::lines;

#[test]
fn a_focused_pass_before_the_first_full_one_is_refused_and_looks_at_nothing() {
    let mut rig = Toys::marked("a=1@ours");
    let refused = rig.try_pass("", Some("a"));
    assert!(matches!(refused, Err(Error::NotSynced)));
    assert_eq!(rig.world.take_log(), [""; 0]);
    rig.pass("a=1");
    assert_eq!(rig.focused_pass("a=2", "a"), ["update a", "converged"]);
}

#[test]
fn a_failed_first_look_leaves_focused_passes_refused() {
    let mut rig = Toys::marked("a=1@ours");
    rig.world.state().looks_left = Some(0);
    assert!(matches!(rig.try_pass("a=1", None), Err(Error::Observe { .. })));
    rig.world.state().looks_left = None;
    assert!(matches!(rig.try_pass("a=1", Some("a")), Err(Error::NotSynced)));
}

#[test]
fn a_torn_look_begins_again_and_its_results_are_dropped() {
    let mut rig = Toys::marked("a=1@ours b=2@ours");
    rig.world.state().torn_looks = 2;
    assert_eq!(rig.pass("a=1 b=3"), ["update b", "converged"], "nothing was seen twice");
}

#[test]
fn a_target_that_tears_every_look_is_given_up_and_not_written() {
    let mut rig = Toys::marked("a=1@ours");
    rig.world.state().torn_looks = 1000;
    assert!(matches!(rig.try_pass("", None), Err(Error::Observe { .. })));
    let log = rig.world.take_log();
    assert!(log.len() < 20 && log.iter().all(|line| line == "look at all"), "{log:?}");
}

#[test]
fn a_target_that_cannot_be_observed_is_not_written() {
    let mut rig = Toys::checkpoint("a=1@unmarked");
    rig.world.state().looks_left = Some(0);
    assert!(rig.try_pass("b=1", None).is_err());
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("a=1@unmarked", ""));
}

#[test]
fn planning_writes_nothing_at_all() {
    let mut rig = Toys::checkpoint("k=0@nobody x=1@unmarked");
    let plan = lines(&rig.plan("a=1 k=1 x=2"));
    assert_eq!(plan, ["will create a", "will update k", "conflict x: unmarked", "not converged"]);
    assert_eq!(rig.world.take_log(), ["look at all"]);
}

#[test]
fn an_unknown_key_is_never_written_and_keeps_its_record() {
    let mut rig = Toys::checkpoint("");
    rig.pass("a=1 b=1");
    rig.world.state().unreadable.extend(["a".to_owned(), "b".to_owned()]);
    rig.world.take_log();
    let report = rig.pass("a=2");
    assert_eq!(report, ["unknown a: unreadable", "unknown b: unreadable", "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,done b=1,absent,done");
    assert_eq!(rig.world.text(), "a=1@unmarked b=1@unmarked");
}

#[test]
fn a_focused_pass_touches_its_keys_only() {
    let mut rig = Toys::marked("a=1@ours b=1@ours x=1@ours");
    rig.pass("a=1 b=1 x=1");
    rig.world.holds("a=9@ours b=9@ours");
    assert_eq!(rig.focused_pass("a=1 b=1", "a x z"), ["update a", "delete x", "converged"]);
    assert_eq!(rig.world.text(), "a=1@ours b=9@ours");
}
