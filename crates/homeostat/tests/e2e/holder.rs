//! Trials where no daemon runs: a holder of their own brings back what was before, whatever becomes of the client and of
//! the holder.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Stdio};

use homeostat_netns::{Netns, Place};
use rustix::process::{Pid, Signal, kill_process};

use crate::dump::Dump;
use crate::keeping::until;
use crate::program::Holder;
use crate::world::World;

/// What is in force before the trial.
const BEFORE: &str = r#"
routes = [{ to = "10.1.0.0/16", via = "192.0.2.9" }, { to = "10.2.0.0/16", type = "blackhole" }]
rules = [{ priority = 900, from = "192.0.2.0/24", table = 7 }]
[sysctl]
"net.ipv4.tcp_retries1" = 5
[links.lan0]
up = true
addresses = ["192.0.2.1/24"]
[links.br0]
kind = "bridge"
up = true
[nftables]
ruleset = "table inet kept { chain in { type filter hook input priority 0; tcp dport 22 accept; }; }"
"#;

/// It changes something of every kind, and adds what the former one does not speak of.
const TRIED: &str = r#"
routes = [{ to = "10.1.0.0/16", via = "192.0.2.8" }, { to = "10.3.0.0/16", type = "blackhole" }]
rules = [{ priority = 901, from = "192.0.2.0/24", table = 8 }]
neighbours = [{ to = "192.0.2.77", dev = "lan0", mac = "02:00:00:00:00:77" }]
[sysctl]
"net.ipv4.tcp_retries1" = 6
"net.ipv4.tcp_retries2" = 12
[links.lan0]
up = true
addresses = ["192.0.2.2/24"]
[links.br0]
kind = "bridge"
up = true
[links.br1]
kind = "bridge"
up = true
addresses = ["198.51.100.1/24"]
[nftables]
ruleset = "table inet kept { chain in { type filter hook input priority 0; tcp dport 2222 accept; }; }; table ip tried {}"
"#;

/// A world with a network of its own, and with objects of others.
pub(crate) struct Site {
    pub(crate) world: World,
}

impl Site {
    fn new() -> Self {
        let world = World::new();
        world.add_pair("lan0", "peer0");
        for args in [
            "link set peer0 up",
            "link set lo up",
            "address add 203.0.113.5/24 dev peer0",
            "route add 10.99.0.0/16 via 203.0.113.9 proto dhcp metric 512",
            "route add blackhole 10.98.0.0/16 proto bird",
        ] {
            world.ip(args);
        }
        world.nft("add table ip foreign");
        Site { world }
    }

    /// One in which a document was applied, and everything that is there after it.
    pub(crate) fn applied() -> (Self, Dump) {
        let site = Self::new();
        site.world.apply(BEFORE);
        site.is_quiet();
        let before = site.world.dump();
        site.world.write("new.toml", TRIED);
        (site, before)
    }

    /// Every address is probed, and every link has its state.
    fn is_quiet(&self) {
        until("quiet addresses", || !self.world.ip("address show").contains("tentative"));
    }

    /// Begins a trial, and returns its client.
    pub(crate) fn try_for(&self, within: &str) -> Child {
        let mut client =
            self.world.homeostat(&format!("apply --yes --confirm-within {within} new.toml"));
        let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the trial", || self.is_tried());
        client
    }

    pub(crate) fn is_tried(&self) -> bool {
        self.world.ip("link show").contains("br1:")
            && self.holder().is_some()
            && self.world.run("status --json").stdout.contains("\"returns_to\"")
    }

    pub(crate) fn holder(&self) -> Option<Pid> {
        self.processes(true).pop()
    }

    fn watcher(&self) -> Option<Pid> {
        self.processes(false).pop()
    }

    pub(crate) fn has_processes(&self) -> bool {
        self.holder().is_some() || self.watcher().is_some()
    }

    pub(crate) fn has_client(&self) -> bool {
        !self.commands(|is| is(b"apply")).is_empty()
    }

    /// Kills the one that holds the trial, if it lives.
    pub(crate) fn kill_holder(&self) {
        for process in self.processes(true) {
            let _ = kill_process(process, Signal::KILL);
        }
    }

