//! What a second try of a named command makes of lost answers: nothing is sent twice, and
//! nothing is left undone.

use std::process::Stdio;

use homeostat_pve_simulator::{Fault, Harm, World as Cluster};
use serde_json::Value;

use crate::guests::{Ground, later};

const START: &str = "guest start 101 --idempotency-key k --document host.toml --json";
const SEND: &str = "/nodes/pve1/lxc/101/status/start";

fn told(answer: &Value) -> (&str, bool) {
    (answer["outcome"].as_str().unwrap(), answer["stored"].as_bool().unwrap())
}

/// A try that nobody knows the end of: its request was lost.
fn lose(ground: &Ground) {
    let lost = Fault::on(SEND, Harm::DropRequest).times(1);
    ground.cluster.with(|world| world.fail(lost));
    let first = ground.world.run(START).json(1);
    assert_eq!(told(&first), ("unknown", false), "{first}");
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
        assert_eq!(told(&first), (outcome, false), "{harm:?}: {first}");
        let second = ground.world.run(START).json(0);
        assert_eq!(told(&second), ("succeeded", outcome == "succeeded"), "{harm:?}: {second}");
        let third = ground.world.run(START).json(0);
        assert_eq!(told(&third), ("succeeded", true), "{harm:?}: {third}");
        assert_eq!((ground.starts(), ground.is_running()), (1, true), "{harm:?}");
    }
}

#[test]
fn where_nobody_knows_the_end_a_guest_that_is_as_asked_for_is_left_alone() {
    let ground = Ground::new("");
    lose(&ground);
    let run = |running| {
        ground.cluster.with(|world| world.guests.get_mut(&101).unwrap().running = running);
    };
    run(true);
    assert_eq!(told(&ground.world.run(START).json(0)), ("succeeded", false));
    run(false);
    assert_eq!(told(&ground.world.run(START).json(0)), ("succeeded", true), "it was done");
    assert_eq!(ground.starts(), 0);
}

#[test]
fn where_nobody_knows_the_end_what_runs_after_all_is_joined() {
    let ground = Ground::new("");
    lose(&ground);
    // To the target, whoever has the same token is the same user, so this may as well be our own request.
    ground.takes(1500);
    let two = "[settings]\nowner = \"two\"\nprotocol = 77\n";
    ground.world.write("two.toml", ground.document(two));
    let mut late = ground.world.homeostat("guest start 101 --document two.toml --owner two");
    let mut late = late.stdout(Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    assert_eq!(told(&ground.world.run(START).json(0)), ("succeeded", false));
    assert!(late.wait().unwrap().success());
    assert_eq!(ground.starts(), 1);
}

#[test]
fn where_nobody_knows_the_end_and_nobody_can_be_asked_nothing_is_sent() {
    let ground = Ground::new("");
    lose(&ground);
    let refuse = Harm::Refuse(500, "no".to_owned());
    ground.cluster.with(|world| world.fail(Fault::on("/nodes/pve1/tasks", refuse)));
    ground.world.run(START).exits(1);
    assert_eq!(ground.starts(), 0);
    ground.cluster.with(Cluster::mend);
    assert_eq!(told(&ground.world.run(START).json(0)), ("succeeded", false));
    assert_eq!(ground.starts(), 1);
}
