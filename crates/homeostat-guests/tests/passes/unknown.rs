//! What cannot be seen is unknown, and causes no write.

use std::time::Duration;

use homeostat_engine::Explain as _;
use homeostat_guests::{Kind as Declared, Run, Wanted};
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, desired, runs, story, wanted};

fn lxc() -> Guest {
    Guest::new(Kind::Lxc, "pve1")
}

#[tokio::test]
async fn a_lost_permission_looks_like_a_deletion_and_is_unknown() {
    let denied = Guest { denied: ["VM.Audit".to_owned()].into(), ..lxc() };
    let ground = Ground::new(World::default().with(101, denied));
    let report = ground.process().pass(&desired([(101, runs(Run::Running))])).await;
    let reported = story(&report);
    assert!(reported.contains("Unknown") && reported.contains("VM.Audit"), "{reported}");
    assert_eq!(ground.writes(), 0);
}

#[tokio::test]
async fn a_guest_that_is_really_absent_is_refused_with_help_and_never_made() {
    let ground = Ground::new(World::default().with(102, lxc()));
    let report = ground.process().pass(&desired([(101, runs(Run::Running))])).await;
    let reported = story(&report);
    assert!(
        reported.contains("there is no such guest") && reported.contains("never made"),
        "{reported}"
    );
    assert_eq!(ground.writes(), 0);
}

#[tokio::test]
async fn an_unreachable_node_makes_its_guests_unknown_and_delays_no_others() {
    let world = World::default().with(101, lxc()).with(102, Guest::new(Kind::Lxc, "pve2"));
    let ground = Ground::new(world);
    ground.simulator.with(|world| *world.nodes.get_mut("pve2").unwrap() = false);
    let other = Wanted { node: Some("pve2".to_owned()), ..runs(Run::Running) };
    let desired = desired([(101, runs(Run::Running)), (102, other)]);
    let mut process = ground.process();
    let report = process.pass(&desired).await;
    assert!(story(&report).contains("node pve2 does not answer"), "{}", story(&report));
    process.operations.tasks_finished().await;
    let running = |vmid| ground.simulator.with(|world| world.guests[&vmid].running);
    assert!(running(101) && !running(102));
    ground.simulator.with(|world| *world.nodes.get_mut("pve2").unwrap() = true);
    process.converge(&desired).await;
    assert!(running(102));
}

#[tokio::test]
async fn a_node_that_answers_596_makes_its_guests_unknown() {
    let ground = Ground::new(World::default().with(101, lxc()));
    ground.simulator.with(|world| {
        world.fail(Fault::on("/nodes/pve1/lxc", Harm::Refuse(596, "tls error".to_owned())));
    });
    let report = ground.process().pass(&desired([(101, runs(Run::Running))])).await;
    assert!(story(&report).contains("node pve1 does not answer"), "{}", story(&report));
    assert_eq!(ground.writes(), 0);
}

#[tokio::test]
async fn a_guest_whose_configuration_cannot_be_read_keeps_its_run_state() {
    let world = World::default().with(101, lxc()).with(102, lxc());
    let ground = Ground::new(world);
    ground.simulator.with(|world| {
        let words = "unable to parse config line 7".to_owned();
        world.fail(Fault::on("/101/config", Harm::Refuse(500, words)).method("GET"));
    });
    let configured = || {
        let mut wanted = runs(Run::Running);
        wanted.options.insert("cores".to_owned(), "2".to_owned());
        wanted
    };
    let desired = desired([(101, configured()), (102, configured())]);
    let mut process = ground.process();
    let report = process.pass(&desired).await;
    let reported = story(&report);
    assert!(reported.contains("its configuration cannot be read"), "{reported}");
    process.operations.tasks_finished().await;
    process.pass(&desired).await;
    process.operations.tasks_finished().await;
    ground.simulator.with(|world| {
        assert!(world.guests[&101].running && world.guests[&102].running);
        assert_eq!(world.guests[&102].config.get("cores").map(String::as_str), Some("2"));
        let puts = world.writes().iter().filter(|call| call.path.contains("/101/config")).count();
        assert_eq!(puts, 0, "nothing is written into what cannot be read");
    });
}

