//! The single pass over a toy target that misbehaves: what is written when, and what is recorded.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

mod common;

use common::rig::{Rig, told};
use common::toy::{Independent, Script};
use common::world::Fault;
use homeostat_engine::{Entry, Error, Explain as _, Kind, OnRelease, Ownership, Strictness};

type Toys = Rig<Independent>;

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
fn a_torn_look_begins_again_and_what_it_told_is_forgotten() {
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
    let plan = told(&rig.plan("a=1 k=1 x=2"));
    assert_eq!(plan, ["will create a", "will update k", "conflict x: unmarked", "not converged"]);
    assert_eq!(rig.world.take_log(), ["look at all"]);
}

#[test]
fn the_intent_is_durable_before_the_write_and_the_outcome_after_it() {
    let mut rig = Toys::checkpoint("k=0@nobody same=5@nobody");
    let expected = [
        "look at all",
        "ledger same done, a intent, k intent",
        "write a=1",
        "write k=1",
        "look at a k",
        "ledger a done, k done, wish",
    ];
    assert_eq!(rig.log_of_pass("a=1 k=1 same=5"), expected);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done same=5,5,done");
    rig.assert_quiet("a=1 k=1 same=5");
}

#[test]
fn a_target_that_answers_for_itself_needs_no_second_look() {
    let script = Script { marks: true, echoes: true, ..Script::default() };
    let mut rig = Toys::new("b=2@ours x=1@ours", Ownership::Marked, script);
    let expected =
        ["look at all", "write a=1", "write b=3", "write x=none", "look at x", "ledger wish"];
    assert_eq!(rig.log_of_pass("a=1 b=3"), expected);
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
fn a_lost_answer_is_found_by_the_second_look() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.world.breaks("a", Fault::LoseAnswer);
    rig.world.breaks("k", Fault::LoseAnswer);
    assert_eq!(rig.pass("a=1 k=1"), ["create a", "update k", "converged"]);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
    rig.assert_quiet("a=1 k=1");
}

