//! The control socket and the HTTP surface besieged: the daemon neither falls nor swells, goes on
//! healing, and refuses commands without permission.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Gid, Uid};
use serde_json::Value;

use super::client::{Door, visit};
use super::dice::Dice;
use super::often;
use super::process::Usage;
use crate::keeping::until;
use crate::started::Started;
use crate::world::World;

const ADDRESS: &str = "127.0.0.1:9876";
const ROUTE: &str = "10.9.0.0/16";
const DESIRED: &str = "[links.va]\naddresses = [\"10.0.0.1/24\"]\n[[routes]]\nto = \"10.9.0.0/16\"\n\
                    via = \"10.0.0.9\"\n[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";

/// What clients may make it hold for a while: lines that are not ended, answers that are not read.
const KILOBYTES: usize = 8 << 10;

fn besieged() -> (World, Started) {
    let world = World::with(DESIRED);
    world.ip("link set lo up");
    world.add_pair("va", "vb");
    world.ip("link set va up");
    world.ip("link set vb up");
    let daemon = world.start(&format!("--listen {ADDRESS}"));
    world.converges();
    (world, daemon)
}

impl World {
    fn door(&self) -> PathBuf {
        self.state().join("default.sock")
    }

    /// Takes the route away, and waits until it is back.
    fn heals(&self) {
        self.ip(&format!("route del {ROUTE}"));
        until("the route", || !self.listed(&format!("route show {ROUTE} proto 76")).is_empty());
    }
}

/// Visits both doors at once, and holds on to some connections until the end.
fn wave(world: &World, seed: u64, visits: usize) {
    let doors = [Door::control(&world.state()), Door::Http(ADDRESS)];
    let assailants = (0..).zip(doors).map(|(number, door)| {
        std::thread::spawn(move || {
            let mut dice = Dice::new(seed * 2 + number);
            (0..visits).filter_map(|_| visit(&door, &mut dice)).collect::<Vec<_>>()
        })
    });
    let lingering: Vec<_> = assailants.collect();
    for assailant in lingering {
        drop(assailant.join().unwrap());
    }
}

#[test]
fn a_siege_of_both_doors_neither_fells_nor_swells_the_daemon_and_it_heals_meanwhile() {
    let (world, daemon) = besieged();
    wave(&world, 0, 100);
    world.run("resume").exits(0);
    world.heals();
    let before = Usage::of(daemon.pid());
    for seed in 1..=often(3, 40) as u64 {
        wave(&world, seed, 150);
        // Somebody may have had it pause: they are root, and may.
        world.run("resume").exits(0);
        world.heals();
        world.converges();
        Usage::has_not_grown(daemon.pid(), before, KILOBYTES);
    }
    assert!(!world.log().contains("panicked"), "{}", world.log());
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
    daemon.stop();
}

#[test]
fn a_crowd_of_slow_clients_locks_no_other_out_and_stops_no_healing() {
    let (world, daemon) = besieged();
    let before = Usage::of(daemon.pid());
    let enter = |_| {
        let stream = UnixStream::connect(world.door()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        stream
    };
    // More than there are places.
    let mut crowd: Vec<UnixStream> = (0..40).map(enter).collect();
    world.heals();
    let mut status = world.homeostat("status").stdout(Stdio::null()).spawn().unwrap();
    let ended = loop {
        // A byte now and then is not enough to stay.
        for client in &mut crowd {
            let _ = client.write_all(b" ");
        }
        if let Some(ended) = status.try_wait().unwrap() {
            break ended;
        }
        let _ = crowd.last_mut().unwrap().read(&mut [0; 16]);
    };
    assert!(ended.success(), "{ended}");
    drop(crowd);
    world.converges();
    Usage::has_not_grown(daemon.pid(), before, KILOBYTES);
    daemon.stop();
}

/// What an unprivileged peer gets for a request. Only this thread becomes nobody, for good.
fn as_nobody(door: &PathBuf, requests: &[&str]) -> Vec<String> {
    let nobody = (Uid::from_raw(65_534), Gid::from_raw(65_534));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(nobody.1, nobody.1, nobody.1).unwrap();
    rustix::thread::set_thread_res_uid(nobody.0, nobody.0, nobody.0).unwrap();
    let ask = |request: &&str| {
        let stream = UnixStream::connect(door).unwrap();
        let _ = (&stream).write_all(format!("{request}\n").as_bytes());
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer
    };
    requests.iter().map(ask).collect()
}

#[test]
fn whatever_an_unprivileged_peer_orders_is_refused_and_not_done() {
    const ORDERS: [&str; 8] = [
        r#"{"verb":"status"}"#,
        r#"{"verb":"pause"}"#,
        r#"{"verb":"reload","leave":{"mass_delete":true,"cascades":true}}"#,
        r#"{"verb":"resync"}"#,
        r#"{"verb":"forget","key":"sysctl net.ipv4.ip_forward"}"#,
        r#"{"verb":"release","key":"sysctl net.ipv4.ip_forward"}"#,
        r#"{"verb":"adopt","about":{"key":"route 10.9.0.0/16"},"ask":{}}"#,
        "junk",
    ];
    let (world, daemon) = besieged();
    // The daemon would take this one away if it read its document again.
    world.write(
        "host.toml",
        DESIRED.replace("[[routes]]\nto = \"10.9.0.0/16\"\nvia = \"10.0.0.9\"\n", "routes = []\n"),
    );
    for path in [world.path().to_owned(), world.state(), world.door()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let door = world.door();
    let answers = std::thread::spawn(move || as_nobody(&door, &ORDERS)).join().unwrap();
    for (order, answer) in ORDERS.iter().zip(answers) {
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let why = answer["error"].as_str().unwrap_or_else(|| panic!("{order}: {answer}"));
        assert!(
            why.contains("user 65534 may not speak with the daemon of user 0"),
            "{order}: {why}"
        );
    }
    let status = world.run("status --json").exits(0).stdout;
    assert!(!status.contains("\"paused\":true"), "{status}");
    daemon.stop();
}

#[test]
fn clients_that_leave_while_they_wait_leave_their_place_to_others() {
    let (world, daemon) = besieged();
    // A conflict: nothing converges for as long as they wait.
    world.run("pause").exits(0);
    world.ip(&format!("route replace {ROUTE} via 10.0.0.66 proto bird"));
    world.run("resync").exits(1);
    for _ in 0..40 {
        let mut client = UnixStream::connect(world.door()).unwrap();
        client.write_all(b"{\"verb\":\"status\",\"wait_ms\":3600000}\n").unwrap();
    }
    // Nobody who stays waits longer than a minute; who has left does not count for half of that.
    let mut client = UnixStream::connect(world.door()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.write_all(b"{\"verb\":\"status\"}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["converged"], false);
    daemon.stop();
}
