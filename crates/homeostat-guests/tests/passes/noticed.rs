//! What a loop notices by itself, before the next resync, which comes every 30 seconds.

use std::time::Duration;

use homeostat_engine::{Control as _, Limits};
use homeostat_pve_simulator::{End, Script};
use tokio::time::{Instant, timeout};

use crate::hour::stage::{FIRST, Process, Stage, let_pass};

const LIMITS: Limits = Limits { total: 20, per_node: 2 };
/// An answer about all guests is up to ten seconds old, and asked for every five seconds.
const POLL: Duration = Duration::from_secs(16);

/// Waits until the loop is converged or not, for so long at most.
async fn becomes(process: &Process, is_converged: bool, within: Duration) {
    let so = process.handle.wait_for(|status| status.is_converged == is_converged);
    let so = timeout(within, so).await;
    assert!(so.is_ok(), "{:?}", process.handle.status());
}

/// Waits for the next resync: the one after it is half a minute away.
async fn resynced(process: &Process) {
    let passes = process.handle.status().counts.full;
    process.handle.wait_for(|status| status.counts.full > passes).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn starts_that_a_killed_process_left_are_known_when_they_end() {
    // None of them is kept by the resource manager.
    let stage = Stage::new(1, (9, LIMITS));
    let takes = Duration::from_secs(5);
    stage.cluster.with(|world| {
        for vmid in FIRST..FIRST + 9 {
            world.script(vmid, Script { takes, end: End::Ok });
        }
    });
    let process = Process::start(&stage).await;
    while stage.cluster.with(|world| world.tasks().len()) < 5 {
        let_pass(Duration::from_millis(10)).await;
    }
    process.kill().await;
    let begun = Instant::now();
    let process = Process::start(&stage).await;
    becomes(&process, true, Duration::from_secs(25)).await;
    assert!(begun.elapsed() < takes + Duration::from_secs(8), "{:?}", begun.elapsed());
    let starts = stage.cluster.with(|world| world.tasks().len());
    let_pass(Duration::from_mins(2)).await;
    assert_eq!(stage.cluster.with(|world| world.tasks().len()), starts);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_is_in_the_status_after_the_next_poll() {
    let stage = Stage::new(1, (3, LIMITS));
    let process = Process::start(&stage).await;
    process.converge().await;
    let_pass(Duration::from_secs(1)).await;
    let tokens = stage.cluster.with(|world| std::mem::take(&mut world.tokens));
    becomes(&process, false, Duration::from_secs(8)).await;
    let status = format!("{:?}", process.handle.status());
    assert!(status.contains("401"), "{status}");
    stage.cluster.with(|world| world.tokens = tokens);
    becomes(&process, true, Duration::from_mins(3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_left_a_node_that_is_offline_is_found_where_it_is() {
    // Guest 105 may be on any node, and is on the fifth one.
    let stage = Stage::new(1, (5, LIMITS));
    let process = Process::start(&stage).await;
    process.converge().await;
    stage.cluster.with(|world| _ = world.nodes.insert("pve5".to_owned(), false));
    becomes(&process, false, Duration::from_secs(40)).await;
    resynced(&process).await;
    stage.cluster.with(|world| world.guests.get_mut(&105).unwrap().node = "pve6".to_owned());
    becomes(&process, true, POLL).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_online_again_makes_its_guests_known() {
    let stage = Stage::new(1, (5, LIMITS));
    let process = Process::start(&stage).await;
    process.converge().await;
    stage.cluster.with(|world| _ = world.nodes.insert("pve2".to_owned(), false));
    becomes(&process, false, Duration::from_secs(40)).await;
    resynced(&process).await;
    stage.cluster.with(|world| _ = world.nodes.insert("pve2".to_owned(), true));
    becomes(&process, true, POLL).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_with_a_lock_is_sent_nothing_until_the_lock_is_gone() {
    let stage = Stage::new(1, (3, LIMITS));
    let lock = |lock: Option<&str>| {
        let lock = lock.map(str::to_owned);
        stage.cluster.with(|world| world.guests.get_mut(&FIRST).unwrap().lock = lock);
    };
    lock(Some("backup"));
    let process = Process::start(&stage).await;
    let_pass(Duration::from_mins(2)).await;
    let (tasks, writes) = stage.cluster.with(|world| {
        let path = format!("/{FIRST}/");
        let writes = world.writes().into_iter().filter(|call| call.path.contains(&path)).count();
        (world.count(FIRST, "vzstart"), writes)
    });
    assert_eq!((tasks, writes), (0, 0));
    lock(None);
    becomes(&process, true, POLL).await;
}
