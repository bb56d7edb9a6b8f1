//! What happens between two things that go on at once: a look and an end, a stop and an answer, two questions.

use std::time::Duration;

use homeostat_engine::{Limits, Mode, Pace};

use crate::server::{Guests, Id, Moment, Server};
use crate::stage::{MINUTE, Process, WIDE, let_pass, state_directory};

const SECOND: Duration = Duration::from_secs(1);

/// One task at a time on each node.
const NARROW: Limits = Limits { total: 100, per_node: 1 };

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
async fn another_wish_gives_the_place_of_what_may_be_running_to_nobody() {
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
