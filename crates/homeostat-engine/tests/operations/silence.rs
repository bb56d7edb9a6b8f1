//! Nodes that take requests and answer none: only their own guests wait.

use std::time::Duration;

use homeostat_engine::{Control as _, Entry, Finding, Kind, Limits, OnStop, Pages as _, WaitsOn};
use tokio::time::Instant;

use crate::server::{Fault, Id, Server};
use crate::stage::{MINUTE, Process, WIDE, begun, bound, let_pass, operations, state_directory};

/// Longer than a pass waits for its lanes, and much shorter than it may take.
const SOON: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

/// One task at a time on each node.
const NARROW: Limits = Limits { total: 100, per_node: 1 };

/// Everybody but these runs.
fn others_run(server: &Server, without: &[u32]) -> bool {
    let running = server.running();
    (100..).zip(running).all(|(guest, is_running)| is_running || without.contains(&guest))
}

/// Stops all but one guest again and again, and sees them started again without delay.
async fn heal_the_others(process: &Process, server: &Server, silent: u32) {
    for round in 1..=5 {
        (100..110).filter(|guest| *guest != silent).for_each(|guest| server.stop(guest));
        let stopped = Instant::now();
        process.handle.pass().await.unwrap().unwrap();
        let_pass(SECOND).await;
        assert!(others_run(server, &[silent]), "round {round}: {:?}", server.running());
        assert!(stopped.elapsed() <= SOON + SECOND, "round {round}: {:?}", stopped.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_answered_delays_no_other_key() {
    let (server, state) = (Server::new(100..110, Duration::ZERO), state_directory());
    server.silence("pve5");
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SOON).await;
    assert!(others_run(&server, &[105]));
    heal_the_others(&process, &server, 105).await;
    let report = process.handle.pass().await.unwrap().unwrap();
    let mut waits = Vec::new();
    report.explain(Kind::Pending, &mut |entry| waits.push(entry));
    let on = WaitsOn::Operation;
    assert_eq!(
        waits,
        [Entry::Finding { key: Id(105).to_string(), finding: Finding::Pending { on } }]
    );
    assert_eq!(process.handle.status().counts.broken, 0);
    server.mend();
    process.converge().await;
    let world = server.world.lock().unwrap();
    assert_eq!(world.calls.iter().filter(|guest| **guest == Id(105)).count(), 1);
    assert_eq!(world.breaches, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_delays_no_other_key() {
    let (server, state) = (Server::new(100..110, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND).await;
    process.kill().await;
    assert_eq!(begun(state.path()), 10);
    server.world.lock().unwrap().takes = Duration::ZERO;
    let_pass(MINUTE).await;
    server.silence("pve5");
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SOON).await;
    heal_the_others(&process, &server, 105).await;
    let open = process.operations.journal().open_steps();
    assert_eq!(open.len(), 1, "{open:?}");
    server.stop(105);
    server.mend();
    // It ran when it was looked at last: only the answer makes the loop look again.
    let_pass(SOON).await;
    process.converge().await;
    process.operations.tasks_finished().await;
    assert!(process.operations.journal().open_steps().is_empty());
    assert_eq!(server.world.lock().unwrap().breaches, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_may_be_running_counts_on_its_node_before_the_target_has_answered() {
    // Guests 100 and 110 live on one node that takes one task at a time.
    let (server, state) = (Server::new(100..111, MINUTE * 30), state_directory());
    server.stop(110);
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(SECOND).await;
    process.kill().await;
    server.silence("pve0");
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(MINUTE * 10).await;
    assert_eq!(begun(state.path()), 10, "the other guest of the node waits");
    server.mend();
    process.converge().await;
    let world = server.world.lock().unwrap();
    assert_eq!((world.most_per_node, world.calls.len()), (1, 11));
    assert_eq!(world.breaches, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_late_refusal_is_reported_and_retried_after_a_pause() {
    let (server, state) = (Server::new(100..102, Duration::ZERO), state_directory());
    server.world.lock().unwrap().late.insert(Id(101), SECOND * 10);
    server.breaks(101, Fault::Refuse);
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND * 5).await;
    let open = process.handle.status().open;
    assert_eq!((open.count(Kind::Pending), open.count(Kind::Failed)), (1, 0), "{open:?}");
    process.handle.wait_for(|status| status.counts.failed > 0).await.unwrap();
    let open = process.handle.status().open;
    assert_eq!((open.count(Kind::Pending), open.count(Kind::Failed)), (0, 1), "{open:?}");
    process.converge().await;
    assert_eq!(begun(state.path()), 3);
}

#[tokio::test(start_paused = true)]
async fn a_late_success_is_verified_and_reported() {
    let (server, state) = (Server::new(100..104, Duration::ZERO), state_directory());
    {
        let mut world = server.world.lock().unwrap();
        world.harmless.extend((100..104).map(Id));
        world.late.extend((101..104).map(|guest| (Id(guest), SECOND * 10)));
    }
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND * 5).await;
    assert!(!process.handle.status().is_converged, "its end is not known yet");
    let so = |status: &homeostat_engine::Status| status.is_converged && status.counts.applied == 4;
    let counts = process.handle.wait_for(so).await.unwrap().counts;
    assert_eq!(counts.failed, 0);
    assert_eq!(server.world.lock().unwrap().calls.len(), 4);
    assert_eq!(process.operations.busy(), 0);
}

/// A loop that has sent one harmless step to a node that says nothing.
async fn with_one_late_step(server: &Server, state: &std::path::Path) -> Process {
    server.world.lock().unwrap().harmless.insert(Id(100));
    server.silence("pve0");
    let process = Process::start(server, state, WIDE).await;
    process.handle.wait_for(|status| status.open.count(Kind::Pending) == 1).await.unwrap();
    process
}

#[tokio::test(start_paused = true)]
async fn what_ends_while_a_pass_looks_is_concluded_after_it() {
    let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
    let process = with_one_late_step(&server, state.path()).await;
    server.world.lock().unwrap().looks_take = SECOND;
    process.handle.wait_for(|status| status.counts.full == 2).await.unwrap();
    server.mend();
    // One look is under way, and the conclusion takes another. Nothing else wakes the loop.
    let_pass(SECOND * 3).await;
    assert_eq!(process.handle.status().counts.applied, 1);
}

#[tokio::test(start_paused = true)]
async fn what_ends_while_no_look_works_is_concluded_when_one_does() {
    let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
    let process = with_one_late_step(&server, state.path()).await;
    server.world.lock().unwrap().hidden = Some("connection refused");
    assert!(process.handle.pass().await.unwrap().is_err());
    server.mend();
    let_pass(SECOND / 10).await;
    server.world.lock().unwrap().hidden = None;
    let so = |status: &homeostat_engine::Status| status.counts.applied == 1;
    let counts = process.handle.wait_for(so).await.unwrap().counts;
    assert_eq!(counts.failed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_refusal_takes_no_record_of_what_another_pass_has_seen() {
    let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
    {
        let mut world = server.world.lock().unwrap();
        world.recorded.insert(Id(100));
        world.late.insert(Id(100), SECOND * 10);
    }
    server.breaks(100, Fault::Belie);
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SOON).await;
    let record = || {
        let page = process.ledger.page(&bound(&server, &[100]).ledger_key).unwrap();
        page.records.into_iter().map(|(_, record)| record).collect::<String>()
    };
    assert!(record().contains("\"intent\""), "{}", record());
    process.handle.pass().await.unwrap().unwrap();
    assert!(record().contains("\"done\""), "{}", record());
    process.handle.wait_for(|status| status.counts.failed > 0).await.unwrap();
    assert!(record().contains("\"done\""), "the guest runs, and is ours: {:?}", record());
}

#[tokio::test(start_paused = true)]
async fn another_desired_state_finds_out_what_became_of_a_late_step() {
    let (server, state) = (Server::new(100..102, MINUTE), state_directory());
    server.world.lock().unwrap().late.insert(Id(101), SECOND * 10);
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SOON).await;
    process.put_again(&server);
    process.converge().await;
    let world = server.world.lock().unwrap();
    assert_eq!((world.calls.len(), &world.breaches), (2, &Vec::new()));
    assert!(world.asked > 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_late_step_and_the_next_life_asks() {
    let (server, state) = (Server::new(100..102, MINUTE), state_directory());
    server.world.lock().unwrap().late.insert(Id(101), MINUTE * 10);
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SOON).await;
    let before = Instant::now();
    process.handle.stop(OnStop::Leave).await;
    assert!(before.elapsed() <= SOON);
    process.kill().await;
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    let world = server.world.lock().unwrap();
    assert_eq!((world.calls.len(), &world.breaches), (2, &Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_command_may_ask_for_itself_while_the_loop_is_paused() {
    let (server, state) = (Server::new(100..102, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND).await;
    process.kill().await;
    server.silence("pve0");
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.pause(None).unwrap();
    process.handle.pass().await.unwrap().unwrap();
    let entered = tokio::time::timeout(SECOND, process.operations.enter(&Id(100), "pve0")).await;
    assert!(entered.is_ok(), "no pass will come to receive the answer");
}

#[tokio::test(start_paused = true)]
async fn the_journal_remembers_where_a_step_runs() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND).await;
    process.kill().await;
    let operations = operations(state.path(), WIDE).await;
    let open = operations.journal().open_steps();
    assert_eq!(open[0].intent.node, "pve0");
}
