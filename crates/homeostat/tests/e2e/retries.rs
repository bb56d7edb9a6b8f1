//! What a second try of a named command makes of lost answers, kills and moves: nothing is sent twice, and
//! nothing is left undone.

use std::process::Stdio;
use std::time::Duration;

use homeostat_pve_simulator::{End, Fault, Harm, Script, World as Cluster};
use rustix::process::Signal;
use serde_json::Value;

use crate::guests::{Ground, later};

const START: &str = "guest start 101 --idempotency-key k --document host.toml --json";
const SEND: &str = "/nodes/pve1/lxc/101/status/start";

fn never() -> Harm {
    Harm::Slow(Duration::from_hours(1))
}

fn outcome_of(answer: &Value) -> (&str, bool) {
    (answer["outcome"].as_str().unwrap(), answer["stored"].as_bool().unwrap())
}

/// A try whose end is unknown: its request was lost.
fn lose(ground: &Ground) {
    let lost = Fault::on(SEND, Harm::DropRequest).times(1);
    ground.cluster.with(|world| world.fail(lost));
    let first = ground.world.run(START).json(1);
    assert_eq!(outcome_of(&first), ("unknown", false), "{first}");
    assert!(first["why"].as_str().unwrap().contains("it never arrived"), "{first}");
    assert_eq!(ground.starts(), 0);
}

#[test]
fn a_lost_request_is_sent_by_the_next_try_and_a_lost_answer_is_found_again() {
    let words = || "no route to host".to_owned();
    let table = [
        (Harm::DropRequest, "unknown"),
        (Harm::Refuse(596, words()), "unknown"),
        (Harm::DropResponse, "succeeded"),
        (Harm::Mask(596, words()), "succeeded"),
    ];
    for (harm, outcome) in table {
        let ground = Ground::new("");
        ground.takes(300);
        let fault = Fault::on(SEND, harm.clone()).times(1);
        ground.cluster.with(|world| world.fail(fault));
        let first = ground.world.run(START).json(i32::from(outcome != "succeeded"));
        assert_eq!(outcome_of(&first), (outcome, false), "{harm:?}: {first}");
        let second = ground.world.run(START).json(0);
        assert_eq!(
            outcome_of(&second),
            ("succeeded", outcome == "succeeded"),
            "{harm:?}: {second}"
        );
        let third = ground.world.run(START).json(0);
        assert_eq!(outcome_of(&third), ("succeeded", true), "{harm:?}: {third}");
        assert_eq!((ground.starts(), ground.is_running()), (1, true), "{harm:?}");
    }
}

#[test]
fn where_the_end_is_unknown_a_guest_that_is_as_asked_for_is_left_alone() {
    let ground = Ground::new("");
    lose(&ground);
    let run = |running| {
        ground.cluster.with(|world| world.guests.get_mut(&101).unwrap().running = running);
    };
    run(true);
    assert_eq!(outcome_of(&ground.world.run(START).json(0)), ("succeeded", false));
    run(false);
    assert_eq!(outcome_of(&ground.world.run(START).json(0)), ("succeeded", true), "it was done");
    assert_eq!(ground.starts(), 0);
}

