//! Five very different users of the contract, as skeletons over targets in memory, behind one
//! registry.
//!
//! `routes` has a million-capable desired state and streams; `nft` makes many steps of one change and sends
//! them as one transaction; `knobs` writes values that belong to nobody; `guests` dispatches tasks
//! and knows some fields only sometimes; `rest` is a user's own API through the kit's adapter.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but without `#[test]` clippy cannot know"
)]

#[path = "five_users/guests.rs"]
mod guests;
#[path = "five_users/knobs.rs"]
mod knobs;
#[path = "five_users/nft.rs"]
mod nft;
#[path = "five_users/rest.rs"]
mod rest;
#[path = "five_users/routes.rs"]
mod routes;
#[path = "five_users/stage.rs"]
mod stage;

use std::sync::Arc;

use homeostat_engine::{Alone, Explain, Kind, LoopDeps, LoopTask, MemoryLedger, Planner};
use homeostat_testkit::ledger::Tapped;

use crate::stage::Writes;

/// All five in one list: this is what a program with many sources holds.
fn registry(writes: &Writes) -> Vec<Box<dyn Planner>> {
    vec![
        Box::new(routes::bound(routes::Table::new(writes), &routes::desired_states(20_000))),
        Box::new(nft::bound(nft::Ruleset::new(writes), nft::FIREWALL)),
        Box::new(knobs::bound(knobs::Tree::new(writes), &[("forward", "1"), ("ttl", "64")])),
        Box::new(guests::bound(guests::Server::new(writes), guests::BOTH)),
        Box::new(rest::bound(rest::Cloud::new(writes), &[("door", "green")])),
    ]
}

fn troubles(explain: &dyn Explain) -> Vec<String> {
    let mut found = Vec::new();
    for kind in [Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Unknown, Kind::Held] {
        explain.explain(kind, &mut |entry| found.push(format!("{entry:?}")));
    }
    found
}

#[tokio::test]
async fn each_is_planned_passed_by_a_loop_and_then_left_alone() {
    let (writes, ledger) = (Writes::default(), Tapped::new(MemoryLedger::default()));
    let (recorded, ledger) = (ledger.count(), Arc::new(ledger));
    for planner in registry(&writes) {
        let name = planner.ledger_key().source.clone();
        let plan = planner.plan(&*ledger).await.unwrap();
        assert!(plan.summary().total() > 0, "{name} has nothing to do");
        assert_eq!(writes.count(), 0, "{name} wrote while it planned");

        let lock = Arc::new(Alone::i_am_the_only_writer());
        let deps = LoopDeps::new(lock, ledger.clone());
        let pace = planner.pace(1).once();
        let LoopTask { control, run, .. } = planner.into_loop(deps, pace);
        let running = tokio::spawn(run);
        let report = control.pass().await.unwrap().unwrap();
        assert!(report.is_converged(), "{name}: {:?}", troubles(&*report));
        assert_eq!(report.summary(), plan.summary(), "{name} did something else than planned");
        assert!(writes.take() > 0, "{name} wrote nothing");

        let before = recorded.writes();
        let again = control.pass().await.unwrap().unwrap();
        assert!(again.is_converged(), "{name}: {:?}", troubles(&*again));
        assert_eq!((writes.count(), again.summary().total()), (0, 0), "{name} wrote again");
        assert_eq!(recorded.writes(), before, "{name} wrote to the ledger again");
        running.abort();
    }
}
