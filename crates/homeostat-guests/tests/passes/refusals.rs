//! What the target refuses, class by class, and what a pass makes of it.

use homeostat_engine::Explain as _;
use homeostat_guests::{Kind as Declared, Run, Stop, Wanted};
use homeostat_pve_simulator::{End, Fault, Guest, Harm, Kind, Script, World};

use crate::ground::{Ground, desired, options, runs, story};

fn ground() -> Ground {
    Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")))
}

/// A start is refused once with these words: the report has them, and says when another try makes sense;
/// nothing is begun, and the next pass begins it.
async fn is_refused(status: u16, words: &str, retry: &str) {
    let ground = ground();
    ground.simulator.with(|world| {
        let refuse = Harm::Refuse(status, words.to_owned());
        world.fail(Fault::on("/status/start", refuse).times(1));
    });
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(
        reported.contains(words) && reported.contains(&format!("retry: {retry}")),
        "{words}: {reported}"
    );
    process.operations.tasks_finished().await;
    process.converge(&desired).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1, "{words}");
}

#[tokio::test]
async fn a_lock_of_a_guest_or_of_its_file_is_tried_again() {
    is_refused(500, "CT is locked (backup)", "Soon").await;
    let words = "can't lock file '/run/lock/lxc/pve-config-101.lock' - got timeout";
    is_refused(500, words, "Soon").await;
}

#[tokio::test]
async fn a_transient_refusal_is_tried_again() {
    is_refused(500, "cluster not ready - no quorum?", "Soon").await;
    is_refused(503, "Service Unavailable", "Soon").await;
}

#[tokio::test]
async fn a_missing_privilege_waits_for_a_change() {
    is_refused(403, "Permission check failed (/vms/101, VM.PowerMgmt)", "OnChange").await;
}

#[tokio::test]
async fn a_guest_that_is_gone_waits_for_a_change() {
    let words = "Configuration file 'nodes/pve1/lxc/101.conf' does not exist";
    is_refused(500, words, "OnChange").await;
}

#[tokio::test]
async fn a_malformed_request_is_not_sent_again() {
    is_refused(400, "Parameter verification failed.", "Never").await;
}

#[tokio::test]
async fn unknown_words_are_reported_and_retried() {
    is_refused(500, "the moon is in the wrong phase", "Soon").await;
}

#[tokio::test]
async fn an_unknown_outcome_is_looked_up_before_anything_is_sent_again() {
    let ground = ground();
    ground.simulator.with(|world| {
        world.script(101, Script { takes: World::LONG, end: End::Ok });
        let mask = Harm::Mask(599, "Too many redirections".to_owned());
        world.fail(Fault::on("/status/start", mask).times(1));
    });
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(
        reported.contains("Too many redirections") && !reported.contains("retry"),
        "{reported}"
    );
    assert!(!ground.simulator.with(|world| world.guests[&101].running), "its task takes time");
    tokio::join!(process.converge(&desired), ground.hurry_when_asked("/tasks/UPID"));
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
    assert_eq!(ground.looked_up("all"), 1, "the task is found by the list");
    assert_eq!(ground.ends(), ["succeeded"], "and followed to its end");
}

#[tokio::test]
async fn words_that_do_not_fit_what_is_seen_are_not_believed() {
    let ground = ground();
    ground.simulator.with(|world| {
        let refuse = Harm::Refuse(500, "CT 101 already running".to_owned());
        world.fail(Fault::on("/status/start", refuse).times(1));
    });
    let report = ground.process().pass(&desired([(101, runs(Run::Running))])).await;
    assert!(!report.is_converged(), "{}", story(&report));
}

#[tokio::test]
async fn quirk_already_running_is_an_error_of_the_target_and_success_for_us() {
    let ground = ground();
    ground.simulator.with(|world| {
        // Another client starts it between our last look and our request.
        let starts = Harm::ChangeBefore(|world| world.guests.get_mut(&101).unwrap().running = true);
        world.fail(Fault::on("/status/start", starts).times(1));
    });
    let report = ground.process().pass(&desired([(101, runs(Run::Running))])).await;
    assert!(report.is_converged(), "{}", story(&report));
    let begun = ground.simulator.with(|world| world.count(101, "vzstart"));
    assert_eq!(begun, 0, "the target began nothing");
    assert_eq!(ground.ends(), ["succeeded"]);
}

#[tokio::test]
async fn quirk_already_running_is_what_the_task_of_a_machine_ends_with() {
    let ground = Ground::new(World::default().with(101, Guest::new(Kind::Qemu, "pve1")));
    ground.simulator.with(|world| {
        let starts = Harm::ChangeBefore(|world| world.guests.get_mut(&101).unwrap().running = true);
        world.fail(Fault::on("/status/start", starts).times(1));
    });
    let wanted = Wanted { kind: Declared::Qemu, ..runs(Run::Running) };
    ground.process().converge(&desired([(101, wanted)])).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "qmstart")), 1);
    assert_eq!(ground.ends(), ["succeeded"]);
}

#[tokio::test]
async fn quirk_not_running_is_an_error_of_the_target_and_success_for_us() {
    let ground = ground();
    ground.simulator.with(|world| {
        world.guests.get_mut(&101).unwrap().running = true;
        // It stops by itself between our last look and our request.
        let stops = Harm::ChangeBefore(|world| world.guests.get_mut(&101).unwrap().running = false);
        world.fail(Fault::on("/status/stop", stops).times(1));
    });
    let wanted = Wanted { stop: Stop::Immediate, ..runs(Run::Stopped) };
    let report = ground.process().pass(&desired([(101, wanted)])).await;
    assert!(report.is_converged(), "{}", story(&report));
    let refused = ground.simulator.with(|world| world.count(101, "vzstop"));
    assert_eq!(refused, 0, "the target began nothing");
    assert_eq!(ground.ends(), ["succeeded"]);
}

#[tokio::test]
async fn a_digest_that_has_moved_makes_the_pass_look_again_and_keeps_what_somebody_else_wrote() {
    let ground = ground();
    ground.simulator.with(|world| {
        let writes = Harm::ChangeBefore(|world| {
            let config = &mut world.guests.get_mut(&101).unwrap().config;
            config.insert("tags".to_owned(), "theirs".to_owned());
        });
        world.fail(Fault::on("/config", writes).method("PUT").times(1));
    });
    let mut process = ground.process();
    let desired = desired([(101, options(&[("cores", "2")]))]);
    let reported = story(&process.pass(&desired).await);
    assert!(reported.contains("detected modified configuration"), "{reported}");
    process.converge(&desired).await;
    let tags = ground.simulator.with(|world| world.guests[&101].config["tags"].clone());
    assert!(tags.contains("theirs"), "{tags}");
}

#[tokio::test]
async fn options_of_containers_and_of_machines_are_put_and_never_posted() {
    let machine = Guest::new(Kind::Qemu, "pve1");
    let ground =
        Ground::new(World::default().with(101, Guest::new(Kind::Lxc, "pve1")).with(102, machine));
    let wanted = Wanted { kind: Declared::Qemu, ..options(&[("description", "db")]) };
    let desired = desired([(101, options(&[("description", "web")])), (102, wanted)]);
    ground.process().converge(&desired).await;
    let methods = ground
        .simulator
        .with(|world| world.writes().iter().map(|call| call.method.clone()).collect::<Vec<_>>());
    assert_eq!(methods, ["PUT", "PUT"], "a POST may begin a task, or answer with nothing");
}
