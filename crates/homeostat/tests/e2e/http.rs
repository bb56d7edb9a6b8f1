//! What can be read over HTTP, by whom, and that no request breaks the daemon.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use snapbox::str;

use crate::program::{command, output};
use crate::world::World;

const ADDRESS: &str = "127.0.0.1:9876";
const KEY: &str = "net/ipv4/tcp_retries1";
const DESIRED: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";

/// A world with a loopback, and a daemon that listens on it.
pub(crate) fn listening() -> (World, crate::started::Started) {
    let world = World::with(DESIRED);
    world.ip("link set lo up");
    let daemon = world.start("--listen 127.0.0.1:9876");
    (world, daemon)
}

fn connect() -> TcpStream {
    let stream = TcpStream::connect(ADDRESS).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    stream
}

/// What comes back for these bytes.
fn send(bytes: &[u8]) -> String {
    let mut stream = connect();
    // The other end may have closed already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// The status and the body of a page.
pub(crate) fn read(path: &str) -> (u16, String) {
    let answer = send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn json(path: &str) -> Value {
    let (status, body) = read(path);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Follows the events until one is of this sort.
pub(crate) fn wait_for(events: TcpStream, event: &str) -> Value {
    for line in BufReader::new(events).lines().map(Result::unwrap) {
        let Some(text) = line.strip_prefix("data: ") else { continue };
        let received: Value = serde_json::from_str(text).unwrap();
        if received["event"] == event && received["cause"] == "drift" {
            return received;
        }
    }
    panic!("the events ended");
}

pub(crate) fn follow() -> TcpStream {
    let mut stream = connect();
    let head =
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Follows a path as a browser does.
pub(crate) fn follow_path(path: &str) -> BufReader<TcpStream> {
    let mut stream = connect();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// The next line that begins so.
pub(crate) fn next_line(from: &mut BufReader<TcpStream>, words: &str) -> String {
    let mut lines = from.lines().map(Result::unwrap);
    lines.find(|line| line.starts_with(words)).unwrap_or_else(|| panic!("no {words}"))
}

#[test]
fn pages_show_the_state_of_the_daemon_and_what_it_healed() {
    let (world, daemon) = listening();
    assert_eq!(json("/healthz"), serde_json::json!({ "healthy": true, "stalled": [] }));
    assert_eq!(json("/readyz"), serde_json::json!({ "ready": true, "waiting": [] }));
    let events = follow();
    world.meddle(KEY, "9");
    let received = wait_for(events, "step-applied");
    assert_eq!(received["key"], "sysctl net.ipv4.tcp_retries1");
    assert_eq!(world.knob(KEY), "5");
    let status = json("/api/v1/status");
    assert_eq!((&status["converged"], &status["ready"]), (&true.into(), &true.into()));
    let sources: Vec<&Value> =
        status["loops"].as_array().unwrap().iter().map(|one| &one["source"]).collect();
    assert_eq!(sources, ["knobs", "rtnl"]);
    let (_, lines) = read("/api/v1/events");
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{lines}");
    assert!(lines.contains("\"cause\":\"drift\""), "{lines}");
    let (_, metrics) = read("/metrics");
    for line in [
        r#"homeostat_drift_total{source="knobs",scope="host",found_by="hint"} 1"#,
        r#"homeostat_steps_total{source="knobs",scope="host",outcome="applied"} 2"#,
        r#"homeostat_heal_seconds_count{source="knobs",scope="host"} 1"#,
        r#"homeostat_converged{source="rtnl",scope="host"} 1"#,
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}\n{metrics}");
    }
    daemon.stop();
}

/// What `promtool` has against these metrics.
fn complaints(metrics: &str) -> String {
    let mut check = command("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.stdout(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn prometheus_finds_nothing_wrong_with_the_metrics() {
    let (world, daemon) = listening();
    let events = follow();
    world.meddle(KEY, "9");
    wait_for(events, "step-applied");
    let answer = send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    let (head, metrics) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(metrics.contains("# TYPE homeostat_passes_total counter\n"), "{metrics}");
    assert_eq!(complaints(metrics), "");
    let without_help = metrics.replace("# HELP homeostat_passes_total", "# homeostat_passes_total");
    assert!(complaints(&without_help).contains("no help text"), "the check bites");
    let asks = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\
                Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n";
    let answer = send(asks.as_bytes());
    assert!(answer.contains("application/openmetrics-text; version=1.0.0"), "{answer}");
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    daemon.stop();
}

#[test]
fn prometheus_takes_the_alerts_and_fires_them_when_it_should() {
    for (verb, file) in [("check", "homeostat.rules.yml"), ("test", "homeostat.rules.test.yml")] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus");
        let mut promtool = command("promtool");
        promtool.current_dir(path).args([verb, "rules", file]);
        assert!(output(promtool).contains("SUCCESS"), "{file}");
    }
}

#[test]
fn only_who_asks_for_this_machine_by_its_name_is_answered_and_only_to_read() {
    let (_world, daemon) = listening();
    for (request, expected) in [
        ("GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("GET /healthz HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", "200"),
        ("GET /healthz HTTP/1.1\r\n\r\n", "400"),
        ("POST /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("DELETE /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        ("GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
    ] {
        let answer = send(request.as_bytes());
        assert_eq!(answer.split(' ').nth(1), Some(expected), "{request}\n{answer}");
    }
    let head = send(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    daemon.stop();
}

/// Bytes that look like nothing, the same in every run.
fn junk(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let length = seed * 97 % 12_000;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn junk_and_idle_clients_keep_no_other_from_the_answer() {
    let (_world, daemon) = listening();
    for seed in 0..200 {
        let mut bytes = junk(seed);
        if seed % 2 == 0 {
            bytes.splice(..0, *b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n");
        }
        let answer = send(&bytes);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{seed}: {answer}");
    }
    let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 100_000]].concat();
    assert!(send(&long).starts_with("HTTP/1.1 431 "));
    // They say nothing, or half of something, and stay: each is let go after a while.
    let mut idlers: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    for idler in idlers.iter_mut().step_by(2) {
        idler.write_all(b"GET / HT").unwrap();
    }
    assert_eq!(read("/healthz").0, 200);
    let followers: Vec<TcpStream> = (0..20).map(|_| follow()).collect();
    assert_eq!(read("/readyz").0, 200);
    drop((idlers, followers));
    daemon.stop();
}

#[test]
fn an_address_that_others_can_reach_is_refused() {
    let world = World::with(DESIRED);
    world.run("run host.toml --listen 0.0.0.0:80").fails(str![[r#"
error: invalid value '0.0.0.0:80' for '--listen <ADDR:PORT>': not a loopback address: anyone who can reach it could read everything, so put a proxy that checks who asks in front of 127.0.0.1

For more information, try '--help'.

"#]]);
    assert_ne!(world.knob(KEY), "5", "nothing was applied");
}

#[test]
fn an_address_that_is_taken_is_an_error_before_anything_is_written() {
    let (world, daemon) = listening();
    world.ip("link set lo up");
    let taken = world.run("run host.toml --listen 127.0.0.1:9876 --owner other --protocol 77");
    assert!(taken.exits(1).stderr.contains("cannot listen on 127.0.0.1:9876"));
    daemon.stop();
}
