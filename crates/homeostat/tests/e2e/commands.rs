//! Commands that a client names: each done once, in one cluster, whatever is lost or killed on the way.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use homeostat_pve_simulator::{Guest, Kind, Simulator, World as Cluster};

use serde_json::Value;

use crate::guests::{GUEST, Ground, later};
use crate::world::DOCUMENT;

/// Another cluster with a guest of the same number, and the document that names it.
fn elsewhere(ground: &Ground) -> (Simulator, String) {
    let other =
        Simulator::start(Cluster::default().with(101, Guest::new(Kind::Lxc, "pve9"))).unwrap();
    let text = fs::read_to_string(ground.world.path().join(DOCUMENT)).unwrap();
    let text = text.replace(&ground.cluster.endpoint(), &other.endpoint());
    let text = text.replace(&ground.cluster.fingerprint(), &other.fingerprint());
    (other, text.replace("pve1", "pve9"))
}

/// Whether a client has asked about a task of a node.
fn is_asked(cluster: &Simulator, node: &str) -> bool {
    let task = format!("/nodes/{node}/tasks/UPID");
    cluster.with(|world| world.calls.iter().any(|call| call.path.contains(&task)))
}

#[test]
fn a_name_is_for_one_cluster_however_that_is_spelled() {
    let ground = Ground::new("");
    let start = "guest start 101 --idempotency-key e --document host.toml";
    let stored = "start guest 101: succeeded (the outcome of an earlier try)\n";
    ground.world.run(start).exits(0);
    let (other, text) = elsewhere(&ground);
    let own = ground.document("");
    ground.world.write(DOCUMENT, text);
    assert_eq!(ground.world.run(start).exits(0).stdout, "start guest 101: succeeded\n");
    assert!(other.with(|world| world.guests[&101].running));
    assert_eq!(ground.world.run(start).exits(0).stdout, stored);
    let endpoint = ground.cluster.endpoint();
    ground.world.write(DOCUMENT, own.replace(&endpoint, &format!("{endpoint}/")));
    assert_eq!(ground.world.run(start).exits(0).stdout, stored);
    assert_eq!(ground.starts(), 1);
}

#[test]
fn what_is_in_flight_in_one_cluster_is_never_asked_of_another() {
    let ground = Ground::new(GUEST);
    ground.lasts();
    let daemon = ground.world.start("");
    later(|| ground.world.run("journal").stdout.contains("dispatched"));
    drop(daemon);
    let (other, text) = elsewhere(&ground);
    let own = fs::read_to_string(ground.world.path().join(DOCUMENT)).unwrap();
    ground.world.write(DOCUMENT, &text);
    // It keeps nobody from being started there,
    ground.world.run("apply --yes host.toml").exits(0);
    assert!(other.with(|world| world.guests[&101].running));
    assert!(is_asked(&other, "pve9") && !is_asked(&other, "pve1"), "it is unknown there");
    // and it is found again where it was begun.
    ground.cluster.with(|world| world.calls.clear());
    ground.world.write(DOCUMENT, own);
    let daemon = ground.world.start("");
    later(|| is_asked(&ground.cluster, "pve1"));
    assert_eq!(ground.starts(), 1);
    daemon.stop();
}

#[test]
fn a_daemon_that_gets_another_cluster_follows_what_it_began_in_the_first() {
    let ground = Ground::new(GUEST);
    ground.takes(1500);
    let daemon = ground.world.start("");
    later(|| ground.world.run("journal").stdout.contains("dispatched"));
    let (other, text) = elsewhere(&ground);
    ground.world.write(DOCUMENT, text);
    ground.world.run("reload");
    later(|| other.with(|world| world.guests[&101].running));
    let place = format!("guests in host at {}: guest 101 start", ground.cluster.endpoint());
    later(|| ground.world.run("journal --is succeeded").stdout.contains(&place));
    ground.world.run("guest stop 101").exits(0);
    assert!(ground.is_running(), "the command is for the cluster that the document names");
    daemon.stop();
}

const START: &str = "guest start 101 --idempotency-key k --document host.toml --json";

/// A first try that has sent its request.
fn begun(ground: &Ground) -> Child {
    let mut first = ground.world.homeostat(START);
    let first = first.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    later(|| ground.starts() == 1);
    first
}

/// A second try, and the file of what it says meanwhile.
fn second(ground: &Ground) -> (Child, PathBuf) {
    let log = ground.world.path().join("second");
    let mut second = ground.world.homeostat(START);
    second.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
    (second.spawn().unwrap(), log)
}

/// A second try ends with the outcome of the first.
fn joins(second: Child) {
    let answer = second.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!((&answer["outcome"], &answer["stored"]), (&"succeeded".into(), &true.into()));
}

#[test]
fn a_second_try_without_a_daemon_waits_for_the_first_and_gets_its_outcome() {
    let ground = Ground::new("");
    ground.lasts();
    let first = begun(&ground);
    let mut quiet = ground.world.homeostat(&format!("-q {START}"));
    let quiet = quiet.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (second, log) = second(&ground);
    let process = first.id();
    let waiting =
        format!("Waiting for process {process} (homeostat) of user 0, which writes here\n");
    later(|| fs::read_to_string(&log).unwrap().starts_with(&waiting));
    ground.hurry();
    joins(second);
    let quiet = ground.world.ran(&quiet.wait_with_output().unwrap()).exits(0);
    assert_eq!(quiet.stderr, "");
    let first = first.wait_with_output().unwrap();
    let first: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!((&first["outcome"], &first["stored"]), (&"succeeded".into(), &false.into()));
    assert_eq!(ground.starts(), 1);
}

#[test]
fn a_second_try_goes_on_where_the_first_is_killed_while_it_waits_for_it() {
    let ground = Ground::new("");
    ground.lasts();
    let mut first = begun(&ground);
    let (second, log) = second(&ground);
    later(|| fs::read_to_string(&log).unwrap().starts_with("Waiting for process "));
    first.kill().unwrap();
    first.wait().unwrap();
    ground.cluster.with(|world| world.calls.clear());
    later(|| is_asked(&ground.cluster, "pve1"));
    ground.hurry();
    joins(second);
    assert_eq!(ground.starts(), 1);
}

#[test]
fn a_command_without_a_name_does_not_wait_and_says_who_is_at_work() {
    let ground = Ground::new("");
    ground.lasts();
    let first = begun(&ground);
    let refused = ground.world.run("guest stop 101 --document host.toml").exits(1);
    assert!(refused.stderr.contains("the scope is locked by process "), "{refused:?}");
    assert!(refused.stderr.contains("\nhelp: stop that process"), "{refused:?}");
    ground.hurry();
    assert!(first.wait_with_output().unwrap().status.success());
}
