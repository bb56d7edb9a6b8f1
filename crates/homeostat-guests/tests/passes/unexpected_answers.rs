//! Answers of the wrong shape: a list that is none is not an empty one.

use std::time::Duration;

use homeostat_guests::Run;
use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, World};

use crate::ground::{Ground, desired, options, runs, story};

/// It does its work, and answers with `null`.
fn nothing(path: &str) -> Fault {
    Fault::on(path, Harm::Mask(200, "OK".to_owned())).method("GET")
}

fn ground() -> Ground {
    Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")))
}

#[tokio::test]
async fn a_list_of_guests_that_is_none_makes_them_unknown_and_not_absent() {
    let ground = ground();
    ground.simulator.with(|world| world.fail(nothing("/nodes/pve1/lxc").times(1)));
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(reported.contains("makes no sense"), "{reported}");
    assert!(!reported.contains("there is no such guest"), "{reported}");
    process.converge(&desired).await;
}

#[tokio::test]
async fn a_list_of_nodes_that_is_none_fails_the_pass() {
    let ground = ground();
    ground.simulator.with(|world| world.fail(nothing("/nodes").times(1)));
    let desired = desired([(101, runs(Run::Running))]);
    assert!(ground.process().try_pass(&desired).await.is_err());
}

#[tokio::test]
async fn a_configuration_that_is_none_is_unread_and_nothing_is_written_into_it() {
    let ground = ground();
    ground.simulator.with(|world| world.fail(nothing("/101/config").times(1)));
    let desired = desired([(101, options(&[("cores", "2")]))]);
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(reported.contains("its configuration cannot be read"), "{reported}");
    assert_eq!(ground.writes(), 0);
    process.converge(&desired).await;
}

#[tokio::test]
async fn tasks_that_are_no_list_keep_a_guest_from_its_start() {
    let ground = ground();
    ground.simulator.with(|world| world.fail(nothing("/pve1/tasks").times(1)));
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(reported.contains("Failed") && reported.contains("makes no sense"), "{reported}");
    assert_eq!(ground.writes(), 0);
    process.converge(&desired).await;
    assert_eq!(ground.ends(), ["succeeded"], "what was not sent is not in the journal");
}

#[tokio::test]
async fn a_lost_task_is_not_given_up_because_the_list_of_tasks_is_none() {
    let ground = ground();
    ground.simulator.with(|world| {
        world.script(101, Script { takes: Duration::from_millis(300), end: End::Ok });
        world.fail(Fault::on("/status/start", Harm::DropResponse).times(1));
        // The first question is about what is active; the second one looks for what was begun.
        world.fail(nothing("/pve1/tasks").after(1).times(1));
    });
    let desired = desired([(101, runs(Run::Running))]);
    ground.process().converge(&desired).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
    assert_eq!(ground.ends(), ["succeeded"], "it was found by another question");
}