    /// Kills the one that watches the holder first.
    pub(crate) fn kill_both(&self) {
        for process in self.processes(false).into_iter().chain(self.processes(true)) {
            let _ = kill_process(process, Signal::KILL);
        }
    }

    /// The processes that hold a trial here, or watch one that does.
    fn processes(&self, watched: bool) -> Vec<Pid> {
        self.commands(|is| is(b"hold-trial") && is(b"--watched") == watched)
    }

    /// The processes of this state directory whose command lines have certain words.
    fn commands(&self, so: impl Fn(&dyn Fn(&[u8]) -> bool) -> bool) -> Vec<Pid> {
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let words: Vec<_> = command.split(|byte| *byte == 0).collect();
            let is = |word: &[u8]| words.contains(&word);
            let state = self.world.state();
            if is(path(&state)) && so(&is) {
                let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
                found.extend(pid.and_then(Pid::from_raw));
            }
        }
        found
    }
}

fn end(process: Option<Pid>) {
    kill_process(process.unwrap(), Signal::KILL).unwrap();
}

fn path(path: &Path) -> &[u8] {
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes()
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill_both();
    }
}

/// How a client ended, and what it printed.
fn end_of(client: Child) -> (Option<i32>, String) {
    let output = client.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_trial_that_nobody_confirms_is_rolled_back_without_a_daemon() {
    let (site, before) = Site::applied();
    let ran = site.world.run("apply --yes --confirm-within 2s new.toml").exits(1);
    let end = "Rolled back to the confirmed document 1: nobody confirmed it in time.";
    assert_eq!(ran.last_line(), end, "{ran:#?}");
    // The holder is gone, so nothing is handed to it.
    site.world.run("apply --yes host.toml").says(0, "No changes.\n");
    site.world.is_again(&before);
    site.world.run("verify host.toml").exits(0);
    until("the end of the holder", || site.holder().is_none() && site.watcher().is_none());
    let listed = site.world.run("history").exits(0).stdout;
    assert!(listed.contains("Trials that were rolled back:\n   2  "), "{listed}");
}

#[test]
fn a_trial_is_confirmed_without_a_daemon() {
    let (site, _) = Site::applied();
    let client = site.try_for("1h");
    let refused = site.world.run("confirm").exits(1).stderr;
    assert!(refused.contains("this is the session that began the trial"), "{refused}");
    let refused = site.world.run("apply --yes --confirm-within 1m host.toml").exits(1).stderr;
    assert!(refused.contains("trial 2 of uid "), "{refused}");
    site.is_quiet();
    let tried = site.world.dump();
    site.world.in_another_session("confirm").exits(0);
    let (code, said) = end_of(client);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("it is document 2 of the history"), "{said}");
    until("the end of the holder", || site.holder().is_none() && site.watcher().is_none());
    site.world.is_again(&tried);
    site.world.run("verify new.toml").exits(0);
    let none = site.world.in_another_session("confirm").exits(1).stderr;
    assert!(none.contains("no daemon listens"), "{none}");
}

#[test]
fn the_end_of_the_client_changes_nothing() {
    for signal in [Signal::HUP, Signal::INT, Signal::KILL] {
        let (site, before) = Site::applied();
        let mut client = site.try_for("3s");
        kill_process(Pid::from_child(&client), signal).unwrap();
        client.wait().unwrap();
        site.world.is_again(&before);
        until("the end of the holder", || site.holder().is_none() && site.watcher().is_none());
        assert_eq!(site.world.rolled_back()[0]["why"], "nobody confirmed it in time", "{signal:?}");
    }
}

