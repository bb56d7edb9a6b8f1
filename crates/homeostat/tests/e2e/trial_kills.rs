//! A daemon that is killed at a chosen call in the middle of a trial, of its confirm or of its rollback: at its next start all
//! is as it was, or the trial is confirmed. There is nothing in between.

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::daemon::Daemon;
use crate::keeping::until;
use crate::network::cabled;
use crate::undone::begin;
use crate::world::World;

/// Kills a daemon at a call.
pub(crate) struct Killer {
    daemon: u32,
    strace: Child,
}

impl Killer {
    /// Kills the daemon when one of its threads makes this call for the nth time from now on.
    pub(crate) fn at(world: &World, daemon: &Daemon, call: &str, nth: u64) -> Self {
        Self::of(world, daemon.pid(), call, nth)
    }

    /// The same for any process that holds trials.
    pub(crate) fn of(world: &World, daemon: u32, call: &str, nth: u64) -> Self {
        let mut strace = world.command("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}")]);
        strace.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
        strace.args(["-p", &daemon.to_string()]);
        let strace = strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let killer = Killer { daemon, strace };
        until("the tracer", || killer.is_attached());
        killer
    }

    fn is_attached(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.daemon)).into_iter().flatten();
        tasks.flatten().all(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        })
    }

    pub(crate) fn has_killed(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.daemon)).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    }

    /// Removes the tracer and says whether it has killed. A daemon that is being killed may not have ended yet, but it
    /// answers no more; only without the tracer is it certain that one that answers lives on.
    pub(crate) fn ends_with_kill(self, world: &World) -> bool {
        drop(self);
        world.status_if_any().is_null()
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        // It has ended if the daemon has.
        let _ = kill_process(Pid::from_child(&self.strace), Signal::KILL);
        let _ = self.strace.wait();
    }
}

const WIRE: &str = "[links.va]\nup = true\naddresses = [\"10.0.0.1/24\"]\n[links.vb]\nup = true\n";

/// A bridge and a table leave, a foreign route goes along with an address, another one is taken over, and a sysctl is set.
const BEFORE: &str = "[links.br7]\nkind = \"bridge\"\nup = true\naddresses = [\"10.7.0.1/24\"]\n\
    [nftables]\nruleset = \"table ip f { chain i { type filter hook input priority 0; }; }\\n\"\n";
const TRIED: &str = "routes = [{ to = \"default\", via = \"10.0.0.9\", metric = 100, adopt = true }]\n\
    [sysctl]\n\"net.ipv4.ip_forward\" = 1\n[nftables]\nruleset = \"\"\n";

fn kept() -> (World, Daemon) {
    let world = cabled();
    let daemon = world.keep(&format!("{WIRE}{BEFORE}"));
    world.converges();
    world.confirms(1);
    world.ip("address add 10.70.0.1/24 dev br7");
    world.ip("route add 10.71.0.0/16 via 10.7.0.9 proto bird metric 20 initcwnd 7");
    world.ip("route add default via 10.0.0.2 proto dhcp metric 100");
    until("addresses are used", || world.uses_all_addresses());
    (world, daemon)
}

fn tried() -> String {
    TRIED.replace("[sysctl]", &format!("{WIRE}[sysctl]"))
}

/// What makes something durable, or takes something away.
const CALLS: [&str; 4] = ["rename", "fsync", "fdatasync", "unlink"];

/// Runs a command of a trial that is open, with a kill at each of its first calls, until one of them has no such call.
#[track_caller]
fn kill_in(command: &str) {
    let is_soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    let most = if is_soak { 40 } else { 3 };
    let mut kills = 0;
    for call in CALLS {
        for nth in 1..=most {
            let (world, daemon) = kept();
            let then = world.dump();
            let mut client = begin(&world, &tried(), "--allow-cascades");
            world.converges();
            let killer = Killer::at(&world, &daemon, call, nth);
            let _ = world.run(command);
            let is_killed = killer.ends_with_kill(&world);
            drop(daemon);
            let _daemon = world.keep(&format!("{WIRE}{BEFORE}"));
            client.wait().unwrap();
            until("the end of the trial", || {
                let status = world.stands();
                status["trial"].is_null() && status["converged"] == true
            });
            if world.history().len() == 1 {
                world.is_again_after(&then, &format!("{command}: {call} {nth}"));
            } else {
                assert!(command.starts_with("confirm"), "{command}: {call} {nth}");
                world.run("verify new.toml").exits(0);
                assert!(!world.ip("link show").contains("hs-"));
            }
            if !is_killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 2, "only {kills} kills in {command}");
}

#[test]
fn a_kill_in_a_confirm_leaves_the_state_before_or_the_confirmed_one() {
    kill_in("confirm --same-session");
}

#[test]
fn a_kill_in_a_rollback_leaves_the_state_before() {
    kill_in("rollback");
}
