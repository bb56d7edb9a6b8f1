//! Requests that are lost: what is found by the list of tasks is theirs, and nothing older.

use homeostat_engine::journal::{End, Fact, follow};
use homeostat_guests::Run;
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, desired, runs};

/// How our steps ended, by the journal, in words.
fn ends(ground: &Ground) -> Vec<&'static str> {
    let records = follow(ground.state.path()).more().unwrap();
    let ends = records.into_iter().filter_map(|record| match record.fact {
        Fact::Ended(End::Succeeded { .. }) => Some("succeeded"),
        Fact::Ended(End::Failed { .. }) => Some("failed"),
        Fact::Ended(End::Unknown { .. }) => Some("unknown"),
        Fact::Intent(_) | Fact::Dispatched { .. } => None,
    });
    ends.collect()
}

#[tokio::test]
async fn a_lost_request_is_not_taken_for_an_earlier_task_of_our_own() {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    process.converge(&desired).await;
    // Twice in a row: the second one finds the name of the first task through the step between.
    for _ in 0..2 {
        ground.simulator.with(|world| {
            world.guests.get_mut(&101).unwrap().running = false;
            world.fail(Fault::on("/status/start", Harm::DropRequest).times(1));
        });
        process.pass(&desired).await;
        drop(process);
        process = ground.process();
        process.pass(&desired).await;
    }
    process.converge(&desired).await;
    assert_eq!(ends(&ground), ["succeeded", "unknown", "unknown", "succeeded"]);
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 2);
}