/// A namespace that only a process names: the process may end, as one of the operator's session does.
#[test]
fn the_end_of_the_process_whose_namespace_is_tried_changes_nothing() {
    for kill_the_holder in [false, true] {
        let site = Site { world: World::new() };
        let process = Holder::start("--net", "ip link set lo up");
        let pid = process.pid();
        // Another process lives on there.
        let inside = Netns::open(&Place::OfPid(pid)).unwrap();
        let sees = |text: &str| {
            let mut ip = crate::program::command("ip");
            let listed = inside.run(move || ip.args(["address", "show", "dev", "lo"]).output());
            String::from_utf8_lossy(&listed.unwrap().unwrap().stdout).contains(text)
        };
        let document = |address: &str| format!("[links.lo]\naddresses = [\"{address}\"]\n");
        site.world.write("host.toml", document("10.7.0.1/32"));
        site.world.run(&format!("apply --yes --netns {pid} host.toml")).exits(0);
        site.world.write("new.toml", document("10.7.0.2/32"));
        let within = if kill_the_holder { "1h" } else { "4s" };
        let trial = format!("apply --yes --confirm-within {within} --netns {pid} new.toml");
        let mut client = site.world.homeostat(&trial);
        let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        until("the trial", || site.holder().is_some() && sees("10.7.0.2/32"));
        drop(process);
        assert!(sees("10.7.0.2/32"), "it is still tried");
        if kill_the_holder {
            site.kill_holder();
        }
        let (code, said) = end_of(client);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("Rolled back to the confirmed document 1: "), "{said}");
        assert!(sees("10.7.0.1/32") && !sees("10.7.0.2/32"));
        until("the end of the holder", || !site.has_processes());
        assert!(!site.world.state().join("default.netns").exists(), "nothing is left of it");
    }
}

#[test]
fn a_holder_that_is_killed_is_made_good_by_the_one_who_watches_it() {
    let (site, before) = Site::applied();
    let client = site.try_for("1h");
    end(site.holder());
    let (code, said) = end_of(client);
    assert_eq!(code, Some(1));
    let end = "Rolled back to the confirmed document 1: the process that held it ended.";
    assert_eq!(said.lines().last(), Some(end));
    site.world.is_again(&before);
}

#[test]
fn when_both_are_killed_the_next_apply_rolls_back_first() {
    let (site, before) = Site::applied();
    let mut client = site.try_for("1h");
    client.kill().unwrap();
    client.wait().unwrap();
    end(site.watcher());
    end(site.holder());
    until("the end of the holder", || site.holder().is_none());
    let ran = site.world.run("apply --yes host.toml").exits(0);
    assert!(ran.stderr.contains("Trial 2 was left open. Rolled back to"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "No changes.\n");
    site.world.is_again(&before);
}

#[test]
fn when_both_are_killed_an_operator_may_roll_back() {
    let (site, before) = Site::applied();
    let mut client = site.try_for("1h");
    client.kill().unwrap();
    client.wait().unwrap();
    end(site.watcher());
    end(site.holder());
    until("the end of the holder", || site.holder().is_none());
    let refused = site.world.run("confirm --same-session").exits(1).stderr;
    assert!(refused.contains("the process that held trial 2 has ended"), "{refused}");
    let ran = site.world.run("rollback").exits(0);
    assert!(ran.stderr.contains("Trial 2 was left open. Rolled back to"), "{}", ran.stderr);
    site.world.is_again(&before);
    let none = site.world.run("rollback").exits(1).stderr;
    assert!(none.contains("there is no open trial"), "{none}");
}

/// The kernel closes the sockets of a killed process one by one, so that it may be reached for a moment and never answers.
#[test]
fn a_holder_that_is_reached_while_it_dies_has_ended() {
    for (command, expected) in [
        ("confirm --same-session", "the process that held trial 2 has ended"),
        ("rollback", "Trial 2 was left open. Rolled back to"),
    ] {
        let (site, _) = Site::applied();
        let mut client = site.try_for("1h");
        client.kill().unwrap();
        client.wait().unwrap();
        end(site.watcher());
        end(site.holder());
        until("the end of the holder", || site.holder().is_none());
        let socket = site.world.state().join("default.sock");
        let _ = fs::remove_file(&socket);
        let dying = UnixListener::bind(&socket).unwrap();
        let dying = std::thread::spawn(move || {
            // The first is only a look whether there is one.
            for _ in 0..2 {
                drop(dying.accept().unwrap());
            }
            fs::remove_file(&socket).unwrap();
        });
        let ran = site.world.run(command);
        assert!(ran.stderr.contains(expected), "{ran:?}");
        dying.join().unwrap();
    }
}

#[test]
fn an_older_document_is_tried_without_a_daemon() {
    let (site, _) = Site::applied();
    site.world.run("apply --yes new.toml").exits(0);
    site.is_quiet();
    let newer = site.world.dump();
    let ran = site.world.run("rollback --to 1 --confirm-within 2s").exits(1);
    assert!(ran.last_line().starts_with("Rolled back to the confirmed document 2"), "{ran:?}");
    site.world.is_again(&newer);
    let mut client = site.world.homeostat("rollback --to 1");
    let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("the trial", || {
        let status = site.world.run("status --json").stdout;
        status.contains("\"returns_to\"") && status.contains("\"converged\":true")
    });
    site.world.in_another_session("confirm").exits(0);
    let (code, said) = end_of(client);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("it is document 3 of the history"), "{said}");
    site.world.run("verify host.toml").exits(0);
    until("the end of the holder", || site.holder().is_none() && site.watcher().is_none());
}

