//! Guests that the cluster's resource manager keeps: a task only requests what is declared, and the manager
//! does it in its own time.

use std::sync::Arc;
use std::time::Duration;

use homeostat_guests::{DesiredState, Kind, Run, Stop, Wanted};
use homeostat_pve_simulator::{Guest, Kind as Simulated, World};

use crate::ground::{Ground, desired, runs};

/// A guest that the manager starts or stops after so long.
fn kept(kind: Simulated, running: bool, delay: Duration) -> Ground {
    let mut guest = Guest::new(kind, "pve1");
    (guest.running, guest.is_ha) = (running, true);
    let mut world = World::default().with(101, guest);
    world.ha_delay = delay;
    Ground::new(world)
}

fn is_running(ground: &Ground) -> bool {
    ground.simulator.with(|world| world.guests[&101].running)
}

fn starts() -> Arc<DesiredState> {
    desired([(101, runs(Run::Running))])
}

fn stops(kind: Kind, stop: Stop) -> Arc<DesiredState> {
    desired([(101, Wanted { kind, stop, ..runs(Run::Stopped) })])
}

/// One request, no task of another kind, and an end that is reported as a success.
fn is_requested_once(ground: &Ground, kind: &str) {
    let kinds = ground
        .simulator
        .with(|world| world.tasks().iter().map(|task| task.upid.kind.clone()).collect::<Vec<_>>());
    assert_eq!(kinds, [kind], "the state was waited for, and not requested twice");
    assert_eq!(ground.ends(), ["succeeded"]);
}

#[tokio::test]
async fn quirk_ha_only_requests() {
    let ground = kept(Simulated::Lxc, false, Duration::from_millis(300));
    ground.process().converge(&starts()).await;
    assert!(is_running(&ground));
    is_requested_once(&ground, "hastart");
}

#[tokio::test]
async fn quirk_ha_only_requests_a_stop_and_a_shutdown_too() {
    let graceful = Stop::Graceful(Duration::from_secs(5));
    for (kind, simulated) in [(Kind::Lxc, Simulated::Lxc), (Kind::Qemu, Simulated::Qemu)] {
        for stop in [Stop::Immediate, graceful, Stop::Shutdown(Duration::from_secs(5))] {
            let ground = kept(simulated, true, Duration::from_millis(300));
            ground.process().converge(&stops(kind, stop)).await;
            assert!(!is_running(&ground));
            is_requested_once(&ground, "hastop");
        }
    }
}

#[tokio::test]
async fn a_crash_after_a_request_to_the_resource_manager_requests_nothing_twice() {
    let desired_states = [(false, starts()), (true, stops(Kind::Lxc, Stop::Immediate))];
    for ((running, desired), kind) in desired_states.into_iter().zip(["hastart", "hastop"]) {
        let ground = kept(Simulated::Lxc, running, World::LONG);
        ground.process().pass(&desired).await;
        assert_eq!(is_running(&ground), running, "it has only been requested");
        let mut process = ground.process();
        tokio::join!(process.converge(&desired), ground.hurry_when_asked("/status/current"));
        is_requested_once(&ground, kind);
    }
}
