//! What changes between a plan and its transaction: refused whole, reported with the rule it came from, and
//! worth another look at once.

use std::sync::Arc;

use homeostat_engine::{Entry, Explain as _, Finding, Kind, Report, Retry};
use homeostat_nft::{DesiredState, Nft};

use crate::world::{World, by_hand, expected, explained, listed};

/// Applies a plan under which another program does something.
fn moved(world: &mut World, desired: &Arc<DesiredState>, act: &str) -> Report<Nft> {
    let plan = world.plan(desired);
    by_hand(act);
    world.apply_plan(desired, plan)
}

/// The one failure of a report.
fn failed(report: &Report<Nft>) -> (String, Retry) {
    let mut found = Vec::new();
    report.explain(Kind::Failed, &mut |entry| {
        if let Entry::Finding {
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
            ..
        } = entry
        {
            found.push((failure.error, failure.retry));
        }
    });
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_rule_that_is_gone_already_is_named() {
    let mut world = World::new();
    world.converge("table ip a { chain x { tcp dport 22 accept; drop; }; }");
    let desired = world.desired("table ip a { chain x { drop; }; }");
    let (error, retry) = failed(&moved(&mut world, &desired, "flush chain ip a x"));
    assert!(error.starts_with("table ip a chain x: handle "), "{error}");
    assert!(error.contains("No such file or directory"), "{error}");
    assert_eq!(retry, Retry::Now);
    assert!(world.pass(&desired).is_converged());
    assert_eq!(listed(), expected("table ip a { chain x { drop; }; }"));
}

#[test]
fn a_table_that_somebody_made_first_is_left_alone() {
    let mut world = World::new();
    let desired = world.desired("table ip a { chain x { drop; }; }");
    let act = "table ip a { chain theirs { }; }";
    let (error, retry) = failed(&moved(&mut world, &desired, act));
    assert_eq!(error, "the ruleset changed since it was observed");
    assert_eq!(retry, Retry::Now);
    assert!(listed() == expected(act));
}

#[test]
fn a_table_that_somebody_made_again_is_left_alone() {
    let mut world = World::new();
    world.converge("table ip a { chain x { }; }");
    let desired = world.desired("table ip a { chain x { drop; }; }");
    let act = "delete table ip a; table ip a { chain x { }; }";
    let (error, retry) = failed(&moved(&mut world, &desired, act));
    assert_eq!(error, "the ruleset changed since it was observed");
    assert_eq!(retry, Retry::Now);
    assert!(listed() == expected("table ip a { chain x { }; }"));
}

#[test]
fn a_chain_that_somebody_jumps_to_meanwhile_is_deleted_with_the_rule_that_does() {
    let mut world = World::new();
    world.converge("table ip a { chain x { }; chain y { }; }");
    let desired = world.desired("table ip a { chain x { }; }");
    let report = moved(&mut world, &desired, "add rule ip a x jump y");
    assert!(report.is_converged(), "{}", explained(&report));
    assert!(listed() == expected("table ip a { chain x { }; }"));
}