#[test]
fn a_holder_that_is_stopped_rolls_back_before_it_ends() {
    let (site, before) = Site::applied();
    let client = site.try_for("1h");
    kill_process(site.holder().unwrap(), Signal::TERM).unwrap();
    let (code, said) = end_of(client);
    assert_eq!(code, Some(1), "{said}");
    site.world.is_again(&before);
    assert_eq!(site.world.rolled_back()[0]["why"], "the daemon that held it was stopped");
}

#[test]
fn without_a_document_before_it_everything_that_a_trial_made_goes() {
    let site = Site::new();
    site.is_quiet();
    let before = site.world.dump();
    site.world.write("new.toml", TRIED.replace("[links.lan0]\nup = true\n", "[links.lan0]\n"));
    let ran = site.world.run("apply --yes --confirm-within 2s new.toml").exits(1);
    let last = "Rolled back to nothing declared: nobody confirmed it in time.";
    assert_eq!(ran.last_line(), last, "{ran:?}");
    site.world.is_again(&before);
}

#[test]
fn without_a_record_of_what_was_applied_nothing_is_tried() {
    let (site, before) = Site::applied();
    fs::remove_dir_all(site.world.state().join("confirmed")).unwrap();
    let refused = site.world.run("apply --yes --confirm-within 1m new.toml").exits(1).stderr;
    assert!(refused.contains("no confirmed document says how it was"), "{refused}");
    site.world.is_again(&before);
}

#[test]
fn a_disk_without_room_for_the_record_keeps_a_trial_from_beginning() {
    let (site, before) = Site::applied();
    let confirmed = site.world.state().join("confirmed/default");
    // Nobody, not even root, makes a directory where a file is.
    fs::write(confirmed.join(".new"), "").unwrap();
    let refused = site.world.run("apply --yes --confirm-within 1m new.toml").exits(1).stderr;
    assert!(refused.contains("cannot record the trial"), "{refused}");
    site.world.is_again(&before);
}

/// A firewall that drops new connections lets the old one pass: that it still works proves nothing.
#[test]
fn a_firewall_that_drops_new_connections_cannot_be_confirmed_over_the_old_one() {
    let (site, before) = Site::applied();
    let drops = "table inet kept { chain in { type filter hook input priority 0; policy drop; \
                 ct state established accept; }; }";
    let text = BEFORE.lines().filter(|line| !line.starts_with("ruleset")).collect::<Vec<_>>();
    site.world.write("new.toml", format!("{}\nruleset = \"{drops}\"\n", text.join("\n")));
    let mut client = site.world.homeostat("apply --yes --confirm-within 3s new.toml");
    let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("the firewall", || site.world.nft("list ruleset").contains("policy drop"));
    let refused = site.world.run("confirm").exits(1).stderr;
    assert!(refused.contains("open a new session to the machine"), "{refused}");
    assert_eq!(end_of(client).0, Some(1));
    site.world.is_again(&before);
}

