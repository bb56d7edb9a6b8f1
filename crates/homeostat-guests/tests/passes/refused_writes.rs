//! A cluster that refuses every write: each guest is tried again after its pauses, and what that costs is bounded.

use std::time::Duration;

use homeostat_engine::Limits;
use homeostat_pve_simulator::{Fault, Harm};

use crate::hour::stage::{Process, Stage, let_pass};

const GUESTS: u32 = 40;
const WINDOW: Duration = Duration::from_secs(15);

/// What reached the cluster in one window, for each guest: writes, and requests of any kind.
async fn a_window(stage: &Stage) -> (f64, f64) {
    let count = || stage.cluster.with(|world| (world.writes().len(), world.calls.len()));
    let before = count();
    let_pass(WINDOW).await;
    let after = count();
    let each = |count: usize| f64::from(u32::try_from(count).unwrap()) / f64::from(GUESTS);
    (each(after.0 - before.0), each(after.1 - before.1))
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_refuses_all_writes_is_asked_less_and_less() {
    let stage = Stage::new(1, (GUESTS, Limits { total: 16, per_node: 4 }));
    stage.cluster.with(|world| {
        for method in ["POST", "PUT"] {
            let refused = Harm::Refuse(500, "this node takes no changes".to_owned());
            world.fail(Fault::on("", refused).method(method));
        }
    });
    let _process = Process::start(&stage).await;
    // The pauses double from a tenth of a second on: seven or eight tries. Each is one write, and a few reads that make
    // sure of what is written to.
    let (writes, requests) = a_window(&stage).await;
    assert!(writes < 9.0 && requests < 50.0, "{writes} writes, {requests} requests a guest");
    for nth in 1..6 {
        let (writes, requests) = a_window(&stage).await;
        let costs = format!("window {nth}: {writes} writes, {requests} requests a guest");
        assert!(writes < 2.0 && requests < 10.0, "{costs}");
    }
}
