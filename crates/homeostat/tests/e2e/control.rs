//! Speaking with a running daemon: how things stand, what to do, and who may say so.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;
use snapbox::str;

use crate::keeping::until;
use crate::program::copy_program;
use crate::world::World;

const KEY: &str = "route 10.9.0.0/16";
const DESIRED: &str = "[links.va]\naddresses = [\"10.0.0.1/24\"]\n[[routes]]\nto = \"10.9.0.0/16\"\n\
                    via = \"10.0.0.9\"\n[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";
const ANOTHER: &str = "[[routes]]\nto = \"10.10.0.0/16\"\nvia = \"10.0.0.9\"\n";

fn cabled() -> World {
    let world = World::new();
    world.add_pair("va", "vb");
    for link in ["va", "vb"] {
        world.ip(&format!("link set {link} up"));
    }
    world
}

impl World {
    fn socket(&self) -> PathBuf {
        self.state().join("default.sock")
    }

    /// Whether `ip` shows a route of ours.
    #[track_caller]
    fn has_route(&self, to: &str) -> bool {
        !self.listed(&format!("route show {to} proto 76")).is_empty()
    }

    /// How the daemon says that a key stands.
    #[track_caller]
    fn key(&self, key: &str, code: i32) -> Value {
        let mut command = self.homeostat("status --json");
        command.arg(key);
        self.finish(command).json(code)["keys"][0].clone()
    }

    #[track_caller]
    fn about(&self, verb: &str, key: &str) -> crate::world::Ran {
        let mut command = self.homeostat(verb);
        command.arg(key);
        self.finish(command)
    }
}

