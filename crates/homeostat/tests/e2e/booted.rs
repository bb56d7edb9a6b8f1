//! Trials on a machine that systemd has booted: with logins, transient units, reboots and power losses.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use homeostat_netns::Netns;
use homeostat_testkit::booted::{BootedSystemd, debian_root};
use serde_json::Value;

use crate::dump::{Dump, comes_again, dump};
use crate::keeping::until;
use crate::program::{command, copy_program, output};
use crate::world::Ran;

const BEFORE: &str = r#"
routes = [{ to = "10.1.0.0/16", via = "192.0.2.9" }, { to = "10.2.0.0/16", type = "blackhole" }]
[sysctl]
"net.ipv4.tcp_retries1" = 5
[links.br0]
kind = "bridge"
up = true
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
[nftables]
ruleset = "table inet kept { chain in { type filter hook input priority 0; tcp dport 22 accept; }; }"
"#;

const TRIED: &str = r#"
routes = [{ to = "10.1.0.0/16", via = "192.0.2.8" }, { to = "10.3.0.0/16", type = "blackhole" }]
[sysctl]
"net.ipv4.tcp_retries1" = 6
"net.ipv4.tcp_retries2" = 12
[links.br0]
kind = "bridge"
up = true
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "198.51.100.1/24"]
[nftables]
ruleset = "table inet kept { chain in { type filter hook input priority 0; tcp dport 2222 accept; }; }; table ip tried {}"
"#;

/// A login as by `ssh`: a session of logind and of the kernel's audit.
pub(crate) const LOGIN: &str =
    "systemd-run --quiet --pipe --wait --collect --property=PAMName=login --property=User=root";

/// The end of a session ends its processes, those of root, too.
const KILL_PROCESSES: &str = "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n";

/// A machine with the program on its disk. The thread of the test is in its network namespace.
pub(crate) struct Host {
    pub(crate) machine: BootedSystemd,
}

impl Host {
    /// One without the program.
    pub(crate) fn bare() -> Self {
        let machine = debian_root().and_then(|root| BootedSystemd::boot(&root));
        let host = Host { machine: machine.unwrap_or_else(|error| panic!("{error}")) };
        host.enter();
        host
    }

    pub(crate) fn new() -> Self {
        let host = Self::bare();
        copy_program(&host.machine.path().join("usr/bin/homeostat"));
        host.write("root/before.toml", BEFORE);
        host.write("root/new.toml", TRIED);
        host
    }

    fn enter(&self) {
        Netns::at(self.machine.path().join("proc/1/ns/net")).unwrap().enter().unwrap();
    }

    pub(crate) fn reboot(&mut self) {
        self.machine.reboot().unwrap_or_else(|error| panic!("{error}"));
        self.enter();
    }

