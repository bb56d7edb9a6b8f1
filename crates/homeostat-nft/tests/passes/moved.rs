//! What changes between a plan and its transaction: refused whole, reported with the rule it came from, and
//! worth another look at once.

use std::sync::Arc;

use homeostat_engine::{Entry, Explain as _, Finding, Kind, Report, Retry};
use homeostat_nft::{DesiredState, Nft};

use crate::world::{World, by_hand, expected, listed};

/// After so many stale generations a transaction goes without.
const PATIENCE: usize = 3;

/// Applies a plan under which another program does something, where the generation no longer guards it.
fn moved(world: &mut World, desired: &Arc<DesiredState>, act: &str) -> (String, Retry) {
    for place in 0..PATIENCE {
        let plan = world.plan(desired);
        by_hand(&format!("table ip stranger{place} {{ }}"));
        let (_, retry) = failed(&world.apply_plan(desired, plan));
        assert_eq!(retry, Retry::Now);
    }
    let plan = world.plan(desired);
    by_hand(act);
    failed(&world.apply_plan(desired, plan))
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

const STRANGERS: &str = "table ip stranger0 { }\ntable ip stranger1 { }\ntable ip stranger2 { }\n";

#[test]
fn a_rule_that_is_gone_already_is_named() {
    let mut world = World::new();
    world.converge("table ip a { chain x { tcp dport 22 accept; drop; }; }");
    let desired = world.desired("table ip a { chain x { drop; }; }");
    let (error, retry) = moved(&mut world, &desired, "flush chain ip a x");
    assert!(error.starts_with("table ip a chain x: handle "), "{error}");
    assert!(error.contains("No such file or directory"), "{error}");
    assert_eq!(retry, Retry::Now);
    assert!(world.pass(&desired).is_converged());
    let expected = expected(&format!("{STRANGERS}table ip a {{ chain x {{ drop; }}; }}"));
    assert_eq!(listed(), expected);
}

#[test]
fn a_table_that_somebody_made_first_is_left_alone() {
    let mut world = World::new();
    let desired = world.desired("table ip a { chain x { drop; }; }");
    let (error, retry) = moved(&mut world, &desired, "table ip a { chain theirs { }; }");
    assert!(error.contains("table ip a") && error.contains("File exists"), "{error}");
    assert_eq!(retry, Retry::Now);
    assert!(listed() == expected(&format!("{STRANGERS}table ip a {{ chain theirs {{ }}; }}")));
}

#[test]
fn a_chain_that_somebody_jumps_to_meanwhile_is_not_deleted() {
    let mut world = World::new();
    world.converge("table ip a { chain x { }; chain y { }; }");
    let desired = world.desired("table ip a { chain x { }; }");
    let (error, retry) = moved(&mut world, &desired, "add rule ip a x jump y");
    assert!(error.starts_with("table ip a chain y: "), "{error}");
    assert!(error.contains("busy"), "{error}");
    assert_eq!(retry, Retry::Now);
    assert!(world.pass(&desired).is_converged());
}
