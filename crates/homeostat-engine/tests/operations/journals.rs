//! A journal that cannot be written: what must not be sent twice is not sent, and the rest is done and reported.

use std::fs;
use std::path::Path;

use homeostat_engine::journal::{Intent, Repeat, Subject};
use homeostat_engine::{Control as _, Entry, Finding, Kind, PassTrouble};
use tempfile::TempDir;

use crate::mount::with_small_disk;
use crate::server::{Id, Server};
use crate::stage::{MINUTE, Process, WIDE, begun, let_pass, state_directory};

/// Writes until there is no room left.
async fn fill(process: &Process, disk: &Path) {
    let _ = fs::write(disk.join("ballast"), vec![0; 1 << 20]);
    fill_with(process, 1000).await;
    fill_with(process, 0).await;
}

async fn fill_with(process: &Process, size: usize) {
    for nth in 0..1000 {
        let [source, scope, kind, parameters] =
            ["others", "s", "set", &"x".repeat(size)].map(str::to_owned);
        let subject = Subject { source, scope, key: format!("{size} {nth}") };
        let (precondition, node, repeat, command) = (None, String::new(), Repeat::Hurts, None);
        let intent = Intent { subject, kind, parameters, precondition, node, repeat, command };
        if process.operations.journal().begin(intent).await.is_err() {
            return;
        }
    }
    panic!("the disk is not small");
}

async fn on_a_full_disk(disk: &Path) {
    let server = Server::new(100..102, MINUTE);
    server.world.lock().unwrap().harmless.insert(Id(101));
    let process = Process::start(&server, disk, WIDE).await;
    process.converge().await;
    fill(&process, disk).await;
    server.stop(100);
    server.stop(101);
    server.world.lock().unwrap().calls.clear();
    let report = process.handle.pass().await.unwrap().unwrap();
    let mut failed = Vec::new();
    report.explain(Kind::Failed, &mut |entry| match entry {
        Entry::Finding {
            key,
            finding: Finding::Failed { failure, .. } | Finding::NotShown { failure, .. },
        } => failed.push((key, failure)),
        Entry::Pass { about: PassTrouble::Journal, failure } => {
            failed.push(("journal".to_owned(), failure));
        }
        other => panic!("{other:?}"),
    });
    assert!(!report.is_converged());
    assert_eq!(server.running(), [false, true], "the one that may be sent again was");
    assert_eq!(server.world.lock().unwrap().calls, [Id(101)]);
    assert_eq!(
        failed.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(),
        ["guest 100", "journal"]
    );
    for (key, failure) in failed {
        assert!(failure.error.contains("cannot be written: No space left"), "{key}: {failure}");
        let help = failure.help.unwrap();
        assert!(help.contains("see to room and rights in the state directory"), "{key}: {help}");
    }
    fs::remove_file(disk.join("ballast")).unwrap();
    process.converge().await;
    assert_eq!(server.running(), [true, true], "it goes on by itself once there is room");
    assert_eq!(server.world.lock().unwrap().calls, [Id(101), Id(100)]);
    process.kill().await;
    let process = Process::start(&server, disk, WIDE).await;
    process.converge().await;
    let ours = process.operations.journal().open_steps().into_iter();
    assert_eq!(ours.filter(|open| open.intent.subject.source == "guests").count(), 0);
    assert_eq!(server.world.lock().unwrap().calls.len(), 2);
}

/// The answer comes, and the task ends, when there is no room to write either down.
async fn an_end_without_room(disk: &Path) {
    let server = Server::new(100..101, MINUTE);
    server.world.lock().unwrap().late.insert(Id(100), MINUTE / 6);
    let process = Process::start(&server, disk, WIDE).await;
    process.handle.wait_for(|status| status.open.count(Kind::Pending) == 1).await.unwrap();
    fill(&process, disk).await;
    let_pass(MINUTE * 2).await;
    let counts = process.handle.status().counts;
    let passes = counts.full + counts.focused;
    assert!(passes < 100, "{passes} passes in two minutes");
    let world = server.world.lock().unwrap();
    assert_eq!((world.calls.len(), &world.breaches), (1, &Vec::new()));
    assert_eq!(process.operations.busy(), 0);
}

#[test]
fn what_ends_without_room_to_write_it_down_frees_its_lane_and_causes_no_storm_of_looks() {
    let directory = TempDir::new().unwrap();
    with_small_disk(directory.path(), "256k", || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(an_end_without_room(directory.path()));
    });
}

#[test]
fn a_full_disk_keeps_back_what_must_not_be_sent_twice_and_is_only_reported_for_the_rest() {
    let directory = TempDir::new().unwrap();
    with_small_disk(directory.path(), "256k", || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(on_a_full_disk(directory.path()));
    });
}

#[tokio::test(start_paused = true)]
async fn a_step_that_may_be_sent_again_is_in_the_journal_too_and_a_crash_closes_it_as_unknown() {
    for point in 0..10 {
        let (server, state) = (Server::new(100..101, MINUTE), state_directory());
        server.world.lock().unwrap().harmless.insert(Id(100));
        server.world.lock().unwrap().fuse = Some(point);
        let process = Process::start(&server, state.path(), WIDE).await;
        let died = tokio::select! {
            () = server.crashed.notified() => true,
            () = process.converge() => false,
        };
        process.kill().await;
        server.world.lock().unwrap().fuse = None;
        let process = Process::start(&server, state.path(), WIDE).await;
        process.converge().await;
        assert_eq!(
            server.world.lock().unwrap().asked,
            0,
            "at {point}: there is nothing to look up"
        );
        assert_eq!(server.running(), [true], "at {point}");
        assert!(process.operations.journal().open_steps().is_empty(), "at {point}");
        assert!(begun(state.path()) > 0, "at {point}");
        if !died {
            assert!(point > 1, "only {point} points");
            return;
        }
    }
    panic!("it never lived");
}