#[test]
fn without_a_daemon_every_command_says_how_to_start_one() {
    let world = World::new();
    for command in ["status", "events", "pause", "resume", "resync", "reload", "adopt x"] {
        world.run(command).fails(str![[r#"
error: no daemon listens at @DIR/state/default.sock
help: start it with `homeostat run DOC`; if it runs, give the --owner and --state-dir that it was started with

"#]]);
    }
}

#[test]
fn a_route_deleted_by_hand_is_healed_and_the_heal_is_reported() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    assert_eq!(world.key(KEY, 0)["state"], "as-declared");
    let mut events = world.follow();
    world.ip("route del 10.9.0.0/16");
    events.until_healed(KEY);
    assert!(world.has_route("10.9.0.0/16"));
    let key = world.key(KEY, 0);
    assert_eq!((&key["owner"], &key["wanted"]["via"]), (&"ours".into(), &"10.0.0.9".into()));
    assert_eq!(key["last_heal"]["cause"], "drift");
    let by = key["last_heal"]["by"].as_str().unwrap();
    // The process has ended, so its name may be gone.
    assert!(by.starts_with("ip (pid ") || by.starts_with("process "), "{key}");
    let text = world.run("events").exits(0).stdout;
    assert!(text.contains("step-applied action=create key=\"route 10.9.0.0/16\" cause=drift"));
}

#[test]
fn what_a_key_waits_on_is_an_event_and_a_line_of_the_log_once() {
    let world = cabled();
    let _daemon = world.keep("[links.vx]\naddresses = [\"10.8.0.1/24\"]\n");
    until("the wait", || world.run("events").stdout.contains("pending key="));
    world.run("resync").exits(1);
    let text = world.run("events").exits(0).stdout;
    assert_eq!(text.matches("pending key=").count(), 1, "{text}");
    assert!(text.contains("waits_on=\"link vx\""), "{text}");
    let log = world.log();
    assert_eq!(log.matches("waits_on=link vx").count(), 1, "{log}");
}

#[test]
fn status_lists_every_loop_and_what_waits_for_a_scope() {
    let world = cabled().with_own_names();
    let inside = "[namespaces.blue.links.lo]\naddresses = [\"10.5.0.1/32\"]\n";
    let _daemon = world.keep(&format!("{DESIRED}{inside}"));
    let status = world.stands();
    assert_eq!((&status["format_version"], &status["converged"]), (&"1.0".into(), &false.into()));
    let loops = status["loops"].as_array().unwrap();
    let of = |source: &str, scope: &str| {
        let mut all = loops.iter();
        all.find(|one| one["source"] == source && one["scope"] == scope).unwrap()
    };
    assert_eq!(of("rtnl", "blue")["waits_on"], "namespace blue");
    for source in ["rtnl", "knobs"] {
        let one = of(source, "host");
        assert_eq!((&one["converged"], &one["failures"]), (&true.into(), &0.into()), "{one}");
        assert!(one["last_success_ago_ms"].is_u64() && one["next_due_in_ms"].is_u64(), "{one}");
    }
    world.ip("netns add blue");
    world.converges();
    let text = world.run("status").exits(0).stdout;
    assert!(text.contains("rtnl in blue: converged\n  last good pass "), "{text}");
    assert!(text.ends_with("Converged.\n"), "{text}");
}

#[test]
fn a_paused_daemon_heals_nothing_until_it_is_resumed() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    let mut events = world.follow();
    let said = world.run("pause --for 10m").exits(0).stdout;
    assert_eq!(said, "Paused knobs in host, rtnl in host, for 600s.\n");
    world.ip("route del 10.9.0.0/16");
    assert_eq!(world.key(KEY, 2)["state"], "absent");
    assert!(!world.has_route("10.9.0.0/16"));
    let paused = world.run("status --json").exits(0).stdout;
    assert!(paused.contains("\"paused\":true"), "{paused}");
    world.run("resume").exits(0);
    events.until_healed(KEY);
    assert!(world.has_route("10.9.0.0/16"));
}

#[test]
fn a_pass_that_is_asked_for_runs_also_while_paused_and_is_reported() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    world.run("pause").exits(0);
    world.ip("route del 10.9.0.0/16");
    world.run("resync").says(
        0,
        str![[r#"
rtnl in host
  applied:
    + route 10.9.0.0/16  via 10.0.0.9
Applied: 1 created, 0 updated, 0 replaced, 0 deleted.

"#]],
    );
    let report = world.run("resync --json").json(0);
    assert_eq!((&report["converged"], &report["summary"]["create"]), (&true.into(), &0.into()));
}

#[test]
fn a_foreign_route_is_a_conflict_until_it_is_adopted() {
    let world = cabled();
    world.ip("address add 10.0.0.1/24 dev va");
    world.ip("route add 10.9.0.0/16 via 10.0.0.77 proto bird");
    let _daemon = world.keep(DESIRED);
    assert_eq!(world.stands()["converged"], false);
    let key = world.key(KEY, 2);
    assert_eq!((&key["state"], &key["owner"]), (&"conflict".into(), &"protocol bird".into()));
    assert!(!world.has_route("10.9.0.0/16"));
    world.about("adopt", KEY).exits(0);
    assert!(world.has_route("10.9.0.0/16"));
    world.converges();
    let ran = world.about("adopt", "route 10.99.0.0/16").exits(1);
    assert!(ran.stderr.contains("`route 10.99.0.0/16` is not declared"), "{}", ran.stderr);
}

#[test]
fn a_changed_document_is_taken_and_a_broken_one_refused() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    world.write("host.toml", format!("{DESIRED}{ANOTHER}"));
    let report = world.run("reload --json").json(0);
    assert_eq!(report["converged"], true);
    assert!(world.has_route("10.10.0.0/16"));
    world.write("host.toml", "[routes\n");
    let ran = world.run("reload").exits(1);
    assert!(ran.stderr.contains("host.toml:1"), "{}", ran.stderr);
    assert!(ran.stderr.contains("nothing was changed"), "{}", ran.stderr);
    world.run("status --wait").exits(2);
    assert!(world.has_route("10.10.0.0/16"), "the last good one stands");
}

#[test]
fn an_apply_beside_the_daemon_hands_it_the_document() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    world.write("lab/other.toml", format!("{DESIRED}{ANOTHER}"));
    world.run("apply --yes lab/other.toml").says(
        0,
        str![[r#"
rtnl in host
  applied:
    + route 10.10.0.0/16  via 10.0.0.9
Applied: 1 created, 0 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert!(world.has_route("10.10.0.0/16"));
    world.run("plan lab/other.toml").says(0, "No changes.\n");
    assert_eq!(world.run("status --json").json(0)["handed"], true);
    world.run("reload").exits(0);
    assert!(!world.has_route("10.10.0.0/16"), "the daemon's own document is back");
    assert_eq!(world.run("status --json").json(0)["handed"], false);
}

#[test]
fn an_apply_that_is_not_meant_for_the_daemon_is_refused() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    world.write("lab/other.toml", format!("{DESIRED}{ANOTHER}"));
    let rows = [
        ("--protocol 77", "has used protocol 76: with 77 it would leave"),
        ("--strict", "it has its own ways"),
        ("--revert-on-release", "it has its own ways"),
    ];
    for (flag, expected) in rows {
        let ran = world.run(&format!("apply --yes lab/other.toml {flag}")).exits(1);
        assert!(ran.stderr.contains(expected), "{flag}: {}", ran.stderr);
    }
    let no_terminal = world.run("apply lab/other.toml").exits(1);
    assert!(no_terminal.stderr.contains("there is no terminal to ask on"));
    assert!(!world.has_route("10.10.0.0/16"));
}

#[test]
fn what_a_guard_holds_back_is_let_through_by_word_of_mouth() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    world.write("host.toml", "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    world.run("reload").exits(1);
    assert!(world.has_route("10.9.0.0/16"));
    world.run("resync --allow-mass-delete").exits(0);
    assert!(!world.has_route("10.9.0.0/16"));
    world.converges();
}

#[test]
fn a_key_is_released_only_when_nobody_declares_it_and_what_remains_is_said() {
    let world = cabled();
    world.apply(&format!("{DESIRED}\"net.ipv4.tcp_retries1\" = 5\n"));
    let _daemon = world.keep(DESIRED.split_once("[links").unwrap().0);
    assert_eq!(world.stands()["converged"], false);
    let ran = world.about("release", "sysctl net.ipv4.tcp_retries1").exits(0);
    assert_eq!(ran.stdout, "released sysctl net.ipv4.tcp_retries1 (knobs in host)\n");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "5");
    let ran = world.about("release", KEY).exits(0);
    assert!(ran.stdout.contains("  note: the target still holds our mark"), "{}", ran.stdout);
    let ran = world.about("release", "route 10.99.0.0/16").exits(0);
    assert_eq!(ran.stdout, "Nothing of ours is on `route 10.99.0.0/16`.\n");
    world.write("host.toml", DESIRED);
    world.run("reload").exits(0);
    let ran = world.about("release", KEY).exits(1);
    assert!(ran.stderr.contains("is declared in host"), "{}", ran.stderr);
    let ran = world.about("forget", "sysctl net.ipv4.ip_forward").exits(0);
    assert_eq!(ran.stdout, "forgotten sysctl net.ipv4.ip_forward (knobs in host)\n");
    let ran = world.about("forget", "what is this").exits(1);
    assert!(ran.stderr.contains("is no key that any source here knows"), "{}", ran.stderr);
}

#[test]
fn a_second_daemon_is_refused_and_one_after_a_crash_is_not() {
    let world = cabled();
    let daemon = world.keep(DESIRED);
    world.converges();
    let ran = world.run("run host.toml").exits(1);
    let holder = format!("is held by a daemon: process {} of user 0", daemon.pid());
    assert!(ran.stderr.contains(&holder), "{}", ran.stderr);
    daemon.kill();
    assert!(world.socket().exists());
    let ran = world.run("status").exits(1);
    assert!(ran.stderr.contains("no daemon listens"), "{}", ran.stderr);
    let _daemon = world.keep(DESIRED);
    world.converges();
}

#[test]
fn only_root_and_the_daemons_own_user_may_speak() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(world.socket()), 0o600);
    let program = world.path().join("homeostat");
    copy_program(&program);
    let open = |path: PathBuf, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    open(world.path().to_owned(), 0o755).unwrap();
    open(world.state(), 0o755).unwrap();
    let as_nobody = |args: &str| {
        let mut command = world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        command.arg(&program).args(args.split_whitespace());
        command.arg("--state-dir").arg(world.state());
        world.finish(command).exits(1).stderr
    };
    let said = as_nobody("status");
    assert!(said.contains("this user may not speak with the daemon"), "{said}");
    // The mode of the socket alone permits nothing: the daemon checks the peer.
    open(world.socket(), 0o666).unwrap();
    for command in ["status", "events", "pause", "reload", "resync --allow-mass-delete"] {
        let said = as_nobody(command);
        assert!(said.contains("user 65534 may not speak with the daemon of user 0"), "{said}");
    }
    world.converges();
}