    pub(crate) fn lose_power(&mut self) {
        self.machine.lose_power().unwrap_or_else(|error| panic!("{error}"));
        self.enter();
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.machine.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn command(&self, line: &str) -> Command {
        self.machine.command(&line.split_whitespace().collect::<Vec<_>>())
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> Ran {
        // A program that does not end fails the test instead of stopping all of them.
        let line = format!("timeout 600 {line}");
        Ran::of(&self.command(&line).stdin(Stdio::null()).output().unwrap())
    }

    /// Begins something that goes on. Its input is a pipe.
    pub(crate) fn begin(&self, line: &str) -> Child {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// A host on which a document was applied, with what is there after it.
    fn applied() -> (Self, Dump) {
        let host = Self::new();
        host.run("homeostat apply --yes /root/before.toml").exits(0);
        is_quiet();
        let before = listed();
        (host, before)
    }

    /// One whose daemon is a unit, as it is shipped.
    fn kept() -> (Self, Dump) {
        let host = Self::new();
        host.start_daemon(BEFORE);
        is_quiet();
        let before = listed();
        (host, before)
    }

    /// Starts the daemon as a unit with this document, and waits until the document is confirmed.
    pub(crate) fn start_daemon(&self, document: &str) {
        let host = self;
        host.write("etc/homeostat/host.toml", document);
        host.write(
            "etc/systemd/system/homeostat.service",
            include_str!("../../../../packaging/systemd/homeostat.service"),
        );
        host.run("systemctl daemon-reload").exits(0);
        host.run("systemctl enable --now homeostat").exits(0);
        // A type that this systemd does not know would be `simple`.
        let kind = host.run("systemctl show --property=Type --value homeostat").exits(0);
        assert_eq!(kind.stdout.trim(), "notify");
        until("the first document", || host.history()["history"][0]["number"] == 1);
    }

    fn is_tried(&self) -> bool {
        let status = self.run("homeostat status --json").stdout;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["trial"].is_object() && knob() == "6"
    }

    #[track_caller]
    fn history(&self) -> Value {
        self.run("homeostat history --json").json(0)
    }

    #[track_caller]
    fn last_end(&self) -> String {
        let history = self.history();
        let last = history["rolled_back"].as_array().and_then(|ended| ended.last());
        last.map(|last| last["why"].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

/// Every address is probed.
pub(crate) fn is_quiet() {
    until("quiet addresses", || {
        let mut ip = command("ip");
        ip.args(["address", "show"]);
        !output(ip).contains("tentative")
    });
}

/// Everything that is in the network namespace of the host.
pub(crate) fn listed() -> Dump {
    dump(|program| command(program))
}

#[track_caller]
fn is_again(before: &Dump) {
    comes_again(before, listed, "");
}

fn knob() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_retries1").unwrap().trim_end().to_owned()
}

fn ended(client: Child) -> Ran {
    Ran::of(&client.wait_with_output().unwrap())
}

#[test]
fn a_trial_outlives_the_login_session_that_began_it() {
    let (host, before) = Host::applied();
    host.write("etc/systemd/logind.conf.d/kill.conf", KILL_PROCESSES);
    host.run("systemctl restart systemd-logind").exits(0);
    let apply = "homeostat apply --yes --confirm-within 1h /root/new.toml";
    let client = host.begin(&format!("{LOGIN} {apply}"));
    until("the trial", || host.is_tried());
    let sessions = host.run("loginctl list-sessions --no-legend").exits(0).stdout;
    let session = sessions.split_whitespace().next().unwrap();
    host.run(&format!("loginctl terminate-session {session}")).exits(0);
    let ran = ended(client);
    assert!(!ran.stdout.contains("Rolled back"), "{ran:?}");
    assert!(host.is_tried());
    host.run("homeostat confirm --extend 1s").exits(0);
    is_again(&before);
    until("the end of the holder", || {
        host.run("systemctl is-active homeostat-trial-default").stdout == "inactive\n"
    });
    assert_eq!(host.last_end(), "nobody confirmed it in time");
    host.run("homeostat verify /root/before.toml").exits(0);
}

/// `setsid` makes no new login.
#[test]
fn a_trial_is_confirmed_in_another_login_only() {
    let (host, _) = Host::applied();
    let script = "homeostat apply --yes --confirm-within 1h /root/new.toml >/dev/null 2>&1 &\n\
                  read -r _\nsetsid --wait homeostat confirm\n";
    host.write("root/login.sh", script);
    let mut login = host.begin(&format!("{LOGIN} sh /root/login.sh"));
    until("the trial", || host.is_tried());
    login.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let refused = ended(login).exits(1).stderr;
    assert!(refused.contains("this is the session that began the trial"), "{refused}");
    let confirmed = host.run(&format!("{LOGIN} homeostat confirm")).exits(0).stdout;
    assert!(confirmed.contains("it is document 2 of the history"), "{confirmed}");
    host.run("homeostat verify /root/new.toml").exits(0);
}

/// Whatever the arguments hold: systemd reads some of them as quotes, variables and specifiers.
#[test]
fn a_holder_that_is_killed_is_made_good_by_systemd() {
    let host = Host::new();
    let state = "/var/lib/odd %i ${HOME} \\ \"state\"";
    let homeostat = |args: &str| {
        let words: Vec<&str> = ["homeostat"].into_iter().chain(args.split_whitespace()).collect();
        host.machine.command(&[&words[..], &["--state-dir", state]].concat())
    };
    let mut apply = homeostat("apply --yes /root/before.toml");
    Ran::of(&apply.output().unwrap()).exits(0);
    is_quiet();
    let before = listed();
    // The second trial shows that the first one left nothing behind.
    for _ in 0..2 {
        let mut apply = homeostat("apply --yes --confirm-within 1h /root/new.toml");
        apply.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = apply.spawn().unwrap();
        until("the trial", || {
            let status = Ran::of(&homeostat("status --json").output().unwrap());
            status.stdout.contains("\"returns_to\":1") && knob() == "6"
        });
        host.run("systemctl kill --signal=KILL homeostat-trial-default").exits(0);
        let ran = ended(client).exits(1);
        let end = "Rolled back to the confirmed document 1: the process that held it ended.";
        assert_eq!(ran.last_line(), end);
        is_again(&before);
    }
}

#[test]
fn a_holder_that_is_stopped_as_a_unit_rolls_back_before_it_ends() {
    let (host, before) = Host::applied();
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/new.toml");
    until("the trial", || host.is_tried());
    host.run("systemctl stop homeostat-trial-default").exits(0);
    let end = "Rolled back to the confirmed document 1: the daemon that held it was stopped.";
    assert_eq!(ended(client).exits(1).last_line(), end);
    is_again(&before);
}

#[test]
fn a_unit_that_cannot_hold_the_trial_says_why() {
    let (host, before) = Host::applied();
    fs::remove_dir_all(host.machine.path().join("var/lib/homeostat/confirmed")).unwrap();
    let refused = host.run("homeostat apply --yes --confirm-within 1m /root/new.toml").exits(1);
    let why = "error: `default` owns something here, and no confirmed document says how it was\n\
               help: apply the document that is in force once more, without --confirm-within; then try the other one\n";
    assert_eq!(refused.stderr, why);
    is_again(&before);
}

/// Begins a trial with the daemon, and lets the machine's own files have what is tried.
fn try_what_the_files_have(host: &Host) {
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/new.toml");
    until("the trial", || host.is_tried());
    host.write("etc/homeostat/host.toml", TRIED);
    drop(client);
}

/// The confirmed document is in force, and the history says how the trial ended, although the files have what was tried.
#[track_caller]
fn is_confirmed_document(host: &Host, before: &Dump, why: &str) {
    is_again(before);
    assert_eq!(host.last_end(), why);
    let status = host.run("homeostat status").exits(2).stdout;
    assert!(status.contains("this document was tried, and nobody confirmed it"), "{status}");
}

/// A shutdown stops the daemon, and a stop rolls back.
#[test]
fn a_reboot_in_a_trial_boots_the_confirmed_document() {
    let (mut host, _) = Host::kept();
    // What there is after a boot without a trial.
    host.reboot();
    until("the daemon", || host.run("systemctl is-active homeostat").stdout == "active\n");
    is_quiet();
    let before = listed();
    try_what_the_files_have(&host);
    host.reboot();
    is_confirmed_document(&host, &before, "the daemon that held it was stopped");
}

#[test]
fn a_power_loss_in_a_trial_boots_the_confirmed_document() {
    let (mut host, _) = Host::kept();
    host.lose_power();
    until("the daemon", || host.run("systemctl is-active homeostat").stdout == "active\n");
    is_quiet();
    let before = listed();
    try_what_the_files_have(&host);
    host.lose_power();
    is_confirmed_document(&host, &before, "the machine was booted");
    let status = host.run("homeostat status").exits(2).stdout;
    let end = "trial 2: Rolled back to the confirmed document 1: the machine was booted.";
    assert!(status.contains(end), "{status}");
}

/// No daemon closes the record: the next apply does.
#[test]
fn a_power_loss_in_a_trial_without_a_daemon_leaves_nothing_in_the_way() {
    let (mut host, before) = Host::applied();
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/new.toml");
    until("the trial", || host.is_tried());
    host.lose_power();
    drop(client);
    let ran = host.run("homeostat apply --yes /root/before.toml").exits(0);
    let end =
        "Trial 2 was left open. Rolled back to the confirmed document 1: the machine was booted.\n";
    assert_eq!(ran.stderr, end);
    is_again(&before);
    let client = host.begin("homeostat apply --yes --confirm-within 1h /root/new.toml");
    until("the next trial", || host.is_tried());
    host.run("homeostat rollback").exits(0);
    ended(client).exits(1);
    is_again(&before);
    let ends = host.history();
    let ends: Vec<_> =
        ends["rolled_back"].as_array().unwrap().iter().map(|end| &end["why"]).collect();
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert_eq!(ends[0], "the machine was booted");
}
