//! Starting and stopping.

use std::time::Duration;

use homeostat_engine::Explain as _;
use homeostat_guests::{Kind, Run, Stop, Wanted};
use homeostat_pve_simulator::{
    End, Fault, Guest, Harm, Kind as Simulated, OnShutdown, Script, World,
};

use crate::ground::{Ground, desired, key, runs, story};

fn one(guest: Guest) -> Ground {
    Ground::new(World::default().with(101, guest))
}

fn lxc() -> Guest {
    Guest::new(Simulated::Lxc, "pve1")
}

fn is_running(ground: &Ground) -> bool {
    ground.simulator.with(|world| world.guests[&101].running)
}

#[tokio::test]
async fn a_declared_guest_is_started_and_a_second_pass_writes_nothing() {
    let ground = one(lxc());
    let mut process = ground.process();
    let desired = desired([(101, runs(Run::Running))]);
    process.converge(&desired).await;
    assert!(is_running(&ground));
    assert_eq!(
        ground.writes(),
        1,
        "one start, and nothing into a configuration that is not declared"
    );
    assert!(process.pass(&desired).await.is_converged());
    assert_eq!(ground.writes(), 1);
}

#[tokio::test]
async fn guests_that_are_not_declared_are_not_even_asked_about() {
    let ground = one(lxc());
    ground.simulator.with(|world| world.put(102, lxc()));
    ground.process().converge(&desired([(101, runs(Run::Running))])).await;
    let asked = |world: &mut World| world.calls.iter().any(|call| call.path.contains("/102"));
    assert!(!ground.simulator.with(asked));
}

#[tokio::test]
async fn a_stop_is_a_shutdown_with_a_timeout_and_then_a_stop() {
    let ground = one(lxc().running());
    ground
        .simulator
        .with(|world| world.guests.get_mut(&101).unwrap().on_shutdown = OnShutdown::Ignores);
    let wanted = Wanted { stop: Stop::Graceful(Duration::from_millis(500)), ..runs(Run::Stopped) };
    ground.process().converge(&desired([(101, wanted)])).await;
    assert!(!is_running(&ground));
    let call = ground.simulator.with(|world| world.writes().last().map(|call| (*call).clone()));
    let call = call.unwrap();
    assert!(call.path.ends_with("/status/shutdown"), "{call:?}");
    let sent = (call.parameter("forceStop"), call.parameter("timeout"));
    assert_eq!(sent, (Some("1"), Some("1")), "half a second is not cut off to none");
}

#[tokio::test]
async fn a_shutdown_alone_leaves_a_deaf_guest_running_and_says_so() {
    let ground = one(lxc().running());
    ground
        .simulator
        .with(|world| world.guests.get_mut(&101).unwrap().on_shutdown = OnShutdown::Ignores);
    let wanted = Wanted { stop: Stop::Shutdown(Duration::ZERO), ..runs(Run::Stopped) };
    let desired = desired([(101, wanted)]);
    let mut process = ground.process();
    assert!(!process.pass(&desired).await.is_converged());
    process.operations.tasks_finished().await;
    assert!(is_running(&ground));
    let ended = process.operations.journal().open_step(&process.operations.subject(&key(101)));
    assert_eq!(ended, None, "the step is closed");
}

#[tokio::test]
async fn an_immediate_stop_asks_for_nothing_else() {
    let ground = one(Guest::new(Simulated::Qemu, "pve1").running());
    let wanted = Wanted { stop: Stop::Immediate, kind: Kind::Qemu, ..runs(Run::Stopped) };
    ground.process().converge(&desired([(101, wanted)])).await;
    assert!(!is_running(&ground));
    assert_eq!(ground.simulator.with(|world| world.count(101, "qmstop")), 1);
}

#[tokio::test]
async fn a_task_that_ends_with_warnings_has_ended_well() {
    let ground = one(lxc());
    let script = Script { takes: Duration::ZERO, end: End::Warnings(2) };
    ground.simulator.with(|world| world.script(101, script));
    ground.process().converge(&desired([(101, runs(Run::Running))])).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
    assert_eq!(
        ground.ends(),
        ["succeeded"],
        "the state of the guest is one thing, what is reported another"
    );
}

