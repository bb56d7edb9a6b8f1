//! The machine of the testkit itself.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside of `#[test]` clippy cannot know"
)]

use std::fs;
use std::path::Path;

use homeostat_testkit::booted::{BootedSystemd, debian_root};

fn boot() -> BootedSystemd {
    debian_root()
        .and_then(|root| BootedSystemd::boot(&root))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// What a program of the machine prints.
fn said(machine: &BootedSystemd, argv: &[&str]) -> String {
    let output = machine.run(argv).unwrap();
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn cookie(machine: &BootedSystemd) -> String {
    said(machine, &["readlink", "/proc/1/ns/net"])
}

#[test]
fn a_machine_boots_completely_and_keeps_its_disk_over_a_reboot() {
    let mut machine = boot();
    assert_eq!(said(&machine, &["systemctl", "is-system-running"]), "running");
    assert_eq!(said(&machine, &["systemctl", "--failed", "--quiet"]), "");
    assert_eq!(said(&machine, &["cat", "/proc/1/comm"]), "systemd");
    let id = said(&machine, &["cat", "/proc/sys/kernel/random/boot_id"]);
    assert_eq!(id, machine.boot_id());
    fs::write(machine.path().join("etc/kept"), "on the disk").unwrap();
    fs::write(machine.path().join("run/lost"), "in memory").unwrap();
    let (pid, network) = (machine.pid(), cookie(&machine));
    machine.reboot().unwrap();
    assert_eq!(said(&machine, &["cat", "/etc/kept"]), "on the disk");
    assert!(!machine.path().join("run/lost").exists());
    assert_ne!(machine.boot_id(), id);
    assert_eq!(said(&machine, &["cat", "/proc/sys/kernel/random/boot_id"]), machine.boot_id());
    assert_ne!((machine.pid(), cookie(&machine)), (pid, network));
}

#[test]
fn a_machine_that_loses_its_power_shuts_nothing_down() {
    let mut machine = boot();
    let unit = "[Service]\nExecStart=sleep infinity\nExecStop=touch /etc/stopped\n[Install]\nWantedBy=multi-user.target\n";
    fs::write(machine.path().join("etc/systemd/system/sleeper.service"), unit).unwrap();
    assert!(machine.run(&["systemctl", "enable", "--now", "sleeper"]).unwrap().status.success());
    machine.lose_power().unwrap();
    assert_eq!(said(&machine, &["systemctl", "is-active", "sleeper"]), "active");
    assert!(!machine.path().join("etc/stopped").exists());
    machine.reboot().unwrap();
    assert_eq!(said(&machine, &["systemctl", "is-active", "sleeper"]), "active");
    assert!(machine.path().join("etc/stopped").exists());
}

#[test]
fn machines_share_nothing_with_each_other_and_write_nothing_of_the_host() {
    let (one, other) = (boot(), boot());
    fs::write(one.path().join("etc/mine"), "").unwrap();
    assert!(!other.path().join("etc/mine").exists());
    assert!(!debian_root().unwrap().join("etc/mine").exists());
    let refused = one.run(&["sysctl", "kernel.pid_max=4000"]).unwrap();
    assert!(!refused.status.success());
    let allowed = one.run(&["sysctl", "net.ipv4.tcp_retries1=7"]).unwrap();
    assert!(allowed.status.success());
    assert_ne!(said(&other, &["sysctl", "--values", "net.ipv4.tcp_retries1"]), "7");
    // Every mount is of a file system of its own, or of one file.
    let mounts = fs::read_to_string(one.path().join("proc/1/mountinfo")).unwrap();
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.contains(" - overlay "), "{root}");
}

#[test]
fn a_machine_ends_with_the_value() {
    let machine = boot();
    let pid = machine.pid();
    drop(machine);
    assert!(!Path::new(&format!("/proc/{pid}/root")).exists());
}
