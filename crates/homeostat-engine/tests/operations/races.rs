//! What happens between two things that go on at once: a look and an end, a stop and an answer, two questions.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Control as _, DispatchGuard, Kind, Limits, Mode, OnStop, Pace, Table};

use crate::server::{Guests, Id, Moment, Server};
use crate::stage::{MINUTE, Process, WIDE, bound, let_pass, state_directory};

const SECOND: Duration = Duration::from_secs(1);

/// One task at a time on each node.
const NARROW: Limits = Limits { total: 100, per_node: 1 };

#[tokio::test(start_paused = true)]
async fn a_stop_that_puts_everything_back_waits_for_late_answers() {
    let (server, state) = (Server::new(100..102, Duration::ZERO), state_directory());
    {
        let mut world = server.world.lock().unwrap();
        world.harmless.extend([Id(100), Id(101)]);
        world.recorded.extend([Id(100), Id(101)]);
    }
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    let mut bound = bound(&server, &[100, 101]);
    bound.nothing = Some(Arc::new(Table::new([(Id(100), false), (Id(101), false)]).unwrap()));
    bound.config.dispatch = DispatchGuard::Operations(process.operations.clone());
    process.handle.put(bound).unwrap();
    process.converge().await;
    server.world.lock().unwrap().late.insert(Id(101), SECOND * 5);
    process.handle.stop(OnStop::Revert).await;
    let applied = process.handle.status().counts.applied;
    assert_eq!((server.running(), applied), (vec![false, false], 4));
    assert!(process.operations.journal().open_steps().is_empty(), "all ends were received");
}

#[tokio::test(start_paused = true)]
async fn what_ended_after_the_look_is_looked_at_again_before_anything_is_sent() {
    let (server, state) = (Server::new(100..101, SECOND * 3), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.full == 1).await.unwrap();
    {
        let mut world = server.world.lock().unwrap();
        (world.looks_take, world.looks_tell) = (SECOND * 5, Moment::Beginning);
    }
    process.handle.pass().await.unwrap().unwrap();
    process.converge().await;
    assert_eq!(server.world.lock().unwrap().calls.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ended_before_its_late_answer_was_concluded_blocks_no_pass() {
    let (server, state) = (Server::new(100..101, SECOND / 10), state_directory());
    server.world.lock().unwrap().late.insert(Id(100), SECOND * 3);
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.open.count(Kind::Pending) == 1).await.unwrap();
    // Looks fail when the answer comes, and when the task ends.
    server.world.lock().unwrap().hidden = Some("connection refused");
    assert!(process.handle.pass().await.unwrap().is_err());
    let_pass(SECOND * 10).await;
    server.world.lock().unwrap().hidden = None;
    process.handle.pass().await.unwrap().unwrap();
    let_pass(SECOND / 2).await;
    assert!(process.handle.status().is_converged, "{:?}", process.handle.status());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_another_one_replaced_takes_nothing_from_it() {
    let (server, state) = (Server::new(100..101, MINUTE * 10), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND).await;
    process.kill().await;
    server.silence("pve0");
    server.world.lock().unwrap().questions_take = Some(SECOND * 30);
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND * 20).await;
    process.put_again(&server);
    // The first question is given up, the second one is answered.
    let_pass(SECOND * 11).await;
    server.mend();
    let_pass(SECOND * 20).await;
    assert_eq!(process.operations.in_flight().len(), 1);
    assert_eq!(server.world.lock().unwrap().asked, 1);
}

#[tokio::test(start_paused = true)]
async fn another_desired_state_does_not_free_the_slot_of_what_may_be_running() {
    let (server, state) = (Server::new(100..101, MINUTE * 10), state_directory());
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(SECOND).await;
    process.kill().await;
    server.silence("pve0");
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(SECOND).await;
    let operations = process.operations.clone();
    let entering = tokio::spawn(async move { operations.enter(&Id(110), "pve0").await });
    let_pass(SECOND).await;
    process.put_again(&server);
    let_pass(SECOND * 10).await;
    assert!(!entering.is_finished(), "the node may be at work");
    server.mend();
    let_pass(MINUTE * 10).await;
    assert!(entering.is_finished());
}

#[tokio::test(start_paused = true)]
async fn what_may_be_running_counts_on_its_node_before_the_first_look() {
    let (server, state) = (Server::new(100..101, MINUTE * 10), state_directory());
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(SECOND).await;
    process.kill().await;
    server.world.lock().unwrap().looks_take = SECOND * 10;
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(SECOND).await;
    let entered = tokio::time::timeout(SECOND, process.operations.enter(&Id(110), "pve0")).await;
    assert!(entered.is_err(), "the node is at work");
}

#[tokio::test(start_paused = true)]
async fn a_paused_loop_that_cannot_look_keeps_no_lane() {
    let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
    {
        let mut world = server.world.lock().unwrap();
        world.harmless.insert(Id(100));
        world.late.insert(Id(100), SECOND * 5);
    }
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.open.count(Kind::Pending) == 1).await.unwrap();
    server.world.lock().unwrap().hidden = Some("connection refused");
    process.handle.pause(None).unwrap();
    assert!(process.handle.pass().await.unwrap().is_err());
    let entered = tokio::time::timeout(MINUTE, process.operations.enter(&Id(100), "pve0")).await;
    assert!(entered.is_ok(), "the lane waits for a pass that does not come");
}