#[test]
fn junk_on_the_socket_is_refused_and_harms_no_other_client() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    let mut dice = 0x9e37_79b9_u32;
    let mut roll = move || {
        dice ^= dice << 13;
        dice ^= dice >> 17;
        dice ^= dice << 5;
        dice
    };
    let starts: [&[u8]; 5] =
        [b"", b"{\"verb\":\"status\"", b"{\"verb\":\"key\",\"key\":\"", b"[[[[[[[[", b"\"\\u0000"];
    // Some never end their line, and some never read.
    let mut lingering = Vec::new();
    for round in 0..200_usize {
        let mut stream = UnixStream::connect(world.socket()).unwrap();
        let mut junk = starts[round % starts.len()].to_vec();
        junk.extend((0..roll() % 300).map(|_| u8::try_from(roll() % 256).unwrap()));
        let _ = stream.write_all(&junk);
        if round % 20 == 0 {
            lingering.push(stream);
            continue;
        }
        let _ = stream.write_all(b"\n");
        let mut answer = String::new();
        if BufReader::new(stream).read_line(&mut answer).is_ok() && !answer.is_empty() {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["format_version"], "1.0", "{answer}");
        }
    }
    let mut long = UnixStream::connect(world.socket()).unwrap();
    let _ = long.write_all(&vec![b'x'; 1 << 22]);
    world.converges();
    let mut events = world.follow();
    world.ip("route del 10.9.0.0/16");
    events.until_healed(KEY);
}