#[tokio::test]
async fn a_task_that_fails_is_tried_again_and_one_that_was_killed_too() {
    let ground = one(lxc());
    ground.simulator.with(|world| {
        let end = End::Error("startup for container '101' failed".to_owned());
        world.script(101, Script { takes: Duration::ZERO, end });
        world.script(101, Script { takes: Duration::ZERO, end: End::Killed });
    });
    ground.process().converge(&desired([(101, runs(Run::Running))])).await;
    assert!(is_running(&ground));
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 3);
    assert_eq!(ground.ends(), ["failed", "unknown", "succeeded"]);
}

#[tokio::test]
async fn a_task_that_was_killed_after_its_effect_is_not_sent_again() {
    let ground = one(lxc());
    let script = Script { takes: Duration::ZERO, end: End::KilledAfterEffect };
    ground.simulator.with(|world| world.script(101, script));
    ground.process().converge(&desired([(101, runs(Run::Running))])).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
}

#[tokio::test]
async fn quirk_no_such_task_for_a_moment() {
    let ground = one(lxc());
    ground.simulator.with(|world| world.hidden_queries = 3);
    ground.process().converge(&desired([(101, runs(Run::Running))])).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
    assert_eq!(ground.ends(), ["succeeded"], "it was waited for");
}

#[tokio::test]
async fn a_lost_request_is_not_taken_for_a_task_of_somebody_else() {
    let ground = one(lxc());
    let lose = homeostat_pve_simulator::Harm::DropRequest;
    ground.simulator.with(|world| {
        world.fail(homeostat_pve_simulator::Fault::on("/status/start", lose).times(1));
        world.tokens.insert("root@pam!x".to_owned(), "theirs".to_owned());
    });
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    process.pass(&desired).await;
    // Another client begins the same thing, and fails.
    ground.simulator.with(|world| {
        let end = End::Error("startup for container '101' failed".to_owned());
        world.script(101, Script { takes: Duration::ZERO, end });
    });
    let Ground { simulator, state } = ground;
    let theirs = Ground { simulator, state: tempfile::TempDir::new().unwrap() };
    let mut other = theirs.process_by(&theirs.client_of("root@pam!x=theirs"));
    other.pass(&desired).await;
    other.operations.tasks_finished().await;
    process.converge(&desired).await;
    assert_eq!(Ground { state, ..theirs }.ends(), ["unknown", "succeeded"]);
}

#[tokio::test]
async fn quirk_consoles_are_tasks() {
    for console in ["vncproxy", "spiceproxy"] {
        let ground = one(lxc().running());
        ground.simulator.with(|world| world.occupy(101, console, Duration::from_hours(1)));
        let wanted = Wanted { stop: Stop::Immediate, ..runs(Run::Stopped) };
        ground.process().converge(&desired([(101, wanted)])).await;
        assert!(!is_running(&ground), "{console}: an open console does not prevent a stop");
    }
}

#[tokio::test]
async fn a_task_of_somebody_else_is_waited_for() {
    let ground = one(lxc());
    let mut other = ground.process();
    let desired = desired([(101, runs(Run::Running))]);
    let script = Script { takes: World::LONG, end: End::Ok };
    ground.simulator.with(|world| world.script(101, script));
    let first = other.pass(&desired).await;
    assert!(!first.is_converged());
    // Another state directory knows nothing of the task.
    let elsewhere = tempfile::TempDir::new().unwrap();
    let ground = Ground { state: elsewhere, ..ground };
    let mut process = ground.process();
    let report = process.pass(&desired).await;
    assert!(story(&report).contains("Task(\"UPID:pve1:"), "{}", story(&report));
    ground.simulator.with(World::hurry);
    other.operations.tasks_finished().await;
    process.converge(&desired).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
}

/// The process that knew the task is gone, and so is the answer that named it.
#[tokio::test]
async fn a_user_who_sees_only_its_own_tasks_finds_a_lost_one() {
    let ground = one(lxc());
    ground.simulator.with(|world| {
        let token = homeostat_pve_simulator::Simulator::token();
        world.unaudited.extend(token.split_once('=').map(|(user, _)| user.to_owned()));
        world.script(101, Script { takes: World::LONG, end: End::Ok });
        let lose = homeostat_pve_simulator::Harm::DropResponse;
        world.fail(homeostat_pve_simulator::Fault::on("/status/start", lose).times(1));
    });
    let desired = desired([(101, runs(Run::Running))]);
    ground.process().pass(&desired).await;
    let mut process = ground.process();
    tokio::join!(process.converge(&desired), ground.hurry_when_asked("/tasks/UPID"));
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
    assert_eq!(ground.ends(), ["succeeded"]);
}

