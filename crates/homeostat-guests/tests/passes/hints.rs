//! Hints: a change of a guest by any other client is found without a full look, and a hint is never the truth.

use std::time::Duration;

use homeostat_engine::{Explain as _, Focus, Hint};
use homeostat_guests::{Run, Wanted};
use homeostat_pve_simulator::{Fault, Guest, Harm, Kind, World};

use crate::ground::{Ground, Process, desired, key, options, runs, story};

fn ground() -> Ground {
    let mut world = World::default()
        .with(101, Guest::new(Kind::Lxc, "pve1"))
        .with(102, Guest::new(Kind::Qemu, "pve1").running());
    world.stale = Duration::ZERO;
    Ground::new(world)
}

async fn kept(ground: &Ground) -> (Process, std::sync::Arc<homeostat_guests::DesiredState>) {
    let wanted = Wanted { run: Some(Run::Running), ..options(&[("cores", "2")]) };
    let desired = desired([(101, wanted)]);
    let mut daemon = ground.daemon(Duration::from_secs(5));
    daemon.converge(&desired).await;
    (daemon, desired)
}

/// Something happens to the guest, and a hint follows.
async fn is_noticed(what: fn(&mut World)) {
    let ground = ground();
    let (mut daemon, _) = kept(&ground).await;
    ground.simulator.with(what);
    assert_eq!(daemon.hinted().await, [key(101)]);
}

fn guest(world: &mut World) -> &mut Guest {
    world.guests.get_mut(&101).unwrap()
}

#[tokio::test]
async fn a_guest_that_somebody_stops_is_noticed_and_started_by_a_focused_pass() {
    let ground = ground();
    let (mut daemon, desired) = kept(&ground).await;
    ground.simulator.with(|world| guest(world).running = false);
    assert_eq!(daemon.hinted().await, [key(101)]);
    let report = daemon.pass_over(&desired, Focus::Keys([key(101)].into())).await.unwrap();
    daemon.operations.tasks_finished().await;
    assert!(ground.simulator.with(|world| guest(world).running), "{}", story(&report));
    assert!(daemon.pass(&desired).await.is_converged());
}

#[tokio::test]
async fn another_name_lock_node_or_tag_is_noticed_and_so_is_a_guest_that_is_gone() {
    is_noticed(|world| _ = guest(world).config.insert("hostname".to_owned(), "x".to_owned())).await;
    is_noticed(|world| guest(world).lock = Some("backup".to_owned())).await;
    is_noticed(|world| guest(world).node = "pve2".to_owned()).await;
    is_noticed(|world| _ = guest(world).config.remove("tags")).await;
    is_noticed(|world| _ = world.guests.remove(&101)).await;
}

#[tokio::test]
async fn undeclared_guests_make_no_hint_and_one_question_is_for_all() {
    let ground = ground();
    let (mut daemon, _) = kept(&ground).await;
    ground.simulator.with(|world| {
        world.guests.get_mut(&102).unwrap().running = false;
        world.calls.clear();
    });
    is_quiet(&ground, &mut daemon, 3).await;
    let asked = |world: &mut World| world.calls.iter().map(|call| call.path.clone()).collect();
    let asked: Vec<_> = ground.simulator.with(asked);
    assert!(asked.iter().all(|path| path == "/cluster/resources"), "{asked:?}");
}

/// Nothing is hinted while the target is asked so often.
async fn is_quiet(ground: &Ground, daemon: &mut Process, questions: usize) {
    let count = |world: &mut World| {
        world.calls.iter().filter(|call| call.path == "/cluster/resources").count()
    };
    let before = ground.simulator.with(count);
    let received = async {
        while ground.simulator.with(count) < before + questions {
            let hint = tokio::time::timeout(Duration::from_millis(50), daemon.hinted()).await;
            assert!(hint.is_err(), "{hint:?}");
        }
    };
    tokio::time::timeout(Duration::from_mins(1), received).await.unwrap();
}

#[tokio::test]
async fn a_question_that_fails_is_a_reason_to_look_at_everything_and_is_asked_again() {
    let ground = ground();
    let (mut daemon, _) = kept(&ground).await;
    ground.simulator.with(|world| {
        let refuse = Harm::Refuse(403, "Permission check failed".to_owned());
        world.fail(Fault::on("/cluster/resources", refuse).times(2));
        guest(world).running = false;
    });
    for _ in 0..2 {
        assert_eq!(daemon.hint().await, Hint::Lost);
    }
    assert_eq!(daemon.hinted().await, [key(101)]);
}

#[tokio::test]
async fn quirk_resources_are_old_and_their_changes_are_a_reason_to_look_only() {
    let ground = ground();
    // The target reports for ever that the guest is stopped.
    ground.simulator.with(|world| world.stale = Duration::from_hours(1));
    let mut daemon = ground.daemon(Duration::from_secs(5));
    let stopped = desired([(101, runs(Run::Stopped))]);
    daemon.converge(&stopped).await;
    is_quiet(&ground, &mut daemon, 1).await;
    let running = desired([(101, runs(Run::Running))]);
    daemon.converge(&running).await;
    is_quiet(&ground, &mut daemon, 2).await;
    // If a hint names it all the same, a look shows that nothing has changed.
    let writes = ground.writes();
    let report = daemon.pass_over(&running, Focus::Keys([key(101)].into())).await.unwrap();
    assert!(report.is_converged(), "{}", story(&report));
    assert_eq!(ground.writes(), writes);
}
