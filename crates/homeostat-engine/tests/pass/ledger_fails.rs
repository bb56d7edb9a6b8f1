//! A ledger that cannot be written: nothing is sent that it does not know of.

use homeostat_engine::{Entry, Explain as _, Finding, Kind, PassTrouble};

use crate::Toys;
use crate::common::rig::lines;
use crate::common::world::Fault;

#[test]
fn a_ledger_that_cannot_take_the_intents_keeps_the_target_untouched() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    rig.ledger.fails_at(0);
    let report = rig.try_pass("a=1 k=1", None).unwrap();
    let mut held = Vec::new();
    report.explain(Kind::Held, &mut |entry| {
        if let Entry::Finding { key, finding: Finding::Held { why, .. } } = entry {
            assert!(why.contains("steps that need a record were not made"), "{why}");
            held.push(key);
        }
    });
    assert_eq!(held, ["a", "k"]);
    assert_eq!(lines(&report).last().unwrap(), "not converged");
    assert_eq!(rig.world.text(), "k=0@nobody");
    assert_eq!(rig.world.take_log()[..2], ["look at all", "ledger is full"]);
    assert_eq!(rig.pass("a=1 k=1"), ["create a", "update k", "converged"]);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
}

#[test]
fn what_needs_no_new_record_is_healed_while_the_ledger_cannot_be_written() {
    let mut rig = Toys::checkpoint("k=0@nobody");
    assert_eq!(rig.pass("k=1"), ["update k", "converged"]);
    rig.world.holds("k=0@nobody");
    rig.ledger.fails_at(0);
    let lines = rig.pass("a=1 k=1");
    assert_eq!((&*lines[0], &**lines.last().unwrap()), ("update k", "not converged"));
    assert_eq!(rig.world.text(), "k=1@nobody");
    assert_eq!(rig.pass("a=1 k=1"), ["create a", "converged"]);
    assert_eq!(rig.records(), "a=1,absent,done k=1,0,done");
}

#[test]
fn intents_that_were_never_durable_are_forgotten() {
    let mut rig = Toys::checkpoint("");
    rig.ledger.fails_at(0);
    rig.pass("a=1");
    assert_eq!(rig.world.text(), "");
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
        if let Entry::Pass { about: PassTrouble::Ledger, failure } = entry {
            help = failure.help;
        }
    });
    let help = help.unwrap();
    assert!(!help.contains("steps that need a record were not made"), "{help}");
    let lines = lines(&report);
    assert_eq!(lines[..2], ["create a", "update k"], "what was done is reported all the same");
    assert_eq!(lines.last().unwrap(), "not converged");
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