/// Ends tasks when two of them run, until so many have begun.
async fn two_by_two(ground: &Ground, tasks: usize) {
    let running = |world: &mut World| world.tasks().iter().filter(|task| task.is_running()).count();
    let begun = |world: &mut World| world.tasks().len();
    while ground.simulator.with(begun) < tasks || ground.simulator.with(running) > 0 {
        if ground.simulator.with(running) >= 2 {
            ground.simulator.with(World::hurry);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_node_has_at_most_so_many_tasks_at_once_and_a_guest_one() {
    let guests = (101..109).map(|vmid| (vmid, runs(Run::Running)));
    let desired = desired(guests);
    let mut world = World::default();
    for vmid in 101..109 {
        world.put(vmid, lxc());
        world.script(vmid, Script { takes: World::LONG, end: End::Ok });
    }
    let ground = Ground::new(world);
    let mut process = ground.process();
    tokio::join!(process.converge(&desired), two_by_two(&ground, 8));
    let most = ground.simulator.with(|world| (world.most_per_node, world.most_per_guest));
    assert_eq!(most, (2, 1));
}

#[tokio::test]
async fn options_are_set_before_a_start_so_that_none_waits() {
    let ground = one(lxc());
    let mut wanted = runs(Run::Running);
    wanted.options.insert("nameserver".to_owned(), "10.0.0.1".to_owned());
    ground.process().converge(&desired([(101, wanted)])).await;
    let pending = ground.simulator.with(|world| world.guests[&101].pending.clone());
    assert!(pending.is_empty(), "{pending:?}");
}

#[tokio::test]
async fn a_stopped_process_finds_its_task_again() {
    let ground = one(lxc());
    let script = Script { takes: World::LONG, end: End::Ok };
    ground.simulator.with(|world| world.script(101, script));
    let desired = desired([(101, runs(Run::Running))]);
    let report = ground.process().pass(&desired).await;
    assert!(story(&report).contains("UPID"), "{}", story(&report));
    let mut process = ground.process();
    tokio::join!(process.converge(&desired), ground.hurry_when_asked("/tasks/UPID"));
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
}

#[tokio::test]
async fn a_task_of_another_machine_with_our_name_is_waited_for_and_reported() {
    let mut ground = one(lxc());
    ground.simulator.with(|world| world.script(101, Script { takes: World::LONG, end: End::Ok }));
    let desired = desired([(101, runs(Run::Running))]);
    ground.process().pass(&desired).await;
    let elsewhere = std::mem::replace(&mut ground.state, tempfile::TempDir::new().unwrap());
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(reported.contains("UnknownTask(\"UPID:pve1:"), "{reported}");
    ground.simulator.with(World::hurry);
    process.converge(&desired).await;
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
    drop(elsewhere);
}

#[tokio::test]
async fn a_task_whose_name_makes_no_sense_keeps_nothing_from_being_done_after_it() {
    let ground = one(lxc());
    ground.simulator.with(|world| {
        let odd = |body: &str| Harm::Answer(200, body.into());
        world.fail(Fault::on("/status/start", odd(r#"{"data":"TASK-1"}"#)).times(1));
        // It is active for a while, and then for ever one of those that are over.
        let row = r#"{"data":[{"upid":"TASK-1"}]}"#;
        let tasks = |source| Fault::on("/pve1/tasks", odd(row)).parameter("source", source);
        world.fail(tasks("active").after(1).times(1));
        world.fail(tasks("all"));
    });
    let desired = desired([(101, runs(Run::Running))]);
    let mut process = ground.process();
    let reported = story(&process.pass(&desired).await);
    assert!(reported.contains("`TASK-1` is no name of a task"), "{reported}");
    process.converge(&desired).await;
    assert_eq!(ground.ends(), ["unknown", "succeeded"]);
    assert_eq!(ground.simulator.with(|world| world.count(101, "vzstart")), 1);
}