#[test]
fn one_connection_may_ask_several_times() {
    let world = cabled();
    let _daemon = world.keep(DESIRED);
    world.converges();
    let stream = UnixStream::connect(world.socket()).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    for request in ["{\"verb\":\"status\"}\n", "what?\n", "{\"verb\":\"status\",\"wait_ms\":1}\n"] {
        (&stream).write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        lines.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let is_request = request.starts_with('{');
        assert_eq!(answer["converged"] == true, is_request, "{request}: {answer}");
        assert_eq!(answer["error"].is_string(), !is_request, "{request}: {answer}");
    }
}

/// A client that stays until the test ends.
struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_group_may_read_how_all_stands_and_change_nothing() {
    let world = cabled();
    let _daemon = world.keep_with(DESIRED, "--status-group 65533");
    world.converges();
    let file = fs::metadata(world.socket()).unwrap();
    assert_eq!((file.permissions().mode() & 0o777, file.gid()), (0o660, 65_533));
    let program = world.path().join("homeostat");
    copy_program(&program);
    for directory in [world.path().to_owned(), world.state()] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let as_member = |group: &str, args: &str| {
        let mut command = world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", group, "--no-new-privs"]);
        command.arg(&program).args(args.split_whitespace());
        command.arg("--state-dir").arg(world.state());
        world.finish(command)
    };
    let member = "--groups=65533";
    assert!(as_member(member, "status").exits(0).stdout.contains("converged"));
    as_member(member, "events").exits(0);
    // More than there is room for follow the events and never leave: root finds room all the same.
    let followers: Vec<Follower> = (0..40)
        .map(|_| {
            let mut command = world.command("setpriv");
            command.args(["--reuid=65534", "--regid=65534", member, "--no-new-privs"]);
            command.arg(&program).args(["events", "-f", "--state-dir"]).arg(world.state());
            Follower(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        })
        .collect();
    until("the last seat", || {
        as_member(member, "status").stderr.contains("too many others are connected")
    });
    for command in ["status", "pause", "resume"] {
        world.run(command).exits(0);
    }
    drop(followers);
    until("a seat", || as_member(member, "status").code() == Some(0));
    for command in ["pause", "reload", "resync", "forget route"] {
        let said = as_member(member, command).exits(1).stderr;
        assert!(said.contains("user 65534 may only read how things stand"), "{said}");
    }
    let said = as_member("--clear-groups", "status").exits(1).stderr;
    assert!(said.contains("may not speak with the daemon"), "{said}");
    world.run("run host.toml --status-group nosuch").fails(str![[r#"
error: there is no group `nosuch`
help: `--status-group` takes a name from /etc/group, or a number

"#]]);
}

#[test]
fn status_answers_for_every_key_that_a_plan_prints() {
    let world = World::new();
    let document = r#"
nexthops = [{ id = 7, via = "10.0.0.9", dev = "o0" }, { id = 8, group = [7] }]
rules = [{ priority = 100, from = "10.1.0.0/16", iif = "o0", fwmark = "0x1/0xff", table = 7 }]
neighbours = [
    { to = "10.0.0.8", dev = "o0", mac = "02:00:00:00:00:08" },
    { to = "10.0.0.7", dev = "o0", proxy = true },
]
routes = [
    { to = "default", via = "10.0.0.9", metric = 5 },
    { to = "10.2.0.0/16", type = "local", dev = "o0", table = "local" },
    { to = "fd00::/16", nexthops = [{ via = "fd01::2" }, { via = "fd01::3" }], table = 7 },
]
[links.o0]
kind = "veth"
peer = "p0"
up = true
addresses = ["10.0.0.1/24", { ip = "10.3.0.1/32", peer = "10.3.0.2" }, "fd01::1/64"]
sysctl = { "ipv4/rp_filter" = 2 }
[links.p0]
up = true
mtu = 1400
alias = "other"
[sysctl]
"net.ipv4.tcp_retries1" = 5
[nftables]
ruleset = "table inet mine {\n}\n"
"#;
    world.write("host.toml", document);
    let plan = world.run("plan --json host.toml").json(0);
    let keys: Vec<String> = plan["changes"].as_array().unwrap().iter().map(key_of).collect();
    assert!(keys.len() > 15, "{keys:#?}");
    let daemon = world.keep_with(document, "");
    world.run("status --wait").exits(0);
    for key in &keys {
        let mut status = world.homeostat("status --json");
        let output = status.arg(key).output().unwrap();
        assert!(output.status.success(), "{key}: {output:?}");
    }
    for words in ["default metric 5", "route default metric 5"] {
        let output = world.homeostat("status").arg(words).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("route 0.0.0.0/0 metric 5"), "{said}");
    }
    drop(daemon);
}

fn key_of(change: &serde_json::Value) -> String {
    change["key"].as_str().unwrap().to_owned()
}

#[test]
fn status_of_a_key_says_where_it_is_declared_what_resolves_it_and_what_happened_to_it() {
    let world = World::with(
        "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n\n[[routes]]\nto = \"10.1.0.0/16\"\ntype = \"blackhole\"\n",
    );
    let _daemon = world.keep_at("host.toml");
    world.converges();
    world.ip("route del blackhole 10.1.0.0/16");
    let key = || world.run("status --json").json(0)["loops"].clone();
    until("the heal", || key().to_string().contains("\"drift_by_hint\":1"));
    let status = |code: i32| {
        let mut command = world.homeostat("status --json");
        command.arg("route 10.1.0.0/16");
        world.finish(command).json(code)["keys"][0].clone()
    };
    let healed = status(0);
    assert_eq!(healed["declared_at"], "host.toml:4:1", "{healed:#}");
    assert_eq!(healed["command"], Value::Null);
    let events = healed["events"].as_array().unwrap();
    assert_eq!(
        (&events[0]["event"], &events[0]["cause"]),
        (&"step-applied".into(), &"drift".into())
    );
    assert_eq!(events[1]["cause"], "config", "the newest is first");
    world.ip("route replace unreachable 10.1.0.0/16 proto static");
    until("the conflict", || world.run("status").code() == Some(2));
    let resolves = "homeostat --state-dir @DIR/state adopt 'route 10.1.0.0/16'";
    assert_eq!(status(2)["command"], resolves);
    let mut command = world.homeostat("status");
    command.arg("sysctl net.ipv4.tcp_retries1");
    let text = world.finish(command).exits(0).stdout;
    assert!(text.contains("\n  declared at: host.toml:2:1\n"), "{text}");
    assert!(text.contains("\n  lately: ") && text.contains("update after config"), "{text}");
}
