//! Trials whose client or holder is cut off at a chosen moment, or whose disk is full.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::Daemon;
use crate::guests::{GUEST, Ground, later};
use crate::holder::Site;
use crate::keeping::until;
use crate::program::output;
use crate::terminal::Terminal;
use crate::undone::begin;
use crate::world::World;

/// In the order in which they are written.
const KNOBS: [(&str, &str); 9] = [
    ("tcp_fin_timeout", "61"),
    ("tcp_keepalive_intvl", "76"),
    ("tcp_keepalive_probes", "10"),
    ("tcp_keepalive_time", "7201"),
    ("tcp_orphan_retries", "3"),
    ("tcp_retries1", "4"),
    ("tcp_retries2", "16"),
    ("tcp_syn_retries", "7"),
    ("tcp_synack_retries", "6"),
];

const BEFORE: &str = "[sysctl]\n";

fn tried() -> String {
    let line = |(name, value)| format!("\"net.ipv4.{name}\" = {value}\n");
    format!("[sysctl]\n{}", KNOBS.map(line).concat())
}

impl World {
    /// How many of the values are those of the trial. They are the first ones.
    fn count_written(&self) -> usize {
        let mut written = [false; KNOBS.len()];
        // Backwards: while they are read, the next ones may be written.
        for (is_written, (name, value)) in written.iter_mut().zip(KNOBS).rev() {
            *is_written = self.knob(&format!("net/ipv4/{name}")) == value;
        }
        let count = written.iter().filter(|is_written| **is_written).count();
        assert!(written[..count].iter().all(|is_written| *is_written), "{written:?}");
        count
    }

    /// A daemon that gets this signal when it begins to write the fourth value.
    fn keep_with_signal(&self, signal: &str) -> Daemon {
        self.write("host.toml", BEFORE);
        let daemon = self.homeostat("run host.toml");
        let mut command = self.command("strace");
        command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=write", "-e"]);
        command.arg(format!("inject=write:signal={signal}:when=1"));
        command.arg("-P").arg(format!("/proc/sys/net/ipv4/{}", KNOBS[3].0));
        command.arg(daemon.get_program()).args(daemon.get_args());
        let daemon = self.keep_by(command);
        self.converges();
        self.confirms(1);
        daemon
    }
}

/// Lets a stopped daemon go on, without signals from now on: every thread would get one.
fn release(daemon: &Daemon) {
    let tracer = || {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.and_then(|pid| pid.trim().parse().ok()).and_then(Pid::from_raw)
    };
    kill_process(tracer().unwrap(), Signal::KILL).unwrap();
    until("the end of the tracer", || tracer().is_none());
    daemon.signal(Signal::CONT);
}

