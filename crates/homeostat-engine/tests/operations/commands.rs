//! Commands beside the loop: the same lanes, in order, each done once.

use std::time::Duration;

use homeostat_engine::journal::{Intent, Repeat};
use homeostat_engine::{Control as _, Limits};

use crate::server::{Id, Server};
use crate::stage::{MINUTE, Process, WIDE, operations, state_directory};

#[tokio::test(start_paused = true)]
async fn a_command_waits_for_the_task_of_a_pass_and_a_pass_for_a_command() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.full == 1).await.unwrap();
    let held = process.operations.enter(&Id(100), "pve0").await;
    assert_eq!(server.running(), [true], "the task of the pass is over");
    server.world.lock().unwrap().calls.clear();
    server.stop(100);
    let report = process.handle.pass().await.unwrap().unwrap();
    assert!(!report.is_converged(), "somebody else holds the lane");
    assert!(server.world.lock().unwrap().calls.is_empty());
    drop(held);
    process.handle.wait_for(|status| status.is_converged).await.unwrap();
    assert_eq!(server.running(), [true]);
}

#[tokio::test(start_paused = true)]
async fn commands_for_one_key_take_turns_in_the_order_of_arrival() {
    let (operations, key) = (operations(state_directory().path(), WIDE).await, Id(100));
    let first = operations.enter(&key, "pve0").await;
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let waiting: Vec<_> = (0..5)
        .map(|number| {
            let (operations, order) = (operations.clone(), order.clone());
            tokio::spawn(async move {
                let _held = operations.enter(&key, "pve0").await;
                order.lock().unwrap().push(number);
            })
        })
        .collect();
    tokio::time::advance(Duration::from_secs(1)).await;
    waiting[2].abort();
    tokio::task::yield_now().await;
    assert!(order.lock().unwrap().is_empty());
    drop(first);
    for one in waiting {
        let _ = one.await;
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 3, 4], "who stopped waiting has no turn");
}

#[tokio::test(start_paused = true)]
async fn other_keys_go_on_within_the_limit() {
    let limits = Limits { total: 2, per_node: 1 };
    let operations = operations(state_directory().path(), limits).await;
    let _one = operations.enter(&Id(100), "pve0").await;
    let _other = operations.enter(&Id(101), "pve1").await;
    let late = tokio::time::timeout(MINUTE, operations.enter(&Id(102), "pve2")).await;
    assert!(late.is_err(), "two run already");
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_a_paused_loop_waited_for_is_free_for_commands() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    let held = process.operations.enter(&Id(100), "pve0").await;
    server.stop(100);
    let report = process.handle.pass().await.unwrap().unwrap();
    assert!(!report.is_converged(), "somebody else holds the lane");
    process.handle.pause(None).unwrap();
    drop(held);
    let next = tokio::time::timeout(MINUTE, process.operations.enter(&Id(100), "pve0")).await;
    drop(next.expect("the lane waits for a pass that does not come"));
    assert_eq!(server.running(), [false], "a paused loop writes nothing");
    process.handle.resume().unwrap();
    process.converge().await;
    assert_eq!(server.running(), [true]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_a_loop_waited_for_is_free_when_the_loop_has_ended() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    let held = process.operations.enter(&Id(100), "pve0").await;
    server.stop(100);
    let report = process.handle.pass().await.unwrap().unwrap();
    assert!(!report.is_converged(), "somebody else holds the lane");
    process.handle.stop(homeostat_engine::OnStop::Leave).await;
    drop(held);
    let next = tokio::time::timeout(MINUTE, process.operations.enter(&Id(100), "pve0")).await;
    assert!(next.is_ok(), "the lane waits for a loop that is gone");
}

#[tokio::test(start_paused = true)]
async fn without_a_loop_the_next_caller_learns_how_the_step_before_ended() {
    let (operations, key) = (operations(state_directory().path(), WIDE).await, Id(100));
    let held = operations.enter(&key, "pve0").await;
    let (subject, repeat) = (operations.subject(&key), Repeat::Hurts);
    let [kind, parameters, node] = ["start", "", "pve0"].map(str::to_owned);
    let (precondition, command) = (None, None);
    let intent = Intent { subject, kind, parameters, precondition, node, repeat, command };
    operations.journal().begin(intent).await.unwrap();
    drop(held);
    let next = tokio::time::timeout(MINUTE, operations.enter(&key, "pve0")).await;
    assert!(next.is_ok(), "the lane waits for a loop that never was");
    assert_eq!(operations.journal().open_steps().len(), 1);
}