#[tokio::test(start_paused = true)]
async fn the_place_on_a_node_that_a_guest_has_left_is_free() {
    let (server, state) = (Server::new(100..101, MINUTE * 10), state_directory());
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(SECOND).await;
    process.kill().await;
    server.silence("pve0");
    server.world.lock().unwrap().moved.insert(Id(100), "pve1".to_owned());
    // There is nothing to be done for it.
    server.start(100);
    let process = Process::start(&server, state.path(), NARROW).await;
    let_pass(SECOND * 4).await;
    let entering = tokio::time::timeout(MINUTE, process.operations.enter(&Id(110), "pve0"));
    let (entered, ()) = tokio::join!(entering, async {
        let_pass(SECOND).await;
        server.mend();
    });
    assert!(entered.is_ok());
    assert_eq!(process.operations.in_flight().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_only_looks_keeps_no_lane() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(SECOND).await;
    process.kill().await;
    let pace = Pace::of::<Guests>(1).with_mode(Mode::Observe);
    let process = Process::start_at(pace, (&server, state.path(), WIDE)).await;
    let_pass(SECOND).await;
    let entered = tokio::time::timeout(MINUTE, process.operations.enter(&Id(100), "pve0")).await;
    assert!(entered.is_ok(), "no pass will come to ask");
}

#[tokio::test(start_paused = true)]
async fn what_a_command_did_after_the_look_is_looked_at_again_before_anything_is_sent() {
    let (server, state) = (Server::new(100..101, SECOND), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    server.stop(100);
    {
        let mut world = server.world.lock().unwrap();
        (world.looks_take, world.looks_tell) = (SECOND * 5, Moment::Beginning);
    }
    let command = async {
        let_pass(SECOND).await;
        let _held = process.operations.enter(&Id(100), "pve0").await;
        server.start(100);
    };
    let (answer, ()) = tokio::join!(process.handle.pass(), command);
    answer.unwrap().unwrap();
    process.converge().await;
    assert_eq!(server.world.lock().unwrap().breaches, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_concluded_late_proves_nothing_about_the_present() {
    let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
    {
        let mut world = server.world.lock().unwrap();
        world.harmless.insert(Id(100));
        world.tells.insert(Id(100));
        world.late.insert(Id(100), SECOND * 3);
    }
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.open.count(Kind::Pending) == 1).await.unwrap();
    server.world.lock().unwrap().looks_take = SECOND * 5;
    // The answer comes while a pass looks, and then the guest stops.
    let stopping = async {
        let_pass(SECOND * 3).await;
        server.stop(100);
    };
    let (answer, ()) = tokio::join!(process.handle.pass(), stopping);
    answer.unwrap().unwrap();
    process.converge().await;
    assert_eq!(server.running(), [true]);
}
