//! Tasks that fail as soon as they begin: tried again, but not again and again.

use homeostat_engine::{Control as _, Kind};
use std::time::Duration;

use homeostat_engine::Pace;

use crate::server::{Fault, Guests, Id, Server};
use crate::stage::{MINUTE, Process, WIDE, let_pass, state_directory};

/// More often than any loop will try.
const MANY: usize = 100_000;

/// How often a guest is started in ten minutes, if each start meets this fault.
async fn tries_against(fault: Fault) -> usize {
    let (server, state) = (Server::new(100..101, Duration::ZERO), state_directory());
    for _ in 0..MANY {
        server.breaks(100, fault);
    }
    let pace = Pace::of::<Guests>(1).with_resync(MINUTE).unwrap();
    let process = Process::start_at(pace, (&server, state.path(), WIDE)).await;
    let_pass(10 * MINUTE).await;
    process.kill().await;
    MANY - server.faults_left(100)
}

#[tokio::test(start_paused = true)]
async fn a_start_that_always_fails_is_tried_with_growing_pauses() {
    use Fault::{DropRequest, FailTask, Refuse};
    for fault in [Refuse, FailTask, DropRequest] {
        let tries = tries_against(fault).await;
        // Ten pauses that double, then one every two minutes, and a resync every minute.
        assert!((10..35).contains(&tries), "{fault:?}: {tries} tries");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_failed_is_tried_after_its_pause_also_if_the_same_is_declared_again_and_again()
{
    let (server, state) = (Server::new(100..102, Duration::ZERO), state_directory());
    for _ in 0..MANY {
        server.breaks(100, Fault::FailTask);
    }
    let pace = Pace::of::<Guests>(1).with_resync(60 * MINUTE).unwrap();
    let process = Process::start_at(pace, (&server, state.path(), WIDE)).await;
    let_pass(MINUTE).await;
    let before = server.faults_left(100);
    for _ in 0..25 {
        process.put_again(&server);
        let_pass(Duration::from_millis(400)).await;
    }
    let tries = before - server.faults_left(100);
    assert!(tries <= 2, "{tries} tries in ten seconds, after a minute of failures");
    let_pass(10 * MINUTE).await;
    assert!(before - server.faults_left(100) > tries, "it is not given up");
    // Another declare it is worth a try before the pause of two minutes is over.
    process.put(&server, &[101]);
    let_pass(MINUTE / 6).await;
    let before = server.faults_left(100);
    process.put_again(&server);
    let_pass(MINUTE / 6).await;
    assert!(before > server.faults_left(100));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_done_is_reported_also_if_the_look_after_it_sees_nothing() {
    let (server, state) = (Server::new(100..101, MINUTE / 3), state_directory());
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.full == 1).await.unwrap();
    server.world.lock().unwrap().unseen.insert(Id(100));
    let_pass(MINUTE).await;
    let status = process.handle.status();
    assert_eq!((status.is_converged, status.counts.applied), (false, 1), "{status:?}");
    assert_eq!(status.open.count(Kind::Unknown), 1, "{status:?}");
    server.world.lock().unwrap().unseen.clear();
    process.converge().await;
    assert_eq!(process.handle.status().counts.applied, 1, "and once only");
}

#[tokio::test(start_paused = true)]
async fn how_tasks_end_while_the_loop_is_paused_is_reported_all_the_same() {
    let (server, state) = (Server::new(100..102, MINUTE), state_directory());
    server.breaks(101, Fault::FailTask);
    let process = Process::start(&server, state.path(), WIDE).await;
    process.handle.wait_for(|status| status.counts.full == 1).await.unwrap();
    process.handle.pause(None).unwrap();
    let_pass(MINUTE * 2).await;
    let status = process.handle.status();
    assert_eq!((status.open.count(Kind::Failed), status.counts.failed), (1, 1), "{status:?}");
    assert_eq!(server.running(), [true, false], "a paused loop writes nothing");
    process.handle.resume().unwrap();
    process.converge().await;
    assert_eq!(process.handle.status().counts.applied, 2);
}
