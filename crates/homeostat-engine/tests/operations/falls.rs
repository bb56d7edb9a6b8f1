//! Steps that run out of time, panics, and waits that are given up: no lane is lost, nothing is a failure
//! that is none, and nothing is sent before it is known what became of the step before.

use std::time::Duration;

use futures_util::FutureExt as _;
use homeostat_engine::journal::{End, Fact, Intent, Record, Repeat, follow};
use homeostat_engine::{Control as _, Limits, OnStop};

use crate::server::{Fault, Id, Server};
use crate::stage::{MINUTE, Process, WIDE, begun, let_pass, operations, state_directory};

/// Guests 100 and 110 live on one node that takes one task at a time.
const NARROW: Limits = Limits { total: 100, per_node: 1 };

/// The words of the journal for one guest.
fn recorded(state: &std::path::Path, guest: u32) -> Vec<&'static str> {
    let records: Vec<Record> = follow(state).more().unwrap();
    let about = |record: &Record| match &record.fact {
        Fact::Intent(intent) => intent.subject.key == Id(guest).to_string(),
        _ => false,
    };
    let ids: Vec<_> = records.iter().filter(|one| about(one)).map(|one| one.id).collect();
    let words = records.iter().filter(|one| ids.contains(&one.id)).map(|one| match &one.fact {
        Fact::Intent(_) => "intent",
        Fact::Dispatched { .. } => "dispatched",
        Fact::Ended(end) => match end {
            End::Succeeded { .. } => "succeeded",
            End::Failed { .. } => "failed",
            End::Unknown { .. } => "unknown",
        },
    });
    words.collect()
}

