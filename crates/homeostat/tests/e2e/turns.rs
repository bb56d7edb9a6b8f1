//! Two machines of a fleet that share a cluster of Proxmox VE: real daemons, a real store, a simulated cluster. One of
//! them acts, the other reads; who starts a guest is counted by the cluster itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use homeostat_pve_simulator::Simulator;
use rustix::process::Signal;
use serde_json::Value;

use crate::daemon::{Daemon, age};
use crate::fleet::FleetWorld;
use crate::guests::{GUEST, cluster};
use crate::keeping::until;

/// A fleet of two, with what both share.
struct Pair {
    fleet: FleetWorld,
    cluster: Simulator,
    /// Keeps a network of its own for the second machine: in one network there is one writer.
    network: Child,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.network.kill();
        let _ = self.network.wait();
    }
}

impl Pair {
    fn new() -> Self {
        let fleet = FleetWorld::new();
        let cluster = cluster();
        cluster.with(|world| world.stale = Duration::ZERO);
        let mut unshare = fleet.world.command("unshare");
        unshare.args(["--net", "sleep", "infinity"]);
        let network = unshare.stdin(Stdio::null()).spawn().unwrap();
        let pair = Pair { fleet, cluster, network };
        let world = &pair.fleet.world;
        let token = world.write("pve.token", format!("{}\n", Simulator::token()));
        fs::set_permissions(token, fs::Permissions::from_mode(0o600)).unwrap();
        for node in ["r1", "r2"] {
            world.write(&format!("{node}.toml"), pair.document(node));
        }
        pair
    }

    fn document(&self, node: &str) -> String {
        let (endpoint, pin) = (self.cluster.endpoint(), self.cluster.fingerprint());
        format!(
            "[fleet]\nendpoints = [\"127.0.0.1:2379\"]\nfleet = \"edge\"\nnode = \"{node}\"\n\
             allowed-signers = \"allowed_signers\"\nlease = \"5s\"\nreconnect-spread = \"100ms\"\n\
             [proxmox]\nendpoint = \"{endpoint}\"\ncluster = \"east\"\ntoken-file = \"pve.token\"\n\
             fingerprint = \"{pin}\"\ntask-delay = \"300ms\"\ntimeout = \"1s\"\npoll = \"100ms\"\n\
             {GUEST}cores = 2\n"
        )
    }

    fn homeostat(&self, node: &str, args: &str) -> Command {
        let world = &self.fleet.world;
        let mut command = world.bare(args);
        command.arg("--state-dir").arg(world.path().join(format!("state-{node}")));
        command
    }

    fn start(&self, node: &str) -> Daemon {
        let world = &self.fleet.world;
        age(world.path());
        let mut run = self.homeostat(node, &format!("run {node}.toml"));
        if node == "r2" {
            run.arg("--netns").arg(self.network.id().to_string());
        }
        world.keep_by(run)
    }

    /// What the daemon of a node says of its loop of guests.
    fn guests(&self, node: &str) -> Value {
        let status = self.fleet.world.finish(self.homeostat(node, "status --json")).stdout;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let loops = status["loops"].as_array().cloned().unwrap_or_default();
        loops.into_iter().find(|one| one["source"] == "guests").unwrap_or_default()
    }

    #[track_caller]
    fn until_role(&self, node: &str, role: &str) {
        until(&format!("{node} is {role}"), || self.guests(node)["role"]["role"] == role);
    }

    #[track_caller]
    fn until_runs(&self) {
        until("the guest runs", || self.cluster.with(|world| world.guests[&101].running));
    }

    fn stop_guest(&self) {
        self.cluster.with(|world| world.guests.get_mut(&101).unwrap().running = false);
    }

    fn starts(&self) -> usize {
        self.cluster.with(|world| world.count(101, "vzstart"))
    }
}

fn end(daemon: Daemon) {
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
}

#[test]
fn one_of_two_machines_acts_on_the_guests_and_the_other_one_takes_over() {
    let pair = Pair::new();
    let world = &pair.fleet.world;
    let first = pair.start("r1");
    pair.until_role("r1", "leader");
    pair.until_runs();
    let second = pair.start("r2");
    until("r2 knows who leads", || pair.guests("r2")["role"]["leader"] == "r1");
    // It reads: its loop has made a full pass, and what another machine does counts as done.
    until("r2 is ready", || pair.guests("r2")["converged"] == true);
    let text = world.finish(pair.homeostat("r2", "status")).stdout;
    assert!(text.contains("guests in") && text.contains(", standby\n"), "{text}");
    assert!(text.contains("role: standby since ") && text.contains("; r1 leads"), "{text}");
    let text = world.finish(pair.homeostat("r1", "status")).stdout;
    assert!(text.contains("role: leader since "), "{text}");
    let refused = world.finish(pair.homeostat("r2", "guest stop 101")).exits(1);
    assert!(refused.stderr.contains("r1"), "{refused:?}");
    // The holder dies, and what it has to do is done by the other one, once.
    first.kill();
    pair.stop_guest();
    pair.until_role("r2", "leader");
    pair.until_runs();
    assert_eq!(pair.starts(), 2);
    let first = pair.start("r1");
    pair.until_role("r1", "standby");
    // One that is stopped resigns, and nothing is waited for.
    end(second);
    pair.until_role("r1", "leader");
    pair.stop_guest();
    pair.until_runs();
    assert_eq!(pair.starts(), 3);
    end(first);
}

#[test]
fn without_a_daemon_a_machine_of_a_fleet_only_reads_what_is_shared() {
    let pair = Pair::new();
    let world = &pair.fleet.world;
    world.finish(pair.homeostat("r1", "apply --yes r1.toml"));
    let refused = world.finish(pair.homeostat("r1", "guest start 101 --document r1.toml")).exits(1);
    assert!(refused.stderr.contains("the machines of the fleet elect"), "{refused:?}");
    assert!(pair.cluster.with(|world| world.writes().is_empty()));
}

/// The holder is killed, stopped for a while, or ends by itself, again and again, while somebody stops the guest.
#[test]
fn no_guest_is_started_twice_however_the_holder_changes() {
    let rounds = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 30 } else { 3 };
    let pair = Pair::new();
    let mut daemons = [pair.start("r1"), pair.start("r2")].map(Some);
    let leader = || {
        let leads = |node: &str| pair.guests(node)["role"]["role"] == "leader";
        ["r1", "r2"].iter().position(|node| leads(node))
    };
    let mut starts = 1;
    for round in 0..rounds {
        until("a leader", || leader().is_some());
        pair.until_runs();
        let Some(holder) = leader() else { continue };
        let Some(daemon) = daemons[holder].take() else { continue };
        match round % 3 {
            0 => daemon.kill(),
            1 => {
                daemon.signal(Signal::STOP);
                let other = ["r2", "r1"][holder];
                pair.stop_guest();
                starts += 1;
                pair.until_role(other, "leader");
                pair.until_runs();
                daemon.signal(Signal::CONT);
                daemons[holder] = Some(daemon);
                pair.until_role(["r1", "r2"][holder], "standby");
                assert_eq!(pair.starts(), starts, "round {round}");
                continue;
            }
            _ => end(daemon),
        }
        pair.stop_guest();
        starts += 1;
        daemons[holder] = Some(pair.start(["r1", "r2"][holder]));
        until("a leader", || leader().is_some());
        pair.until_runs();
        assert_eq!(pair.starts(), starts, "round {round}");
    }
}