fn try_for(world: &World, within: &str) -> Child {
    world.write("new.toml", tried());
    let mut client = world.homeostat(&format!("apply --yes --confirm-within {within} new.toml"));
    client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The holder is stopped in the middle of its steps, so that the client is killed between two of them.
#[test]
fn a_client_that_is_killed_between_two_steps_leaves_the_trial_to_its_holder() {
    let world = World::new();
    let daemon = world.keep_with_signal("STOP");
    let before = world.dump();
    let mut client = try_for(&world, "1h");
    until("the fourth step", || world.count_written() == 4);
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(world.count_written(), 4);
    release(&daemon);
    until("the other steps", || world.count_written() == KNOBS.len());
    world.run("confirm --extend 1s").exits(0);
    world.is_again(&before);
    until("the end", || world.event("trial-ended").is_some());
    assert_eq!(world.event("trial-ended").unwrap()["why"], "nobody confirmed it in time");
}

#[test]
fn a_daemon_that_is_killed_between_two_steps_undoes_them_at_its_next_start() {
    let world = World::new();
    let daemon = world.keep_with_signal("KILL");
    let before = world.dump();
    let mut client = try_for(&world, "1h");
    assert_eq!(daemon.wait().signal(), Some(9));
    assert_eq!(world.count_written(), 3);
    let _daemon = world.keep(BEFORE);
    client.wait().unwrap();
    world.converges();
    world.is_again(&before);
    let status = world.run("status").exits(0).stdout;
    let end = "trial 2: Rolled back to the confirmed document 1: the process that held it ended.";
    assert!(status.contains(end), "{status}");
}

/// Begins a trial in a terminal, as its session, and closes the terminal once it is tried.
fn close_terminal(world: &World, is_tried: impl Fn() -> bool) {
    let apply = world.homeostat("apply --yes --confirm-within 1h new.toml");
    let terminal = Terminal::open();
    let mut client = world.command("setsid");
    // Tests may run where SIGHUP is ignored, as under `nohup`, and programs inherit that.
    client.args(["--ctty", "env", "--default-signal=HUP"]);
    client.arg(apply.get_program()).args(apply.get_args());
    let client = client.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
    let mut client = client.spawn().unwrap();
    until("the trial", is_tried);
    drop(terminal);
    assert_eq!(client.wait().unwrap().signal(), Some(1), "SIGHUP");
}

#[test]
fn a_terminal_that_is_closed_ends_the_client_and_not_the_trial_of_a_daemon() {
    let world = World::new();
    let _daemon = world.keep(BEFORE);
    world.converges();
    world.confirms(1);
    let before = world.dump();
    world.write("new.toml", tried());
    close_terminal(&world, || world.count_written() == KNOBS.len());
    assert_eq!(world.status()["trial"]["id"], 2);
    world.run("confirm --extend 1s").exits(0);
    world.is_again(&before);
}

#[test]
fn a_terminal_that_is_closed_ends_the_client_and_not_the_trial_of_a_holder() {
    let (site, before) = Site::applied();
    close_terminal(&site.world, || site.is_tried());
    assert_eq!(site.world.status()["trial"]["id"], 2);
    site.world.run("confirm --extend 1s").exits(0);
    site.world.is_again(&before);
    until("the end of the holder", || site.holder().is_none());
    assert_eq!(site.world.rolled_back()[0]["why"], "nobody confirmed it in time");
}

/// A rollback whose end cannot be recorded keeps a daemon from ending for eight seconds, in which it is tried four times.
#[test]
fn a_second_signal_ends_a_daemon_whose_rollback_cannot_be_completed() {
    let world = World::new();
    let daemon = world.keep(BEFORE);
    world.converges();
    world.confirms(1);
    let before = world.dump();
    let mut client = begin(&world, &tried(), "");
    world.converges();
    // Nobody makes a directory where a file is.
    let obstacle = world.state().join("confirmed/default/.rolled-back");
    fs::write(&obstacle, "").unwrap();
    daemon.signal(Signal::TERM);
    until("the rollback fails", || world.event("trial-not-rolled-back").is_some());
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let log = world.log();
    assert!(log.contains("failures=1") && !log.contains("failures=4"), "{log}");
    fs::remove_file(&obstacle).unwrap();
    let _daemon = world.keep(BEFORE);
    client.wait().unwrap();
    world.converges();
    world.is_again(&before);
    assert_eq!(world.rolled_back()[0]["why"], "the process that held it ended");
}

impl World {
    /// Runs a script where the names of this world are.
    fn sh(&self, script: &str) {
        let mut sh = self.command("sh");
        sh.args(["-euc", script]);
        output(sh);
    }
}

/// There is room for the ledger, but not for a copy of what is tried.
#[test]
fn a_full_disk_keeps_a_trial_from_beginning() {
    let world = World::new().with_own_names();
    fs::create_dir(world.state()).unwrap();
    world.sh("mount -t tmpfs -o size=4m,mode=700 tmpfs state");
    world.apply(BEFORE);
    let before = world.dump();
    world.write("long.nft", "# a long comment\n".repeat(20_000) + "table ip tried {\n}\n");
    world.write("new.toml", format!("[nftables]\nfile = \"long.nft\"\n{}", tried()));
    world.sh("cat /dev/zero > state/full 2>/dev/null || true; truncate --size=-256K state/full");
    let refused = world.run("apply --yes --confirm-within 1m new.toml").exits(1).stderr;
    assert!(refused.contains("cannot record the trial"), "{refused}");
    assert!(refused.contains("No space left on device"), "{refused}");
    world.is_again(&before);
    world.sh("rm state/full; test ! -e state/confirmed/default/.trial");
    let ran = world.run("apply --yes --confirm-within 1s new.toml").exits(1);
    assert!(ran.last_line().starts_with("Rolled back to the confirmed document 1"), "{ran:?}");
    world.is_again(&before);
}

#[test]
fn guests_wait_for_the_confirm() {
    let stopped = GUEST.replace("running", "stopped");
    let ground = Ground::new(&stopped);
    let world = &ground.world;
    let _daemon = world.keep_at("host.toml");
    world.converges();
    world.confirms(1);
    let tried = ground.document(GUEST);
    for end in ["rollback", "confirm --same-session"] {
        let mut client = begin(world, &tried, "");
        // What only waits for the confirm is no reason to wait.
        world.converges();
        let status = world.finish({
            let mut status = world.homeostat("status");
            status.arg("guest 101");
            status
        });
        assert!(status.stdout.contains("confirm"), "{status:?}");
        assert_eq!(ground.starts(), 0);
        world.run(end).exits(0);
        client.wait().unwrap();
    }
    later(|| ground.is_running());
    assert_eq!(ground.starts(), 1);
}
