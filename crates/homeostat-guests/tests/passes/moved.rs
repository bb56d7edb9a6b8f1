//! Guests that the cluster's resource manager keeps: what was requested is done when it can be seen, on
//! whatever node.

use std::time::Duration;

use homeostat_guests::{Run, Timeouts, Wanted};
use homeostat_pve_simulator::{Guest, Kind, World};

use crate::ground::{Ground, TIMEOUTS, desired, runs};
use crate::journal::journal_of;

fn ground(kind: Kind, delay: Duration) -> Ground {
    let mut kept = Guest::new(kind, "pve1");
    kept.is_ha = true;
    let mut world = World::default();
    world.ha_delay = delay;
    Ground::new(world.with(101, kept).with(102, Guest::new(Kind::Lxc, "pve2")))
}

fn anywhere(kind: homeostat_guests::Kind) -> Wanted {
    Wanted { node: None, kind, ..runs(Run::Running) }
}

#[tokio::test]
async fn a_guest_that_is_moved_to_be_started_is_seen_where_it_is() {
    let kinds =
        [(Kind::Lxc, homeostat_guests::Kind::Lxc), (Kind::Qemu, homeostat_guests::Kind::Qemu)];
    for (kind, declared) in kinds {
        let ground = ground(kind, World::LONG);
        let desired = desired([(101, anywhere(declared))]);
        let mut process = ground.process();
        process.pass(&desired).await;
        ground.simulator.with(|world| world.guests.get_mut(&101).unwrap().node = "pve2".to_owned());
        let seen = ground.hurry_when_asked("/nodes/pve2/");
        tokio::join!(process.converge(&desired), seen);
        assert_eq!(journal_of(&ground, 101), ["start", "dispatched", "succeeded"], "{kind:?}");
        assert_eq!(ground.simulator.with(|world| world.count(101, "hastart")), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn a_guest_is_seen_where_it_is_while_the_node_of_its_request_is_gone() {
    let ground = ground(Kind::Lxc, World::LONG);
    let desired = desired([(101, anywhere(homeostat_guests::Kind::Lxc))]);
    let mut process = ground.process();
    process.pass(&desired).await;
    let asked =
        |world: &mut World| world.calls.iter().any(|call| call.path.contains("/tasks/UPID"));
    while !ground.simulator.with(asked) {
        tokio::task::yield_now().await;
    }
    ground.simulator.with(|world| {
        *world.nodes.get_mut("pve1").unwrap() = false;
        world.guests.get_mut(&101).unwrap().node = "pve2".to_owned();
    });
    tokio::join!(process.operations.tasks_finished(), ground.hurry_when_asked("/nodes/pve2/"));
    assert_eq!(journal_of(&ground, 101), ["start", "dispatched", "succeeded"]);
}

#[tokio::test]
async fn a_resource_manager_that_exceeds_the_timeout_is_not_asked_twice() {
    let ground = ground(Kind::Lxc, Duration::from_millis(1200));
    let timeouts = Timeouts { task: Duration::from_millis(200), ..TIMEOUTS };
    let mut process = ground.process_within(timeouts);
    process.converge(&desired([(101, anywhere(homeostat_guests::Kind::Lxc))])).await;
    assert_eq!(journal_of(&ground, 101), ["start", "dispatched", "succeeded"]);
    assert_eq!(ground.simulator.with(|world| world.count(101, "hastart")), 1);
}

#[tokio::test]
async fn a_guest_that_the_resource_manager_does_not_keep_any_more_is_started_without_it() {
    let ground = ground(Kind::Lxc, Duration::from_hours(1));
    let desired = desired([(101, anywhere(homeostat_guests::Kind::Lxc))]);
    let mut process = ground.process();
    process.pass(&desired).await;
    ground.simulator.with(|world| world.guests.get_mut(&101).unwrap().is_ha = false);
    process.converge(&desired).await;
    let recorded = journal_of(&ground, 101);
    let [_, _, first, second @ ..] = &*recorded else { panic!("{recorded:?}") };
    assert!(first.contains("does not keep the guest any more"), "{recorded:?}");
    assert_eq!(second, ["start", "dispatched", "succeeded"]);
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
}
