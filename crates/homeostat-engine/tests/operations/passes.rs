//! Passes that do not wait, limits, lost answers, and falls.

use homeostat_engine::{Control as _, Kind};
use std::time::Duration;

use homeostat_engine::Limits;
use tokio::time::Instant;

use crate::server::{Fault, Server};
use crate::stage::{MINUTE, Process, WIDE, begun, let_pass, state_directory};

#[tokio::test(start_paused = true)]
async fn a_pass_does_not_wait_for_tasks_and_looks_again_when_they_end() {
    let (server, state) = (Server::new(100..110, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.full == 1).await.unwrap();
    process.handle.pass().await.unwrap().unwrap();
    assert!(Instant::now().elapsed() < MINUTE);
    assert_eq!(process.operations.in_flight().len(), 10);
    process.converge().await;
    assert!(server.running().iter().all(|running| *running));
    assert_eq!(server.world.lock().unwrap().calls.len(), 10, "each was asked for once");
}

#[tokio::test(start_paused = true)]
async fn no_node_gets_more_tasks_than_it_may_and_every_guest_is_started() {
    let (server, state) = (Server::new(100..180, MINUTE), state_directory());
    let limits = Limits { total: 12, per_node: 2 };
    let process = Process::start(&server, state.path(), limits).await;
    process.converge().await;
    let world = server.world.lock().unwrap();
    assert_eq!(world.calls.len(), 80);
    assert_eq!((world.most_per_node, world.most_in_all), (2, 12));
    assert_eq!(world.breaches, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_up_and_not_sent_again() {
    let (server, state) = (Server::new(100..102, MINUTE), state_directory());
    server.breaks(100, Fault::DropAnswer);
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    let world = server.world.lock().unwrap();
    assert_eq!((world.calls.len(), &world.breaches), (2, &Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn what_never_arrived_or_failed_is_sent_again() {
    for fault in [Fault::DropRequest, Fault::Refuse, Fault::FailTask] {
        let (server, state) = (Server::new(100..102, MINUTE), state_directory());
        server.breaks(100, fault);
        let process = Process::start(&server, state.path(), WIDE).await;
        process.converge().await;
        assert_eq!(begun(state.path()), 3, "{fault:?}");
        assert!(server.world.lock().unwrap().breaches.is_empty(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_waiting_frees_the_lane_and_the_next_look_decides() {
    let (server, state) = (Server::new(100..102, Duration::from_secs(1)), state_directory());
    server.breaks(100, Fault::PanicInWait);
    let process = Process::start(&server, state.path(), WIDE).await;
    process.converge().await;
    assert!(process.operations.in_flight().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_about_now_gets_nothing_new() {
    let (server, state) = (Server::new(100..101, MINUTE), state_directory());
    server.breaks(100, Fault::Vanish);
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(MINUTE * 10).await;
    process.handle.pass().await.unwrap().unwrap();
    assert_eq!(process.operations.journal().open_steps().len(), 1);
    assert_eq!(begun(state.path()), 1);
    server.world.lock().unwrap().is_unreachable = false;
    process.converge().await;
    assert_eq!(server.world.lock().unwrap().calls.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_again_and_again_is_begun_after_growing_pauses_and_reported_as_failed() {
    let (server, state) = (Server::new(100..102, Duration::from_millis(10)), state_directory());
    (0..9999).for_each(|_| server.breaks(100, Fault::FailTask));
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(MINUTE * 10).await;
    // A resync tries everything again, and there is one every five seconds.
    let begun = server.world.lock().unwrap().calls.len();
    assert!((10..300).contains(&begun), "{begun} starts in ten minutes");
    let status = process.handle.status();
    assert_eq!(
        (status.open.count(Kind::Failed), status.open.count(Kind::Pending)),
        (1, 0),
        "{status:?}"
    );
    assert!(status.counts.failed >= 10, "{status:?}");
    assert_eq!(process.operations.busy(), 0, "commands can enter meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_says_done_and_shows_nothing_is_reported_and_begun_after_growing_pauses() {
    let (server, state) = (Server::new(100..102, Duration::from_millis(10)), state_directory());
    (0..9999).for_each(|_| server.breaks(100, Fault::Idle));
    let process = Process::start(&server, state.path(), WIDE).await;
    let_pass(MINUTE * 10).await;
    let begun = server.world.lock().unwrap().calls.len();
    assert!((10..300).contains(&begun), "{begun} starts in ten minutes");
    let status = process.handle.status();
    assert_eq!(status.not_converging.len(), 1, "{status:?}");
    assert_eq!(status.counts.applied, 1, "the other one: {status:?}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_stops_after_its_start_has_landed_has_drifted() {
    let (server, state) = (Server::new(100..102, MINUTE), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.applied == 2).await.unwrap();
    let before = process.handle.status().counts;
    assert_eq!((before.drift_by_hint, before.drift_by_resync), (0, 0), "it was declared anew");
    server.stop(101);
    process.handle.pass().await.unwrap().unwrap();
    assert_eq!(process.handle.status().counts.drift_by_resync, 1);
    process.converge().await;
}
