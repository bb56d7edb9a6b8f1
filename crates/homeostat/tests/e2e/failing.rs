//! What fails, and what happens beside it, costs a bounded number of passes and of lines in the log.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use homeostat_pve_simulator::{End, Script};
use serde_json::Value;

use crate::guests::{GUEST, Ground, cluster, later};
use crate::keeping::until;
use crate::world::World;

/// A route whose gateway cannot be reached, and a look at everything once an hour.
const FAILING: &str = "[[routes]]\nto = \"10.100.0.0/16\"\nvia = \"192.0.2.1\"\ndev = \"lo\"\n\
                       [settings.rtnl]\nresync = \"1h\"\n";
const RED: &str = "[[namespaces.red.routes]]\nto = \"10.8.0.0/16\"\ntype = \"blackhole\"\n";

impl World {
    /// How the loop of a source on the host stands; nothing, while it cannot be asked.
    fn host_loop(&self, source: &str) -> Value {
        let status: Value =
            serde_json::from_str(&self.run("status --json").stdout).unwrap_or_default();
        let loops = status["loops"].as_array().cloned().unwrap_or_default();
        let is_it = |one: &Value| one["source"] == source && one["scope"] == "host";
        loops.into_iter().find(is_it).unwrap_or_default()
    }

    /// The answer to one request over the control socket.
    fn ask_socket(&self, request: &Value) -> Value {
        let mut stream = UnixStream::connect(self.state().join("default.sock")).unwrap();
        writeln!(stream, "{request}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    /// How many full passes the network of the host has seen.
    fn full_passes(&self) -> u64 {
        self.host_loop("rtnl")["counts"]["full"].as_u64().unwrap_or_default()
    }

    /// Others make and remove namespaces, and write files beside their names.
    fn storm(&self, times: usize) {
        for _ in 0..times {
            self.ip("netns add other");
            let mut write = self.command("sh");
            write.args(["-c", "echo 1 > /run/other.pid && rm /run/other.pid"]);
            crate::program::output(write);
            self.ip("netns delete other");
        }
    }

    /// Makes a namespace that the document names, and waits until it is kept: the daemon has seen
    /// everything that happened to names before.
    fn add_red_and_wait(&self) {
        self.ip("netns add red");
        until("the route inside", || {
            let mut routes = self.command("ip");
            routes.args(["netns", "exec", "red", "ip", "route", "show", "proto", "76"]);
            crate::program::output(routes).contains("10.8.0.0/16")
        });
    }
}

#[test]
fn thousands_of_failing_routes_are_logged_once() {
    let world = World::new();
    world.ip("link set lo up");
    let route =
        |number| format!("10.100.{}.{}/32 via 192.0.2.1 dev lo\n", number / 256, number % 256);
    world.write("bad.routes", (0..2_000).map(route).collect::<String>());
    let list = "[[routes]]\nfrom-file = \"bad.routes\"\n[settings.rtnl]\nresync = \"5s\"\n";
    let _daemon = world.keep(list);
    until("resyncs and retries", || {
        let counts = &world.host_loop("rtnl")["counts"];
        counts["full"].as_u64() >= Some(4) && counts["focused"].as_u64() >= Some(3)
    });
    let stands = world.host_loop("rtnl");
    assert_eq!(stands["open"]["failed"], 2_000, "{stands}");
    assert_eq!(stands["counts"]["lost"], 0, "refused writes make no hints: {stands}");
    let log = world.log();
    let (lines, failed) = (log.lines().count(), log.matches("outcome=\"failed\"").count());
    assert!(lines <= 110 && failed == 100, "{lines} lines, {failed} failures");
    assert!(log.contains("more=1900"), "the others are counted");
}

#[test]
fn open_keys_are_listed_in_pages_with_their_reasons_by_status_socket_and_http() {
    let world = World::new().with_own_names();
    world.ip("link set lo up");
    let route = |number| format!("10.100.0.{number}/32 via 192.0.2.1 dev lo\n");
    world.write("bad.routes", (0..50).map(route).collect::<String>());
    world.write("host.toml", format!("[[routes]]\nfrom-file = \"bad.routes\"\n{RED}"));
    let _daemon = world.start("--listen 127.0.0.1:9876");
    until("the first pass", || world.host_loop("rtnl")["open"]["failed"] == 50);

    let text = world.run("status").exits(2).stdout;
    assert_eq!(text.matches("(rtnl in host): failed since 20").count(), 20, "{text}");
    assert_eq!(text.matches("  reason: ").count(), 20, "{text}");
    assert_eq!(text.matches("  next try: in ").count(), 20, "{text}");
    assert!(text.contains(" ago, last good pass none, next "), "no pass was good: {text}");
    assert!(text.contains("\n31 other keys are not as declared.\n"), "{text}");

    // The time of day is computed for each answer.
    let without_times = |page: &Value| {
        let items = page["open"].as_array().unwrap().iter().cloned();
        let items = items.map(|mut item| {
            item["since"] = item["since"].is_string().into();
            item["next_try_in_ms"] = item["next_try_in_ms"].is_u64().into();
            item
        });
        (items.collect::<Vec<_>>(), page["next"].clone())
    };
    let ask = |after: &Value| {
        let after_text = after.as_str().unwrap_or_default().replace(' ', "%20");
        let (code, page) = crate::http::read(&format!("/api/v1/open?limit=30&after={after_text}"));
        assert_eq!(code, 200, "{page}");
        let page = without_times(&serde_json::from_str(&page).unwrap());
        let request = serde_json::json!({ "verb": "open", "limit": 30, "after": after });
        assert_eq!(without_times(&world.ask_socket(&request)), page, "the socket has the same");
        page
    };
    let (mut items, next) = ask(&Value::Null);
    assert_eq!(items.len(), 30);
    let (rest, end) = ask(&next);
    items.extend(rest);
    let keys: std::collections::BTreeSet<&str> =
        items.iter().map(|item| item["key"].as_str().unwrap()).collect();
    assert_eq!((items.len(), keys.len(), end), (51, 51, Value::Null), "each once");
    let expected = serde_json::json!({
        "source": "rtnl", "scope": "host", "key": "route 10.100.0.0/32", "kind": "failed",
        "reason": items[0]["reason"], "owner": null, "since": true, "help": items[0]["help"],
        "command": format!("homeostat --state-dir {} resync", world.state().display()),
        "next_try_in_ms": true,
    });
    assert_eq!(items[0], expected);
    assert!(items[0]["reason"].is_string(), "{}", items[0]);
    let expected = serde_json::json!({
        "source": "rtnl", "scope": "red", "key": "route 10.8.0.0/16", "kind": "pending",
        "reason": "waits on namespace red", "owner": null, "since": false, "help": null, "command": null,
        "next_try_in_ms": false,
    });
    assert_eq!(items[50], expected);
    assert_eq!(crate::http::read("/api/v1/open?limit=many").0, 400);
}

#[test]
fn names_and_files_of_others_make_no_pass() {
    let world = World::new().with_own_names();
    world.ip("link set lo up");
    let _daemon = world.keep(&format!("{FAILING}{RED}"));
    until("the first pass", || world.full_passes() > 0);
    let before = world.full_passes();
    world.storm(20);
    world.add_red_and_wait();
    // The pass that a new loop is asked for may have come after the first.
    let passes = world.full_passes() - before;
    assert!(passes <= 1, "neither others' names nor one of ours is its business: {passes}");
}

#[test]
fn names_that_come_and_go_do_not_hurry_the_retries_of_a_failing_guest() {
    let world = World::new().with_own_names();
    let ground = Ground { world, cluster: cluster() };
    for _ in 0..200 {
        let end = End::Error("startup for container '101' failed".to_owned());
        let script = Script { takes: Duration::from_millis(1), end };
        ground.cluster.with(|world| world.script(101, script));
    }
    ground.token(0o600);
    ground.connect("", &format!("{GUEST}[settings.guests]\nresync = \"1h\"\n{RED}"));
    let _daemon = ground.world.keep_at("host.toml");
    later(|| ground.starts() >= 4);
    let before = ground.starts();
    ground.world.storm(40);
    for _ in 0..10 {
        ground.world.add_red_and_wait();
        ground.world.ip("netns delete red");
    }
    let starts = ground.starts() - before;
    assert!(starts <= 8, "each pause is twice as long as the one before: {starts}");
}
