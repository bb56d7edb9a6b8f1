//! Plans with several steps for a key, with needs and with lanes: who waits, and what is recorded.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

mod common;

use common::rig::Rig;
use common::toy::{Atomic, Lanes, Mode, Ordered};
use common::world::Fault;
use homeostat_engine::Cause;

fn split<M: Mode>(rows: &str) -> Rig<M> {
    let mut rig = Rig::checkpoint(rows);
    rig.rescript(|script| script.split.extend(["a", "b"].map(str::to_owned)));
    rig
}

#[test]
fn a_failed_need_keeps_its_dependants_from_running() {
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Postpone, Fault::Taken, Fault::Ignore] {
        let mut rig = Rig::<Ordered>::marked("");
        rig.rescript(|script| {
            script.needs.insert("addr".to_owned(), "link".to_owned());
        });
        rig.world.breaks("link", fault);
        let report = rig.pass("addr=1 link=1 other=1");
        assert!(report.contains(&"pending addr: link".to_owned()), "{fault:?}: {report:?}");
        assert!(report.contains(&"create other".to_owned()), "{fault:?}: {report:?}");
        assert!(!rig.world.text().contains("addr"), "{fault:?}");
    }
}

#[test]
fn a_need_that_settles_is_good_enough() {
    let mut rig = Rig::<Ordered>::marked("");
    rig.rescript(|script| {
        script.needs.insert("addr".to_owned(), "link".to_owned());
    });
    rig.world.breaks("link", Fault::Settle(4));
    assert_eq!(rig.pass("addr=1 link=1")[..2], ["create link", "create addr"]);
}

#[test]
fn lanes_stop_at_the_first_bad_step_of_their_key_only() {
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Postpone, Fault::Ignore] {
        let mut rig = split::<Lanes>("");
        rig.world.breaks("a", fault);
        let report = rig.pass("a=1 b=1");
        let applied: Vec<_> = report.iter().filter(|line| line.ends_with(" b")).collect();
        assert_eq!(applied, ["create b", "update b"], "{fault:?}");
        let on = if fault == Fault::Postpone { "task 7" } else { "an earlier step of `a`" };
        assert!(report.contains(&format!("pending a: {on}")), "{report:?}");
    }
}

#[test]
fn a_lane_without_an_answer_is_looked_at_again_and_not_counted_as_applied() {
    let mut rig = Rig::<Lanes>::marked("");
    rig.world.breaks("a", Fault::Ignore);
    let why = "unknown a: the `toy` source gave no answer for this step";
    assert_eq!(rig.pass("a=1"), [why, "not converged"]);
    assert_eq!(rig.plan("a=1").cause(&rig.plan("a=1").steps[0]), Cause::Config);
}

#[test]
fn all_lanes_run_whatever_the_limit() {
    for lanes in [0, 1, 2, 100] {
        let mut rig = split::<Lanes>("");
        rig.config.lanes = lanes;
        rig.pass("a=1 b=1 c=1 d=1");
        assert_eq!(rig.world.text(), "a=1@unmarked b=1@unmarked c=1@unmarked d=1@unmarked");
    }
}

#[test]
fn two_steps_for_a_key_are_recorded_once_and_done_when_both_are() {
    let mut rig = split::<Ordered>("");
    rig.pass("a=1");
    assert_eq!(rig.records(), "a=1,absent,done");
    rig.assert_quiet("a=1");
}

#[test]
fn a_key_whose_first_step_was_refused_leaves_no_record() {
    let mut rig = split::<Lanes>("");
    rig.world.breaks("a", Fault::Refuse);
    rig.pass("a=1");
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("", ""));
}

#[test]
fn a_key_whose_second_step_was_refused_is_ours_all_the_same() {
    let mut rig = split::<Ordered>("");
    rig.world.breaks_after("a", 1, Fault::Refuse);
    let report = rig.pass("a=1");
    assert_eq!(report, ["create a", "failed a: refused", "not converged"]);
    assert_eq!(rig.world.text(), "a=0@unmarked", "half made");
    rig.world.works();
    rig.restart();
    assert_eq!(rig.pass(""), ["delete a", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("", ""));
}

#[test]
fn a_transaction_that_was_refused_leaves_no_record() {
    let mut rig = split::<Atomic>("k=0@nobody");
    for key in ["a", "k"] {
        rig.world.breaks(key, Fault::Refuse);
    }
    rig.pass("a=1 k=1");
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("k=0@nobody", ""));
}

fn remade(rows: &str) -> Rig<Ordered> {
    let mut rig = Rig::checkpoint("");
    rig.rescript(|script| {
        script.remade.insert("a".to_owned());
    });
    rig.pass(rows);
    rig
}

#[test]
fn an_object_that_is_removed_and_made_again_stays_ours() {
    let mut rig = remade("a=1");
    assert_eq!(rig.pass("a=2"), ["delete a", "create a", "converged"]);
    assert_eq!(rig.records(), "a=2,absent,done");
    rig.assert_quiet("a=2");
    assert_eq!(rig.pass(""), ["delete a", "converged"]);
}

#[test]
fn an_object_that_was_to_be_made_again_and_was_not_even_removed_stays_ours() {
    let mut rig = remade("a=1");
    rig.world.breaks("a", Fault::Postpone);
    rig.pass("a=2");
    rig.world.works();
    rig.restart();
    assert_eq!(rig.pass(""), ["delete a", "converged"]);
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("", ""));
}

#[test]
fn an_object_that_was_removed_and_could_not_be_made_again_is_forgotten() {
    let mut rig = remade("a=1");
    rig.world.breaks_after("a", 1, Fault::Refuse);
    rig.pass("a=2");
    assert_eq!((rig.world.text().as_str(), rig.records().as_str()), ("", ""));
    rig.world.works();
    rig.world.holds("a=7@unmarked");
    assert_eq!(rig.pass(""), ["converged"], "it is somebody else's by now");
}