#[test]
fn a_namespace_that_a_trial_made_goes_with_it() {
    let world = World::new().with_own_names();
    let site = Site { world };
    site.world
        .apply("namespaces = {}\nroutes = [{ to = \"10.1.0.0/16\", type = \"blackhole\" }]\n");
    let before = site.world.dump();
    site.world.write(
        "new.toml",
        "routes = []\n[namespaces.blue]\ncreate = true\nsysctl = { \"net.ipv4.tcp_retries1\" = 5 }\n",
    );
    let mut client = site.world.homeostat("apply --yes --confirm-within 3s new.toml");
    let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let blue = site.world.outside("/run/netns/blue");
    until("the namespace", || Path::new(&blue).exists());
    let (code, said) = end_of(client);
    assert_eq!(code, Some(1));
    let end = "Rolled back to the confirmed document 1: nobody confirmed it in time.";
    assert_eq!(said.lines().last(), Some(end), "{said}");
    assert!(!Path::new(&blue).exists());
    site.world.is_again(&before);
}

/// With all that others have put into it.
#[test]
fn a_namespace_that_leaves_is_left_alone_until_the_confirm() {
    let site = Site { world: World::new().with_own_names() };
    site.world
        .apply("[namespaces.blue]\ncreate = true\nsysctl = { \"net.ipv4.tcp_retries1\" = 5 }\n");
    let inside = |args: &str| site.world.ip(&format!("-n blue {args}"));
    inside("link add theirs type veth peer theirs1");
    inside("link set theirs up");
    inside("address add 10.5.0.1/24 dev theirs");
    let listed = || (inside("-d address show"), inside("route show table all"));
    let before = listed();
    site.world.write("new.toml", "namespaces = {}\n");
    // What others have in it keeps it from going, in a trial as without one.
    let held = site.world.run("apply --yes --confirm-within 1s new.toml").exits(1).stdout;
    assert!(held.contains("delete namespace blue  it would take `link theirs1` along"), "{held}");
    assert_eq!(listed(), before);
    for end in ["rollback", "confirm --same-session"] {
        let options = "--allow-cascades --yes --confirm-within 1h";
        let mut client = site.world.homeostat(&format!("apply {options} new.toml"));
        let client = client.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        until("the trial", || {
            let status = site.world.run("status --json").stdout;
            status.contains("\"returns_to\"") && status.contains("\"converged\":true")
        });
        assert_eq!(listed(), before);
        site.world.run(end).exits(0);
        let (code, said) = end_of(client);
        assert_eq!(code, Some(i32::from(end == "rollback")), "{said}");
        until("the end of the holder", || site.holder().is_none() && site.watcher().is_none());
        let is_there = Path::new(&site.world.outside("/run/netns/blue")).exists();
        assert_eq!(is_there, end == "rollback");
        if is_there {
            assert_eq!(listed(), before);
            site.world.run("verify host.toml").exits(0);
        }
    }
}

/// Calls that make something durable, or that write to the kernel.
const CALLS: [&str; 4] = ["rename", "fsync", "fdatasync", "sendmsg"];

/// Client, holder and watcher are killed at the same call of each, wherever that is: the next apply of the former
/// document finds everything as it was, or brings it back.
#[test]
fn a_kill_at_any_durable_write_ends_in_the_state_before() {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let mut kills = 0;
    for call in CALLS {
        // The first and the last calls of a trial have few others between them.
        let moments = (1..60).filter(|nth| is_soak || [1, 2, 4, 8, 16].contains(nth));
        for nth in moments {
            let (site, before) = Site::applied();
            let log = site.world.path().join("strace");
            let mut command = site.world.command("strace");
            command.args(["-f", "-qq", "-e", &format!("trace={call}"), "-o"]).arg(&log);
            command.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
            let apply = site.world.homeostat("apply --yes --confirm-within 1s new.toml");
            command.arg(apply.get_program()).args(apply.get_args());
            let _ = site.world.finish(command);
            until("the end of the holder", || site.holder().is_none() && site.watcher().is_none());
            site.world.run("apply --yes host.toml").exits(0);
            site.world.is_again(&before);
            if !fs::read_to_string(&log).unwrap().contains("killed by SIGKILL") {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 5, "{kills}");
}
