//! How long is waited for a task, and that the end of a wait is not the end of the task.

use std::time::Duration;

use homeostat_guests::{Run, Timeouts};
use homeostat_pve_simulator::{End, Guest, Kind, Script, World};

use crate::ground::{Ground, TIMEOUTS, desired, runs};
use crate::journal::journal_of;

fn ground(vmids: impl IntoIterator<Item = u32>, takes: Duration) -> Ground {
    let mut world = World::default();
    for vmid in vmids {
        world.put(vmid, Guest::new(Kind::Lxc, "pve1"));
        world.script(vmid, Script { takes, end: End::Ok });
    }
    Ground::new(world)
}

#[tokio::test]
async fn a_task_that_is_not_known_for_a_moment_after_a_restart_is_still_ours() {
    let ground = ground([101], Duration::from_secs(3));
    ground.simulator.with(|world| world.hidden_queries = 5);
    let desired = desired([(101, runs(Run::Running))]);
    ground.process().pass(&desired).await;
    // As long as an operation is in doubt by default.
    let timeouts = Timeouts { late_task: Timeouts::default().late_task, ..TIMEOUTS };
    ground.process_within(timeouts).converge(&desired).await;
    assert_eq!(journal_of(&ground, 101), ["start", "dispatched", "succeeded"]);
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
}

#[tokio::test]
async fn a_task_that_is_never_known_again_is_unknown_unless_another_look_decides() {
    let failed = || End::Error("startup for container '101' failed".to_owned());
    let unknown = "unknown: the target does not know task";
    for (end, recorded_end) in [(End::Ok, "succeeded"), (failed(), unknown)] {
        let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")));
        ground.simulator.with(|world| {
            world.hidden_queries = u32::MAX;
            world.script(101, Script { takes: Duration::ZERO, end });
        });
        let desired = desired([(101, runs(Run::Running))]);
        ground.process().pass(&desired).await;
        ground.process().pass(&desired).await;
        let recorded = journal_of(&ground, 101);
        let [_, _, end] = &*recorded else { panic!("{recorded:?}") };
        assert!(end.starts_with(recorded_end), "{recorded:?}");
    }
}

/// Has two tasks run at once, and then one, each until a pass has begun that did not wait for them any more.
async fn outlast(ground: &Ground) {
    for (begun, running) in [(2, 2), (3, 1)] {
        let is_so = |world: &mut World| {
            let tasks = world.tasks();
            (tasks.len(), tasks.iter().filter(|task| task.is_running()).count()) == (begun, running)
        };
        while !ground.simulator.with(is_so) {
            tokio::task::yield_now().await;
        }
        ground.hurry_when_asked("/nodes/pve1/qemu").await;
    }
}

#[tokio::test]
async fn a_wait_that_runs_out_of_time_ends_no_step_and_frees_no_place_on_the_node() {
    let ground = ground([101, 102, 103], World::LONG);
    let timeouts = Timeouts { task: Duration::from_millis(200), ..TIMEOUTS };
    let mut process = ground.process_within(timeouts);
    let guests = [101, 102, 103];
    let desired = desired(guests.map(|vmid| (vmid, runs(Run::Running))));
    tokio::join!(process.converge(&desired), outlast(&ground));
    for vmid in guests {
        assert_eq!(journal_of(&ground, vmid), ["start", "dispatched", "succeeded"], "{vmid}");
        assert_eq!(ground.simulator.with(|world| world.count(vmid, "vzstart")), 1, "{vmid}");
    }
    assert_eq!(ground.simulator.with(|world| world.most_per_node), 2, "the third has waited");
}
