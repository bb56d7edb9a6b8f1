//! What the ledger records of a write, and when: intents, outcomes, originals.

use homeostat_engine::{OnRelease, Ownership};

use crate::Toys;
use crate::common::toy::Script;
use crate::common::world::Fault;

#[test]
fn the_intent_is_durable_before_the_write_and_the_outcome_after_it() {
    let mut rig = Toys::checkpoint("k=0@nobody same=5@nobody");
    let expected = [
        "look at all",
        "ledger same done, a intent, k intent",
        "write a=1",
        "write k=1",
        "look at a k",
        "ledger a done, k done, desired state",
    ];
    assert_eq!(rig.log_of_pass("a=1 k=1 same=5"), expected);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done same=5,5,done");
    rig.assert_quiet("a=1 k=1 same=5");
}

#[test]
fn marked_steps_need_no_record() {
    let mut rig = Toys::marked("x=1@ours");
    rig.pass("a=1");
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("a=1@ours", ""));
    rig.assert_quiet("a=1");
}

#[test]
fn a_step_that_asks_for_a_witness_gets_one_beside_the_mark() {
    let script = Script { marks: true, recorded: true, ..Script::default() };
    let mut rig = Toys::new("", Ownership::Marked, script);
    let log = rig.log_of_pass("a=1");
    assert_eq!(log[1..3], ["ledger a intent", "write a=1"]);
    assert_eq!(rig.records(), "a=1,absent,done");
    rig.world.holds("a=1@bird");
    assert_eq!(rig.pass("a=1"), ["conflict a: bird", "not converged"]);
    assert_eq!(rig.pass(""), ["conflict a: bird", "not converged"]);
}

#[test]
fn healing_drift_costs_no_disk_write() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.pass("a=1 k=1");
    rig.world.holds("a=9@unmarked k=9@nobody");
    let expected = ["look at all", "write a=1", "write k=1", "look at a k"];
    assert_eq!(rig.log_of_pass("a=1 k=1"), expected);
    rig.world.loses("a");
    assert_eq!(rig.log_of_pass("a=1 k=1"), ["look at all", "write a=1", "look at a"]);
}

#[test]
fn a_converged_pass_is_quiet_after_a_restart_too() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.pass("a=1 k=1");
    rig.restart();
    rig.assert_quiet("a=1 k=1");
}

#[test]
fn a_refused_step_leaves_no_record_and_claims_nothing() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.world.breaks("a", Fault::Refuse);
    rig.world.breaks("k", Fault::Taken);
    let report = rig.pass("a=1 k=1");
    assert_eq!(report, ["failed a: refused", "conflict k: bird", "not converged"]);
    assert_eq!(rig.records(), "");
    rig.world.works();
    assert_eq!(rig.pass("a=1 k=1"), ["create a", "update k", "converged"]);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
}

#[test]
fn a_refused_update_keeps_the_record_that_was_there() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.pass("a=1 k=1");
    rig.world.breaks("a", Fault::Refuse);
    rig.world.breaks("k", Fault::Refuse);
    rig.pass("a=2 k=2");
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
}

#[test]
fn an_update_announces_what_our_former_write_left() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.pass("a=1 k=1");
    rig.world.breaks("a", Fault::Postpone);
    rig.world.breaks("k", Fault::Postpone);
    rig.pass("a=2 k=2");
    assert_eq!(rig.records(), "a=2,absent,intent,1 k=2,0,intent,1");
    // The same again keeps it, and so does a restart.
    rig.restart();
    rig.pass("a=2 k=2");
    assert_eq!(rig.records(), "a=2,absent,intent,1 k=2,0,intent,1");
    rig.world.works();
    rig.pass("a=2 k=2");
    assert_eq!(rig.records(), "a=2,absent,done k=2,0,done");
}

#[test]
fn an_update_that_never_happened_is_still_ours_to_remove_and_to_restore() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.config.on_release = OnRelease::Restore;
    rig.pass("a=1 k=1");
    rig.world.breaks("a", Fault::Postpone);
    rig.world.breaks("k", Fault::Postpone);
    rig.pass("a=2 k=2");
    rig.world.works();
    rig.restart();
    assert_eq!(rig.pass(""), ["delete a", "delete k", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("k=0@nobody", ""));
}