#[test]
fn what_was_accepted_and_is_not_there_is_proven_no_further_than_an_intent() {
    let mut rig = Toys::checkpoint("");
    rig.world.breaks("a", Fault::Pretend);
    let failed = "failed a: the write was accepted, but the object is not there";
    assert_eq!(rig.pass("a=1"), [failed, "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,intent");
    // A stranger takes the key: it is not ours.
    rig.world.works();
    rig.world.holds("a=7@unmarked");
    assert_eq!(rig.pass(""), ["converged"]);
    assert_eq!(rig.world.text(), "a=7@unmarked");
}

#[test]
fn a_step_that_nobody_answered_for_is_unknown_and_keeps_its_intent() {
    let mut rig = Toys::checkpoint("");
    rig.world.breaks("a", Fault::Ignore);
    let why = "unknown a: the `toy` source gave no answer for this step";
    assert_eq!(rig.pass("a=1"), [why, "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,intent");
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

#[test]
fn a_write_that_was_accepted_but_not_kept_is_a_failure() {
    let mut rig = Toys::marked("b=1@ours");
    rig.world.breaks("a", Fault::Pretend);
    rig.world.breaks("b", Fault::Rewrite(7));
    let expected = [
        "failed a: the write was accepted, but the object is not there",
        "failed b: the write was accepted, but the target holds 7 in place of 2",
        "not converged",
    ];
    assert_eq!(rig.pass("a=1 b=2"), expected);
}

#[test]
fn an_answer_that_shows_another_value_is_looked_at_again_and_fails() {
    let script = Script { marks: true, echoes: true, ..Script::default() };
    let mut rig = Toys::new("", Ownership::Marked, script);
    rig.world.breaks("a", Fault::Rewrite(7));
    let expected = "failed a: the write was accepted, but the target holds 7 in place of 1";
    assert_eq!(rig.pass("a=1"), [expected, "not converged"]);
}

#[test]
fn what_a_target_rewrote_when_we_made_it_is_still_ours() {
    let mut rig = Toys::checkpoint("");
    rig.world.breaks("a", Fault::Rewrite(7));
    rig.pass("a=1");
    assert_eq!(rig.records(), "a=1,absent,done");
    rig.world.works();
    assert_eq!(rig.pass(""), ["delete a", "converged"]);
}

#[test]
fn a_key_that_changed_along_with_another_step_is_pending() {
    let mut rig = Toys::marked("a=1@ours b=5@ours");
    rig.rescript(|script| {
        script.disturbs.insert("a".to_owned(), "b".to_owned());
    });
    rig.world.state().couplings.insert("a".to_owned(), ("b".to_owned(), 0));
    let on = "pending b: the next pass: it changed along with another step";
    assert_eq!(rig.pass("a=2 b=5"), ["update a", on, "not converged"]);
    assert_eq!(rig.pass("a=2 b=5"), ["update b", "converged"]);
}

#[test]
fn a_disturbed_key_whose_own_step_failed_is_told_once() {
    let mut rig = Toys::marked("a=1@ours b=5@ours");
    rig.rescript(|script| {
        script.disturbs.insert("a".to_owned(), "b".to_owned());
    });
    rig.world.breaks("b", Fault::Refuse);
    assert_eq!(rig.pass("a=2 b=6"), ["update a", "failed b: refused", "not converged"]);
}

#[test]
fn an_undisturbed_neighbour_costs_a_look_and_nothing_else() {
    let script = Script { marks: true, echoes: true, ..Script::default() };
    let mut rig = Toys::new("a=1@ours b=5@ours", Ownership::Marked, script);
    rig.rescript(|script| {
        script.disturbs.insert("a".to_owned(), "b".to_owned());
    });
    assert_eq!(rig.log_of_pass("a=2 b=5")[1..3], ["write a=2", "look at b"]);
}

#[test]
fn many_unverified_steps_are_verified_by_one_full_look() {
    for (count, full) in [(1000usize, false), (1001, true)] {
        let mut rig = Toys::marked("stray=1@bird");
        let rows: Vec<_> = (0..count).map(|nth| format!("k{nth:04}=1")).collect();
        rig.world.breaks("k0007", Fault::Pretend);
        let report = rig.try_pass(&rows.join(" "), None).unwrap();
        let log = rig.world.take_log();
        let looks: Vec<_> = log.iter().filter(|line| line.starts_with("look")).collect();
        assert_eq!(looks.len(), 2);
        assert_eq!(looks[1] == "look at all", full, "{count}");
        let told = told(&report);
        let failed = "failed k0007: the write was accepted, but the object is not there";
        assert_eq!(told[count - 1..], [failed, "not converged"], "{count}");
    }
}

#[test]
fn a_second_look_that_fails_leaves_what_was_written_unknown_and_ours() {
    let mut rig = Toys::checkpoint("x=1@unmarked");
    rig.pass("gone=1");
    rig.world.state().looks_left = Some(1);
    let report = rig.pass("a=1");
    let told: Vec<_> = report.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(told, ["unknown a", "unknown gone", "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,done gone=1,absent,done");
    rig.world.state().looks_left = None;
    assert_eq!(rig.pass("a=1"), ["converged"]);
    assert_eq!(rig.records(), "a=1,absent,done");
}

#[test]
fn a_key_that_the_second_look_cannot_read_is_unknown() {
    let mut rig = Toys::checkpoint("");
    rig.world.state().unreadable.insert("a".to_owned());
    assert_eq!(rig.pass("a=1"), ["unknown a: unreadable", "not converged"]);
    assert_eq!(rig.world.text(), "a=1@unmarked");
    assert_eq!(rig.pass("a=1"), ["unknown a: unreadable", "not converged"]);
}

#[test]
fn a_ledger_that_cannot_take_the_intents_keeps_the_target_untouched() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.ledger.fails_at(0);
    let error = rig.try_pass("a=1 k=1", None).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::WriteLedger(_)), "{error}");
    assert!(error.help().unwrap().contains("was not written to the target"), "{:?}", error.help());
    assert_eq!(rig.world.text(), "k=0@nobody");
    assert_eq!(rig.world.take_log(), ["look at all", "ledger is full"]);
    assert_eq!(rig.pass("a=1 k=1"), ["create a", "update k", "converged"]);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
}

#[test]
fn intents_that_were_never_durable_are_forgotten() {
    let mut rig = Toys::checkpoint("");
    rig.ledger.fails_at(0);
    assert!(rig.try_pass("a=1", None).is_err());
    rig.world.breaks("a", Fault::Refuse);
    rig.pass("a=1");
    assert_eq!(rig.records(), "", "nothing was ever written");
    // Somebody else makes just that object: it is theirs.
    rig.world.works();
    rig.world.holds("a=1@unmarked");
    assert_eq!(rig.pass(""), ["converged"]);
    assert_eq!(rig.world.text(), "a=1@unmarked");
}

#[test]
fn a_ledger_that_cannot_take_the_outcomes_says_so_and_the_next_pass_confirms() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.ledger.fails_at(1);
    let report = rig.try_pass("a=1 k=1", None).unwrap();
    let mut help = None;
    report.explain(Kind::Failed, &mut |entry| {
        if let Entry::Failed { key, failure, .. } = entry {
            help = failure.help.filter(|_| key == "ledger");
        }
    });
    let help = help.unwrap();
    assert!(!help.contains("was not written to the target"), "{help}");
    let told = told(&report);
    assert_eq!(told[..2], ["create a", "update k"], "what was done is told all the same");
    assert_eq!(told.last().unwrap(), "not converged");
    assert_eq!(rig.world.text(), "a=1@unmarked k=1@nobody");
    assert_eq!(rig.records(), "a=1,absent,intent k=1,0,intent");
    // In the same process, and after a restart.
    rig.restart();
    assert_eq!(rig.pass("a=1 k=1"), ["converged"]);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
    rig.assert_quiet("a=1 k=1");
}

