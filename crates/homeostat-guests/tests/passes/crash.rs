//! The end of a process at any moment: nothing is sent twice, no task is lost, all is well in the end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use homeostat_guests::{Run, Stop, Wanted, Wish};
use homeostat_pve_simulator::{End, Guest, Kind, Script, World};

use crate::ground::{Ground, options, wish};

/// Runs passes until the cluster has seen so many requests; then the process is no more, whatever it was
/// doing. The answer to the last request is never read.
async fn run_until(ground: &Ground, wish: &Arc<Wish>, requests: usize) {
    let mut process = ground.process();
    let crash = poll_fn(|_| {
        let seen = ground.simulator.with(|world| world.calls.len());
        if seen >= requests { Poll::Ready(()) } else { Poll::Pending }
    });
    let work = async {
        loop {
            if homeostat_engine::Explain::is_converged(&process.pass(wish).await) {
                return;
            }
            process.operations.landed().await;
        }
    };
    tokio::select! {
        biased;
        () = crash => {}
        () = work => {}
    }
    drop(process);
    // What it had started is dropped when the runtime next looks at it, and only then is its journal free.
    while !ground.is_free() {
        tokio::task::yield_now().await;
    }
}

fn world() -> World {
    let mut world = World::default()
        .with(101, Guest::new(Kind::Lxc, "pve1"))
        .with(102, Guest::new(Kind::Qemu, "pve2").running());
    for vmid in [101, 102] {
        world.script(vmid, Script { takes: Duration::from_millis(120), end: End::Ok });
    }
    world
}

fn desired() -> Arc<Wish> {
    let start = Wanted { run: Some(Run::Running), ..options(&[("cores", "2"), ("tags", "web")]) };
    let stop = Wanted {
        kind: homeostat_guests::Kind::Qemu,
        node: Some("pve2".to_owned()),
        run: Some(Run::Stopped),
        stop: Stop::Immediate,
        ..options(&[("description", "db")])
    };
    wish([(101, start), (102, stop)])
}

fn check(ground: &Ground, at: usize) {
    ground.simulator.with(|world| {
        assert!(world.guests[&101].running && !world.guests[&102].running, "crash at {at}");
        assert_eq!(world.count(101, "vzstart"), 1, "crash at {at}");
        assert_eq!(world.count(102, "qmstop"), 1, "crash at {at}");
        assert_eq!(world.most_per_guest, 1, "crash at {at}");
    });
}

#[tokio::test]
async fn a_crash_after_any_request_loses_no_task_and_sends_none_twice() {
    let wish = desired();
    let calm = Ground::new(world());
    run_until(&calm, &wish, usize::MAX).await;
    check(&calm, 0);
    let requests = calm.simulator.with(|world| world.calls.len());
    assert!(requests > 20, "{requests} requests");
    for at in 1..=requests {
        let ground = Ground::new(world());
        run_until(&ground, &wish, at).await;
        ground.process().converge(&wish).await;
        check(&ground, at);
    }
}

#[tokio::test]
async fn two_crashes_in_a_row_are_no_worse() {
    let wish = desired();
    for at in (2..40).step_by(3) {
        let ground = Ground::new(world());
        run_until(&ground, &wish, at).await;
        run_until(&ground, &wish, at + at / 2).await;
        ground.process().converge(&wish).await;
        check(&ground, at);
    }
}