#[tokio::test]
async fn a_marked_guest_whose_configuration_cannot_be_read_any_more_is_started_all_the_same() {
    let ground = Ground::new(World::default().with(101, lxc()));
    let mut wanted = runs(Run::Running);
    wanted.options.insert("cores".to_owned(), "2".to_owned());
    let desired = desired([(101, wanted)]);
    let mut process = ground.process();
    process.converge(&desired).await;
    let puts = |world: &mut World| {
        world.writes().iter().filter(|call| call.path.ends_with("/config")).count()
    };
    let before = ground.simulator.with(puts);
    ground.simulator.with(|world| {
        world.guests.get_mut(&101).unwrap().running = false;
        let words = "unable to parse config line 7".to_owned();
        world.fail(Fault::on("/101/config", Harm::Refuse(500, words)).method("GET"));
    });
    let report = process.pass(&desired).await;
    process.operations.tasks_finished().await;
    assert!(ground.simulator.with(|world| world.guests[&101].running), "{}", story(&report));
    assert_eq!(ground.simulator.with(puts), before);
    assert!(!process.pass(&desired).await.is_converged(), "its configuration is not known");
}

#[tokio::test]
async fn what_waits_for_a_restart_is_unknown_while_it_cannot_be_read() {
    let ground = Ground::new(World::default().with(101, lxc().running()));
    ground.simulator.with(|world| {
        world.fail(Fault::on("/101/pending", Harm::Refuse(500, "no".to_owned())));
    });
    let mut wanted = runs(Run::Running);
    wanted.options.insert("memory".to_owned(), "512".to_owned());
    let desired = desired([(101, wanted)]);
    let mut process = ground.process();
    assert!(!process.pass(&desired).await.is_converged());
    assert_eq!(ground.writes(), 0);
    ground.simulator.with(World::mend);
    process.converge(&desired).await;
}

#[tokio::test]
async fn a_guest_elsewhere_or_of_another_kind_is_not_the_declared_one() {
    let world = World::default().with(101, Guest::new(Kind::Lxc, "pve2")).with(102, lxc());
    let ground = Ground::new(world);
    ground.simulator.with(|world| {
        world.nodes.insert("pve1".to_owned(), true);
    });
    let machine = Wanted { kind: Declared::Qemu, ..runs(Run::Running) };
    let report = ground.process().pass(&desired([(101, runs(Run::Running)), (102, machine)])).await;
    let reported = story(&report);
    assert!(reported.contains("declared on node pve1, and is on pve2"), "{reported}");
    assert!(reported.contains("declared as qemu, and there is a lxc"), "{reported}");
    assert_eq!(ground.writes(), 0);
    // Without a node it is kept wherever it is.
    let anywhere = Wanted { node: None, run: Some(Run::Running), ..wanted() };
    ground.process().converge(&desired([(101, anywhere)])).await;
}

#[tokio::test]
async fn a_guest_that_moves_between_two_lists_is_unknown_and_not_absent() {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve2")));
    ground.simulator.with(|world| {
        world.nodes.insert("pve1".to_owned(), true);
        // The one node listed its guests before it came, the other lists them after it went.
        let moves = Harm::ChangeBefore(|world| {
            world.guests.get_mut(&101).unwrap().node = "pve1".to_owned();
        });
        let late = Harm::Slow(Duration::from_millis(300));
        world.fail(Fault::on("/nodes/pve2/lxc", late).times(1));
        world.fail(Fault::on("/nodes/pve2/lxc", moves).times(1));
    });
    let anywhere = Wanted { node: None, ..runs(Run::Running) };
    let desired = desired([(101, anywhere)]);
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(
        reported.contains("Unknown") && !reported.contains("there is no such guest"),
        "{reported}"
    );
    process.converge(&desired).await;
}