#[test]
fn where_the_end_is_unknown_what_runs_after_all_is_joined() {
    let ground = Ground::new("");
    lose(&ground);
    // To the target, all clients with the same token are the same user, so this may as well be our own request.
    ground.takes(1500);
    let two = "[settings]\nowner = \"two\"\nprotocol = 77\n";
    ground.world.write("two.toml", ground.document(two));
    let mut late = ground.world.homeostat("guest start 101 --document two.toml --owner two");
    let mut late = late.stdout(Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    assert_eq!(outcome_of(&ground.world.run(START).json(0)), ("succeeded", false));
    assert!(late.wait().unwrap().success());
    assert_eq!(ground.starts(), 1);
}

#[test]
fn where_the_end_is_unknown_and_the_target_cannot_be_asked_nothing_is_sent() {
    let ground = Ground::new("");
    lose(&ground);
    let refuse = Harm::Refuse(500, "no".to_owned());
    ground.cluster.with(|world| world.fail(Fault::on("/nodes/pve1/tasks", refuse)));
    ground.world.run(START).exits(1);
    assert_eq!(ground.starts(), 0);
    ground.cluster.with(Cluster::mend);
    assert_eq!(outcome_of(&ground.world.run(START).json(0)), ("succeeded", false));
    assert_eq!(ground.starts(), 1);
}

#[test]
fn a_task_that_outlives_every_wait_is_joined_until_it_ends() {
    let ground = Ground::new("");
    ground.lasts();
    ground.connect("task-timeout = \"100ms\"\n", "");
    assert_eq!(outcome_of(&ground.world.run(START).json(1)), ("unknown", false));
    assert_eq!(outcome_of(&ground.world.run(START).json(1)).0, "unknown", "it was joined, in vain");
    ground.hurry();
    later(|| {
        let again = ground.world.run(START);
        let answer: Value = serde_json::from_str(&again.stdout).unwrap();
        assert!(["unknown", "succeeded"].contains(&outcome_of(&answer).0), "{answer}");
        answer["outcome"] == "succeeded"
    });
    assert_eq!(ground.starts(), 1);
}

/// Where a try is when it is killed.
struct Point {
    name: &'static str,
    /// What holds it there.
    faults: &'static [fn() -> Fault],
    is_there: fn(&Ground) -> bool,
    /// Whether the target received the command.
    is_begun: bool,
}

fn is_asked(ground: &Ground, path: &str) -> bool {
    ground.cluster.with(|world| world.harmed.iter().any(|call| call.path.contains(path)))
}

fn is_followed(world: &mut Cluster) -> bool {
    world.calls.iter().any(|call| call.path.contains("/tasks/UPID"))
}

fn is_dispatched(ground: &Ground) -> bool {
    ground.world.run("journal --is dispatched").stdout.contains("guest 101 start")
}

const POINTS: [Point; 5] = [
    Point {
        name: "the intent is written, and the request is on its way",
        faults: &[|| Fault::on(SEND, never())],
        is_there: |ground| is_asked(ground, SEND),
        is_begun: false,
    },
    Point {
        name: "the request is lost, and what became of it is asked",
        faults: &[|| Fault::on(SEND, Harm::DropRequest), || Fault::on("/tasks", never())],
        is_there: |ground| is_asked(ground, "/tasks"),
        is_begun: false,
    },
    Point {
        name: "the request has arrived, and its task is not written down",
        faults: &[|| Fault::on(SEND, Harm::DropResponse), || Fault::on("/tasks", never())],
        is_there: |ground| is_asked(ground, "/tasks"),
        is_begun: true,
    },
    Point {
        name: "the task is written down, and runs",
        faults: &[],
        is_there: is_dispatched,
        is_begun: true,
    },
    Point {
        name: "the task has ended, and its end is not written down",
        faults: &[|| Fault::on("/tasks/UPID", never())],
        is_there: |ground| {
            let is_dispatched = is_dispatched(ground);
            if is_dispatched {
                ground.hurry();
            }
            is_dispatched && ground.is_running()
        },
        is_begun: true,
    },
];

/// Kills the process that runs the command, and tries again.
fn check(point: &Point, through_daemon: bool) {
    let name = format!("{}, daemon: {through_daemon}", point.name);
    let ground = Ground::new("");
    ground.lasts();
    let daemon = through_daemon.then(|| ground.world.start(""));
    ground.cluster.with(|world| point.faults.iter().for_each(|fault| world.fail(fault())));
    let mut first = ground.world.homeostat(START);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    later(|| (point.is_there)(&ground));
    match &daemon {
        Some(daemon) => daemon.signal(Signal::KILL),
        None => first.kill().unwrap(),
    }
    assert!(!first.wait().unwrap().success(), "{name}");
    drop(daemon);
    assert_eq!(ground.starts(), usize::from(point.is_begun), "{name}");
    ground.cluster.with(|world| {
        world.mend();
        world.calls.clear();
    });
    let daemon = through_daemon.then(|| ground.world.start(""));
    let mut second = ground.world.homeostat(START);
    let second = second.stdout(Stdio::piped()).spawn().unwrap();
    // The task goes on until a client has come back for it.
    later(|| ground.cluster.with(is_followed));
    ground.hurry();
    let second = ground.world.ran(&second.wait_with_output().unwrap()).json(0);
    assert_eq!(outcome_of(&second), ("succeeded", point.is_begun), "{name}: {second}");
    assert_eq!(outcome_of(&ground.world.run(START).json(0)), ("succeeded", true), "{name}");
    assert_eq!((ground.starts(), ground.is_running()), (1, true), "{name}");
    if let Some(daemon) = daemon {
        daemon.stop();
    }
}

#[test]
fn a_try_that_is_killed_at_any_point_is_carried_on_by_the_next_one() {
    for point in &POINTS {
        check(point, false);
    }
}

#[test]
fn a_try_whose_daemon_is_killed_at_any_point_is_carried_on_by_the_next_one() {
    for point in &POINTS {
        check(point, true);
    }
}

#[test]
fn a_guest_that_moves_while_its_command_waits_is_found_where_it_is() {
    let ground = Ground::new("");
    let daemon = ground.world.start("");
    ground.world.run("status --wait").exits(0);
    let script = Script { takes: Duration::from_millis(1500), end: End::Ok };
    ground.cluster.with(|world| world.script(101, script));
    let mut first = ground.world.homeostat("guest start 101");
    let mut first = first.stdout(Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    ground.cluster.with(|world| world.calls.clear());
    let mut second = ground.world.homeostat("guest stop 101 --json");
    let second = second.stdout(Stdio::piped()).spawn().unwrap();
    let is_located =
        |world: &mut Cluster| world.calls.iter().any(|it| it.path == "/nodes/pve1/lxc");
    later(|| ground.cluster.with(is_located));
    ground.cluster.with(|world| {
        world.guests.get_mut(&101).unwrap().node = "pve2".to_owned();
        world.calls.clear();
    });
    assert!(first.wait().unwrap().success());
    let second = second.wait_with_output().unwrap();
    let second: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(outcome_of(&second), ("succeeded", false), "{second}");
    assert!(!ground.is_running());
    daemon.stop();
}

/// A target that begins tasks only seconds after their requests have arrived.
fn slow() -> Ground {
    let ground = Ground::new("");
    ground.connect("task-delay = \"30s\"\n", "");
    let late = Fault::on(SEND, Harm::BeginLater(Duration::from_secs(3)));
    ground.cluster.with(|world| world.fail(late));
    ground
}

fn sent(ground: &Ground) -> usize {
    ground.cluster.with(|world| world.harmed.iter().filter(|call| call.path == SEND).count())
}

#[test]
fn a_try_that_is_killed_before_the_target_begins_its_task_is_not_sent_again() {
    let ground = slow();
    let mut first = ground.world.homeostat(START);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    later(|| sent(&ground) == 1);
    first.kill().unwrap();
    assert!(!first.wait().unwrap().success());
    let second = ground.world.run(START).json(0);
    assert_eq!(outcome_of(&second), ("succeeded", true), "{second}");
    assert_eq!((sent(&ground), ground.starts()), (1, 1));
}

#[test]
fn a_try_whose_answer_takes_too_long_is_not_sent_again() {
    let ground = slow();
    ground.connect("timeout = \"1s\"\ntask-delay = \"30s\"\n", "");
    let first = ground.world.run(START).json(0);
    assert_eq!(outcome_of(&first), ("succeeded", false), "{first}");
    assert_eq!((sent(&ground), ground.starts()), (1, 1));
}

#[test]
fn an_apply_that_is_killed_before_the_target_begins_its_task_is_not_sent_again_by_the_next() {
    let ground = slow();
    ground.connect("task-delay = \"30s\"\n", crate::guests::GUEST);
    let mut first = ground.world.homeostat("apply --yes host.toml");
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    later(|| sent(&ground) == 1);
    first.kill().unwrap();
    assert!(!first.wait().unwrap().success());
    ground.world.run("apply --yes host.toml");
    ground.world.run("apply --yes host.toml").exits(0);
    assert_eq!((sent(&ground), ground.starts(), ground.is_running()), (1, 1, true));
}
