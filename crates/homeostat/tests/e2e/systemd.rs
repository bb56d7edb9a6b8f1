//! What systemd is notified of, what it allows, and what the daemon keeps of that.

use rustix::process::Signal;

use crate::http::{follow, listening, wait_for};
use crate::program::{command, output};
use crate::world::World;

const KEY: &str = "net/ipv4/tcp_retries1";
const DESIRED: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
const UNIT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/homeostat.service");

#[test]
fn systemd_is_notified_of_ready_reload_and_stop() {
    let world = World::with(DESIRED);
    let daemon = world.start("");
    assert_eq!(world.knob(KEY), "5", "ready comes after the first pass");
    world.write("host.toml", "[sysctl]\n\"net.ipv4.tcp_retries1\" = 6\n");
    daemon.signal(Signal::HUP);
    let reloading = daemon.wait_for_notice("RELOADING=1");
    let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("the clock");
    assert!(since.parse::<u64>().unwrap() > 0);
    daemon.wait_for_notice("READY=1");
    daemon.signal(Signal::TERM);
    daemon.wait_for_notice("STOPPING=1");
    daemon.stop();
}

#[test]
fn a_healthy_daemon_feeds_the_watchdog() {
    let world = World::with(DESIRED);
    let daemon = world.start_watched("", Some("200000"));
    daemon.wait_for_notice("WATCHDOG=1");
    daemon.wait_for_notice("WATCHDOG=1");
    daemon.stop();
}

#[test]
fn a_daemon_says_how_many_loops_are_converged() {
    let world = World::with(DESIRED);
    let daemon = world.start_watched("", None);
    daemon.wait_for_notice("STATUS=2 of 2 loops converged");
    daemon.stop();
}

/// A set of capabilities of a process, as the kernel writes it.
fn capabilities(pid: u32, set: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

const DAC_OVERRIDE: u64 = 1 << 1;
const LEASE: u64 = 1 << 28;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;

#[test]
fn capabilities_that_the_document_does_not_need_are_dropped_for_good() {
    let (world, daemon) = listening();
    for set in ["CapEff", "CapPrm", "CapBnd"] {
        assert_eq!(
            capabilities(daemon.pid(), set),
            NET_ADMIN | NET_RAW | DAC_OVERRIDE | LEASE,
            "{set}"
        );
    }
    for set in ["CapInh", "CapAmb"] {
        assert_eq!(capabilities(daemon.pid(), set), 0, "{set}");
    }
    // A document that needs more is refused, and what is left is enough to heal.
    world.write("host.toml", format!("{DESIRED}[namespaces.blue.sysctl]\n"));
    daemon.signal(Signal::HUP);
    daemon.wait_for_notice("RELOADING=1");
    daemon.wait_for_notice("READY=1");
    assert!(world.log().contains("restart the daemon"), "{}", world.log());
    let events = follow();
    world.meddle(KEY, "7");
    wait_for(events, "step-applied");
    assert_eq!(world.knob(KEY), "5");
    daemon.stop();
}

#[test]
fn a_document_with_namespaces_keeps_what_it_takes_to_enter_them() {
    let world = World::with("[namespaces.blue]\ncreate = true\n").with_own_names();
    let daemon = world.start("");
    let expected = NET_ADMIN | NET_RAW | DAC_OVERRIDE | LEASE | SYS_ADMIN | SYS_PTRACE;
    assert_eq!(capabilities(daemon.pid(), "CapBnd"), expected);
    daemon.stop();
}

#[test]
fn a_confined_daemon_still_compiles_a_firewall() {
    let world = World::with("[nftables]\nruleset = \"table inet filter {\\n}\"\n");
    let daemon = world.start("");
    let expected = NET_ADMIN | NET_RAW | DAC_OVERRIDE | LEASE | SYS_ADMIN;
    assert_eq!(capabilities(daemon.pid(), "CapEff"), expected);
    let mut nft = command("nft");
    nft.args(["list", "table", "inet", "filter"]);
    assert!(output(nft).contains("homeostat:default"));
    daemon.stop();
}

#[test]
fn the_log_is_json_on_demand() {
    let world = World::with(DESIRED);
    let daemon = world.start("--log json");
    world.write("host.toml", "nonsense = 1\n");
    daemon.signal(Signal::HUP);
    daemon.wait_for_notice("RELOADING=1");
    daemon.wait_for_notice("READY=1");
    daemon.stop();
    let log = world.log();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let applied = lines.iter().find(|line| line["message"] == "step applied").expect("a step");
    assert_eq!(applied["key"], "sysctl net.ipv4.tcp_retries1");
    assert_eq!(applied["level"], "INFO");
    let refused = lines.iter().find(|line| line["level"] == "ERROR").expect("the refusal");
    assert!(refused["error"].as_str().unwrap().contains("nonsense"), "{refused}");
}

/// What `systemd-analyze verify` has against a unit, beside the program that is not installed.
fn complaints(unit: &std::path::Path) -> Vec<String> {
    let mut verify = command("systemd-analyze");
    let output = verify.arg("verify").arg("--man=no").arg(unit).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let of_ours = text.lines().filter(|line| line.contains("homeostat"));
    of_ours.filter(|line| !line.contains("is not executable")).map(str::to_owned).collect()
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let world = World::new();
    let unit = std::fs::read_to_string(UNIT).unwrap();
    for line in [
        "Type=notify",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "StartLimitIntervalSec=0",
        "Before=sysinit.target network-pre.target shutdown.target",
        "ProtectSystem=strict",
    ] {
        assert!(unit.lines().any(|one| one == line), "{line}");
    }
    for settings in ["ProtectKernelTunables=", "ProtectControlGroups=", "PrivateDevices="] {
        assert!(!unit.lines().any(|line| line.starts_with(settings)), "{settings}");
    }
    assert_eq!(complaints(&world.write("homeostat.service", &unit)), [""; 0]);
    let odd = world.write("homeostat.service", unit.replace("ProtectSystem=", "ProtectSystems="));
    assert!(complaints(&odd).iter().any(|line| line.contains("ProtectSystems")), "the check bites");
}
