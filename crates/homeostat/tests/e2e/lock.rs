//! One writer per namespace, owner and protocol; readers are not kept out.

use std::process::Stdio;

use homeostat_engine::NetnsLock;

use crate::keeping::until;
use crate::world::World;

/// A program that another test starts just now has our lock, too, until it is executed.
fn becomes_free(world: &World, command: &str) {
    until("the lock", || world.run(command).code() == Some(0));
}

#[test]
fn while_somebody_writes_an_apply_names_who_and_changes_nothing() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let held = NetnsLock::take(&["owner/default"]).unwrap();
    let ran = world.run("apply --yes host.toml").exits(1);
    let program = std::fs::read_to_string("/proc/self/comm").unwrap();
    let pid = std::process::id();
    let holder = format!("the scope is locked by process {pid} ({}) of user 0", program.trim_end());
    assert!(
        ran.stderr.starts_with("error: cannot write in `host` as `default` with protocol 76: "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains(&holder), "{}", ran.stderr);
    assert!(ran.stderr.contains("\nhelp: stop that process"), "{}", ran.stderr);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    drop(held);
    becomes_free(&world, "apply --yes host.toml");
}

/// A killed process has no command line any more before the kernel has closed its sockets.
#[test]
fn the_lock_of_a_process_that_was_killed_is_waited_for() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    for _ in 0..10 {
        let mut daemon = world.homeostat("run host.toml").stderr(Stdio::null()).spawn().unwrap();
        until("the daemon", || world.run("status").code() == Some(0));
        daemon.kill().unwrap();
        let command = format!("/proc/{}/cmdline", daemon.id());
        while !std::fs::read(&command).unwrap().is_empty() {}
        world.run("apply --yes host.toml").says(0, "No changes.\n");
        daemon.wait().unwrap();
    }
}

#[test]
fn while_somebody_writes_others_may_look_and_other_owners_may_write() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let _held = NetnsLock::take(&["owner/default"]).unwrap();
    world.run("plan host.toml").exits(0);
    world.run("verify host.toml").exits(2);
    world.run("show").exits(0);
    world.run("apply --yes --owner other --protocol 77 host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "1");
}

#[test]
fn two_owners_with_one_protocol_do_not_write_at_once() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
    let held = NetnsLock::take(&["owner/one", "protocol/77"]).unwrap();
    let ran = world.run("apply --yes --owner two --protocol 77 host.toml").exits(1);
    assert!(ran.stderr.contains("as `two` with protocol 77: the scope is locked"), "{ran:#?}");
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    world.run("apply --yes --owner two --protocol 78 host.toml").exits(0);
    drop(held);
    becomes_free(&world, "apply --yes --owner two --protocol 77 host.toml");
}

#[test]
fn an_apply_holds_the_lock_of_its_owner_and_that_of_its_protocol() {
    for name in ["owner/two", "protocol/77"] {
        let world = World::with("[sysctl]\n\"net.ipv4.ip_forward\" = 1\n");
        let _held = NetnsLock::take(&[name]).unwrap();
        world.run("apply --yes --owner two --protocol 77 host.toml").exits(1);
        assert_eq!(world.knob("net/ipv4/ip_forward"), "0", "{name}");
    }
}
