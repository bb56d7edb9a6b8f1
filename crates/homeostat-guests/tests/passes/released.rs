//! Guests that leave the document: the journal records it like any other write.

use homeostat_engine::Explain as _;
use homeostat_engine::journal::{Fact, follow};
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, desired, options};
use crate::journal::journal_of;

/// A guest that carries our mark, and what the journal has recorded of that.
async fn claimed() -> Ground {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    ground.process().converge(&desired([(101, options(&[("cores", "2")]))])).await;
    assert_eq!(journal_of(&ground, 101), ["set", "succeeded"]);
    ground
}

#[tokio::test]
async fn the_journal_says_that_our_mark_was_taken_off_and_of_which_configuration() {
    let ground = claimed().await;
    ground.process().converge(&desired([])).await;
    assert_eq!(journal_of(&ground, 101)[2..], ["release", "succeeded"]);
    let records = follow(ground.state.path()).more().unwrap();
    let mut intents = records.into_iter().filter_map(|record| match record.fact {
        Fact::Intent(intent) => Some(intent),
        _ => None,
    });
    let release = intents.next_back().unwrap();
    assert!(release.parameters.starts_with("/nodes/pve1/lxc/101/config "), "{release:?}");
    assert_eq!(release.precondition.map(|digest| digest.len()), Some(40), "the digest");
}

#[tokio::test]
async fn the_journal_says_that_a_release_was_refused_and_then_done() {
    let ground = claimed().await;
    let words = "can't lock file '/run/lock/lxc/pve-config-101.lock' - got timeout";
    ground.simulator.with(|world| {
        let refuse = Harm::Refuse(500, words.to_owned());
        world.fail(Fault::on("/101/config", refuse).method("PUT").times(1));
    });
    let mut process = ground.process();
    assert!(!process.pass(&desired([])).await.is_converged());
    process.converge(&desired([])).await;
    let recorded = journal_of(&ground, 101);
    let [_, _, first, failed, second, done] = &*recorded else { panic!("{recorded:?}") };
    assert!(failed.starts_with("failed: ") && failed.contains(words), "{recorded:?}");
    assert_eq!([&**first, second, done], ["release", "release", "succeeded"]);
}

#[tokio::test]
async fn a_release_that_writes_nothing_is_not_in_the_journal() {
    let ground = claimed().await;
    ground.simulator.with(|world| world.put(101, Guest::new(Kind::Lxc, "pve1")));
    ground.process().converge(&desired([])).await;
    assert_eq!(journal_of(&ground, 101), ["set", "succeeded"]);
}
