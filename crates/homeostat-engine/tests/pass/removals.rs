//! What goes: deletes, releases, and records of what is gone.

use homeostat_engine::{OnRelease, Ownership};

use crate::Toys;
use crate::common::toy::Script;
use crate::common::world::Fault;

#[test]
fn a_release_leaves_the_value_unless_asked_and_always_drops_the_record() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.pass("k=1");
    assert_eq!(rig.pass(""), ["delete k", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("k=1@nobody", ""));
    rig.assert_quiet("");
}

#[test]
fn a_delete_drops_the_record_and_a_vanished_object_is_pruned() {
    let mut rig = Toys::checkpoint("");
    rig.pass("a=1 b=1");
    rig.world.loses("b");
    assert_eq!(rig.pass(""), ["delete a", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("", ""));
    rig.assert_quiet("");
}

#[test]
fn a_refused_delete_keeps_the_record() {
    let mut rig = Toys::checkpoint("");
    rig.pass("a=1");
    for fault in [Fault::Refuse, Fault::Postpone, Fault::Ignore] {
        rig.world.holds("a=1@unmarked");
        rig.world.breaks("a", fault);
        rig.pass("");
        assert_eq!(rig.records(), "a=1,absent,done", "{fault:?}");
    }
}

#[test]
fn a_delete_that_was_accepted_but_not_done_is_a_failure_and_keeps_the_record() {
    let mut rig = Toys::checkpoint("");
    rig.pass("a=1");
    rig.world.breaks("a", Fault::Pretend);
    let failed = "failed a: the removal was accepted, but the object is still there";
    assert_eq!(rig.pass(""), [failed, "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,done");
    rig.world.works();
    assert_eq!(rig.pass(""), ["delete a", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("", ""));
}

#[test]
fn a_restore_that_was_accepted_but_not_done_is_a_failure_and_keeps_the_record() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.config.on_release = OnRelease::Restore;
    rig.pass("k=1");
    rig.world.breaks("k", Fault::Pretend);
    let failed = "failed k: the write was accepted, but the original is not back";
    assert_eq!(rig.pass(""), [failed, "not converged"]);
    assert_eq!(rig.records(), "k=1,0,done");
    rig.world.works();
    assert_eq!(rig.pass(""), ["delete k", "converged"]);
    assert_eq!(rig.world.text(), "k=0@nobody");
}

#[test]
fn a_key_that_somebody_takes_right_after_our_delete_is_no_conflict() {
    let script = Script { marks: true, recorded: true, ..Script::default() };
    let mut rig = Toys::new("", Ownership::Marked, script);
    rig.pass("a=1");
    rig.world.breaks("a", Fault::Overtake);
    assert_eq!(rig.pass(""), ["delete a", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("a=1@bird", ""));
    rig.assert_quiet("");
}
