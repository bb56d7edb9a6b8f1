//! A target that begins the task of a request only seconds after the request has arrived: it cannot be known until then
//! that there will be one, and nothing is sent a second time.

use std::time::Duration;

use homeostat_engine::Limits;
use homeostat_pve_simulator::{Fault, Harm};

use crate::hour::stage::{FIRST, Process, Stage, let_pass};

const LIMITS: Limits = Limits { total: 5, per_node: 2 };
const MINUTE: Duration = Duration::from_mins(1);

/// A cluster with one guest that is to run, whose tasks begin so much later than their requests arrive.
fn stage(delay: Duration) -> Stage {
    let stage = Stage::new(1, (1, LIMITS));
    let late = Fault::on("/status/start", Harm::BeginLater(delay));
    stage.cluster.with(|world| world.fail(late));
    stage
}

/// How often a start was sent, and how many tasks came of it.
fn starts(stage: &Stage) -> (usize, usize) {
    stage.cluster.with(|world| {
        let sent = world.harmed.iter().filter(|call| call.path.ends_with("/status/start")).count();
        (sent, world.count(FIRST, "vzstart"))
    })
}

async fn is_sent(stage: &Stage) {
    while starts(stage).0 == 0 {
        let_pass(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_right_after_its_request_leaves_one_start_behind() {
    for seconds in [3, 5] {
        let stage = stage(Duration::from_secs(seconds));
        let process = Process::start(&stage).await;
        is_sent(&stage).await;
        let_pass(Duration::from_millis(300)).await;
        process.kill().await;
        let process = Process::start(&stage).await;
        process.converge().await;
        let_pass(MINUTE).await;
        assert_eq!(starts(&stage), (1, 1), "begun after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_answer_takes_too_long_leads_to_one_start() {
    for seconds in [3, 5] {
        let mut stage = stage(Duration::from_secs(seconds));
        stage.answer = Duration::from_secs(2);
        let process = Process::start(&stage).await;
        process.converge().await;
        let_pass(MINUTE).await;
        assert_eq!(starts(&stage), (1, 1), "begun after {seconds} s");
    }
}

/// Requests that have arrived, begun or not.
fn requests(stage: &Stage) -> usize {
    stage.cluster.with(|world| world.calls.len()) + starts(stage).0
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_killed_after_any_request_leaves_one_start_behind() {
    // A later one begins after the answer was given up.
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let delay = Duration::from_secs(if is_soak { 15 } else { 5 });
    let calm = stage(delay);
    Process::start(&calm).await.converge().await;
    for at in 1..=requests(&calm) {
        let stage = stage(delay);
        let process = Process::start(&stage).await;
        while requests(&stage) < at {
            let_pass(Duration::from_millis(10)).await;
        }
        process.kill().await;
        let process = Process::start(&stage).await;
        process.converge().await;
        let_pass(MINUTE).await;
        assert_eq!(starts(&stage), (1, 1), "killed after {at} requests");
    }
}