#[test]
fn an_object_that_vanished_before_its_update_is_an_intent_to_create_again() {
    let mut rig = Toys::checkpoint("");
    rig.pass("a=1");
    rig.world.loses("a");
    rig.world.breaks("a", Fault::Postpone);
    rig.pass("a=2");
    assert_eq!(rig.records(), "a=2,absent,intent");
    // Somebody else comes first: it is not ours.
    rig.world.works();
    rig.world.holds("a=7@unmarked");
    rig.restart();
    assert_eq!(rig.pass(""), ["converged"]);
    assert_eq!(rig.world.text(), "a=7@unmarked");
}

#[test]
fn a_settled_value_is_recorded_and_quiet_and_a_third_value_is_drift() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.world.breaks("k", Fault::Settle(4096));
    assert_eq!(rig.pass("k=4095"), ["update k", "settled k: 4096 for 4095", "converged"]);
    assert_eq!(rig.records(), "k=4095,0,done,4096");
    for _ in 0..3 {
        rig.assert_quiet("k=4095");
    }
    rig.restart();
    assert_eq!(rig.pass("k=4095"), ["settled k: 4096 for 4095", "converged"]);
    rig.world.holds("k=7@nobody");
    let healed = rig.log_of_pass("k=4095");
    assert_eq!(healed, ["look at all", "write k=4095"], "the record already says it all");
    rig.assert_quiet("k=4095");
}

#[test]
fn a_settled_value_is_restored_on_release() {
    let mut rig = Toys::checkpoint("k=3@nobody");
    rig.config.on_release = OnRelease::Restore;
    rig.world.breaks("k", Fault::Settle(4096));
    rig.pass("k=4095");
    rig.world.works();
    assert_eq!(rig.pass(""), ["delete k", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("k=3@nobody", ""));
}

#[test]
fn the_original_is_captured_once() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.config.on_release = OnRelease::Restore;
    for value in 1..4 {
        rig.pass(&format!("k={value}"));
        rig.world.holds("k=9@nobody");
        rig.pass(&format!("k={value}"));
        rig.restart();
    }
    assert_eq!(rig.records(), "k=3,0,done");
    rig.pass("");
    assert_eq!(rig.world.text(), "k=0@nobody");
}

#[test]
fn an_adopted_object_is_recorded_with_its_original() {
    let mut rig = Toys::checkpoint("a=7@unmarked b=1@unmarked");
    rig.config.adopt = ["a", "b"].map(str::to_owned).into();
    assert_eq!(rig.pass("a=1 b=1"), ["update a", "update b", "converged"]);
    assert_eq!(rig.records(), "a=1,7,done b=1,1,done");
    rig.config.adopt.clear();
    rig.assert_quiet("a=1 b=1");
}

#[test]
fn an_object_that_lost_its_mark_and_is_adopted_keeps_its_first_original() {
    let script = Script { marks: true, recorded: true, ..Script::default() };
    let mut rig = Toys::new("", Ownership::Marked, script);
    rig.pass("a=1");
    rig.world.holds("a=9@bird");
    rig.config.adopt = ["a".to_owned()].into();
    assert_eq!(rig.pass("a=2"), ["update a", "converged"]);
    assert_eq!(rig.records(), "a=2,absent,done", "it was ours to make");
}

#[test]
fn a_foreign_object_is_neither_written_nor_recorded_and_its_neighbours_are() {
    let mut rig = Toys::checkpoint("a=7@unmarked m=1@unmarked");
    let report = rig.pass("a=1 b=1 m=1");
    assert_eq!(
        report,
        ["create b", "conflict a: unmarked", "matched m: unmarked", "not converged"]
    );
    assert_eq!(rig.records(), "b=1,absent,done");
    assert_eq!(rig.pass(""), ["delete b", "converged"]);
    assert_eq!(rig.world.text(), "a=7@unmarked m=1@unmarked");
}