#[test]
fn outcomes_that_the_ledger_refused_are_written_by_the_next_pass_of_the_same_process() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.ledger.fails_at(1);
    assert_eq!(rig.pass("a=1 k=1").last().unwrap(), "not converged");
    assert_eq!(rig.pass("a=1 k=1"), ["converged"]);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
    rig.assert_quiet("a=1 k=1");
}

#[test]
fn a_disturbed_key_that_cannot_be_looked_at_again_is_unknown() {
    let mut rig = Toys::marked("a=1@ours b=5@ours");
    rig.rescript(|script| {
        script.disturbs.insert("a".to_owned(), "b".to_owned());
        script.echoes = true;
    });
    rig.world.state().couplings.insert("a".to_owned(), ("b".to_owned(), 0));
    rig.world.state().looks_left = Some(1);
    let report = rig.pass("a=2 b=5");
    assert!(report.iter().any(|line| line.starts_with("unknown b")), "{report:?}");
    assert_eq!(report.last().unwrap(), "not converged");
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

#[test]
fn strict_mode_leaves_the_rest_pending() {
    let mut rig = Toys::checkpoint("x=1@unmarked");
    rig.config.strictness = Strictness::Strict;
    rig.world.breaks("b", Fault::Refuse);
    let on = "pending c: `b`, which failed in strict mode";
    assert_eq!(rig.pass("a=1 b=1 c=1"), ["create a", "failed b: refused", on, "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,done");
    assert_eq!(rig.world.text(), "a=1@unmarked x=1@unmarked");
}

#[test]
fn strict_mode_stops_at_a_step_that_nobody_answered_for() {
    let mut rig = Toys::checkpoint("");
    rig.config.strictness = Strictness::Strict;
    rig.world.breaks("a", Fault::Ignore);
    rig.pass("a=1 b=1");
    assert_eq!(rig.world.text(), "");
}