#[tokio::test(start_paused = true)]
async fn a_step_that_ran_out_of_time_is_retired_before_the_next_one_starts() {
    let (server, state) = (Server::new(100..111, MINUTE * 5), state_directory());
    server.breaks(100, Fault::Hang);
    let process = Process::start(&server, state.path(), NARROW).await;
    // The first pass is given up, while the target works on what it sent.
    process.handle.wait_for(|status| status.counts.broken > 0).await.unwrap();
    process.converge().await;
    assert_eq!(recorded(state.path(), 100), ["intent", "dispatched", "succeeded"], "found again");
    let world = server.world.lock().unwrap();
    assert_eq!((world.calls.len(), &world.breaches), (11, &Vec::new()));
    assert_eq!(world.most_per_node, 1, "its place on the node is taken until it ends");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_task_that_runs_out_of_time_is_no_end_of_the_task() {
    let (server, state) = (Server::new(100..111, MINUTE * 30), state_directory());
    server.world.lock().unwrap().patience = Some(MINUTE * 4);
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(MINUTE * 20).await;
    assert_eq!(process.operations.in_flight().len(), 10, "it is found again and waited for");
    let passes = process.handle.status().counts;
    assert!(passes.focused < 40, "a few for each time it was given up: {passes:?}");
    process.converge().await;
    assert_eq!(recorded(state.path(), 100), ["intent", "dispatched", "succeeded"]);
    let world = server.world.lock().unwrap();
    assert_eq!((world.calls.len(), world.most_per_node), (11, 1));
    assert_eq!(world.breaches, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_step_frees_its_lane_once_it_is_known_what_became_of_it() {
    let (server, state) = (Server::new(100..103, MINUTE), state_directory());
    server.breaks(101, Fault::PanicInSend);
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.broken > 0).await.unwrap();
    process.converge().await;
    assert!(begun(state.path()) > 3, "one was begun and never sent");
    assert_eq!(server.world.lock().unwrap().calls.len(), 3);
    assert_eq!(process.operations.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_holder_of_a_lane_frees_it() {
    let operations = operations(state_directory().path(), WIDE).await;
    let entered = operations.clone();
    let fallen = tokio::spawn(async move {
        let _held = entered.enter(&Id(100), "pve0").await;
        panic!("made to panic");
    });
    assert!(fallen.await.unwrap_err().is_panic());
    assert_eq!(operations.busy(), 0);
    let next = tokio::time::timeout(MINUTE, operations.enter(&Id(100), "pve0")).await;
    assert!(next.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_for_a_lane_leaves_no_trace() {
    let limits = Limits { total: 1, per_node: 1 };
    let operations = operations(state_directory().path(), limits).await;
    let held = operations.enter(&Id(100), "pve0").await;
    for guest in 100..200 {
        let guest = Id(guest);
        let wait = operations.enter(&guest, "pve0");
        assert!(tokio::time::timeout(Duration::from_secs(1), wait).await.is_err());
    }
    assert_eq!(operations.busy(), 1, "only the one that is held");
    drop(held);
    assert_eq!(operations.busy(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_lets_the_next_one_move_up() {
    let operations = operations(state_directory().path(), NARROW).await;
    let _held = operations.enter(&Id(100), "pve0").await;
    // The first is for the busy node, the second for another one, as after a move of the guest.
    let mut first = Box::pin(operations.enter(&Id(110), "pve0"));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(operations.enter(&Id(110), "pve1"));
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    assert!(tokio::time::timeout(MINUTE, second).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_is_no_failure() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(MINUTE / 2).await;
    // Neither who waits for the end of all tasks nor the process itself waits any longer.
    let landed = tokio::time::timeout(Duration::from_secs(1), process.operations.tasks_finished());
    assert!(landed.await.is_err());
    process.kill().await;
    assert_eq!(recorded(state.path(), 100), ["intent", "dispatched"]);
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    assert_eq!(recorded(state.path(), 100), ["intent", "dispatched", "succeeded"]);
    assert_eq!(server.world.lock().unwrap().calls.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_guest_waits_for_the_slowest_one_before_it_is_looked_at_again() {
    let (server, state) = (Server::new(100..110, MINUTE), state_directory());
    server.world.lock().unwrap().slow.insert(Id(105), MINUTE * 60);
    let process = Process::start(&server, state.path(), WIDE).await;
    for again in 1..=5 {
        let_pass(MINUTE * 2).await;
        let others = || {
            let running = server.running();
            running.iter().enumerate().all(|(at, is_running)| *is_running || at == 5)
        };
        assert!(others(), "round {again}: {:?}", server.running());
        assert!(process.operations.in_flight().contains_key(&Id(105)));
        (100..110).filter(|guest| *guest != 105).for_each(|guest| server.stop(guest));
        process.handle.pass().await.unwrap().unwrap();
    }
    process.converge().await;
    let world = server.world.lock().unwrap();
    assert_eq!(world.calls.iter().filter(|guest| **guest == Id(105)).count(), 1);
    assert_eq!(world.breaches, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_lane_in_doubt_is_free_for_commands_when_no_pass_comes_to_ask() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    server.breaks(100, Fault::Vanish);
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(MINUTE).await;
    let early = tokio::time::timeout(MINUTE, process.operations.enter(&Id(100), "pve0")).await;
    assert!(early.is_err(), "the end of the step before is unknown");
    process.handle.stop(OnStop::Leave).await;
    let entered = tokio::time::timeout(MINUTE, process.operations.enter(&Id(100), "pve0")).await;
    assert!(entered.is_ok(), "the next caller asks by itself");
    assert_eq!(
        process.operations.journal().open_steps().len(),
        1,
        "it still has to be asked about"
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_learnt_is_unknown_and_the_next_look_decides() {
    for (fault, calls) in [(Fault::DropAnswer, 1), (Fault::DropRequest, 1)] {
        let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
        server.breaks(100, fault);
        server.world.lock().unwrap().is_forgetful = true;
        let process = Process::start(&server, state.path(), WIDE).await;
        process.converge().await;
        let_pass(MINUTE).await;
        assert_eq!(server.running(), [true], "{fault:?}");
        assert_eq!(recorded(state.path(), 100)[..2], ["intent", "unknown"], "{fault:?}");
        assert_eq!(server.world.lock().unwrap().calls.len(), calls, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_left_without_an_end_keeps_its_lane_until_a_pass_has_asked() {
    let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
    let process = Process::start(&server, state.path(), NARROW).await;
    process.converge().await;
    server.world.lock().unwrap().is_unreachable = true;
    let held = process.operations.enter(&Id(100), "pve0").await;
    let (subject, kind) = (process.operations.subject(held.key()), "start".to_owned());
    let (parameters, precondition, node) = (String::new(), None, "pve0".to_owned());
    let (repeat, command) = (Repeat::Hurts, None);
    let intent = Intent { subject, kind, parameters, precondition, node, repeat, command };
    process.operations.journal().begin(intent).await.unwrap();
    drop(held);
    let early = tokio::time::timeout(MINUTE, process.operations.enter(&Id(110), "pve0")).await;
    assert!(early.is_err(), "the node may be at work");
    server.world.lock().unwrap().is_unreachable = false;
    process.handle.pass().await.unwrap().unwrap();
    let later = tokio::time::timeout(MINUTE, process.operations.enter(&Id(110), "pve0")).await;
    assert!(later.is_ok());
}
