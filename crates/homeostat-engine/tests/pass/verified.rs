//! The second look: what was written is believed only once it is seen.

use homeostat_engine::Ownership;

use crate::Toys;
use crate::common::rig::lines;
use crate::common::toy::Script;
use crate::common::world::Fault;

#[test]
fn a_target_that_answers_for_itself_needs_no_second_look() {
    let script = Script { marks: true, echoes: true, ..Script::default() };
    let mut rig = Toys::new("b=2@ours x=1@ours", Ownership::Marked, script);
    let expected = [
        "look at all",
        "write a=1",
        "write b=3",
        "write x=none",
        "look at x",
        "ledger desired state",
    ];
    assert_eq!(rig.log_of_pass("a=1 b=3"), expected);
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
fn a_step_without_an_answer_is_unknown_and_keeps_its_intent() {
    let mut rig = Toys::checkpoint("");
    rig.world.breaks("a", Fault::Ignore);
    let why = "unknown a: the `toy` source gave no answer for this step";
    assert_eq!(rig.pass("a=1"), [why, "not converged"]);
    assert_eq!(rig.records(), "a=1,absent,intent");
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
fn a_disturbed_key_whose_own_step_failed_is_reported_once() {
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
        let lines = lines(&report);
        let failed = "failed k0007: the write was accepted, but the object is not there";
        assert_eq!(lines[count - 1..], [failed, "not converged"], "{count}");
    }
}

#[test]
fn a_second_look_that_fails_leaves_what_was_written_unknown_and_ours() {
    let mut rig = Toys::checkpoint("x=1@unmarked");
    rig.pass("gone=1");
    rig.world.state().looks_left = Some(1);
    let report = rig.pass("a=1");
    let lines: Vec<_> = report.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(lines, ["unknown a", "unknown gone", "not converged"]);
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
fn many_steps_of_a_pass_over_a_few_keys_are_verified_by_a_look_at_these_keys() {
    let mut rig = Toys::marked("stray=1@bird");
    let rows: Vec<_> = (0..2000).map(|nth| format!("k{nth:04}=1")).collect();
    let keys: Vec<_> = (0..2000).map(|nth| format!("k{nth:04}")).collect();
    rig.pass("");
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    rig.try_pass(&rows.join(" "), Some(&keys.join(" "))).unwrap();
    let log = rig.world.take_log();
    let looks: Vec<_> = log.iter().filter(|line| line.starts_with("look")).collect();
    assert!(!looks[1..].iter().any(|line| *line == "look at all"), "{looks:?}");
}
