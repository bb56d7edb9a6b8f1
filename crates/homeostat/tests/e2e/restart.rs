//! Originals: captured once, kept across runs, put back only where the value still is ours.

use std::os::fd::{AsFd as _, AsRawFd as _};

use homeostat_netns::Netns;
use rustix::process::Signal;
use snapbox::str;

use crate::world::World;

const KEY: &str = "net/ipv4/tcp_retries1";

fn desired(value: u32) -> String {
    format!("[sysctl]\n\"net.ipv4.tcp_retries1\" = {value}\n")
}

#[test]
fn the_first_original_is_what_is_put_back() {
    let world = World::new();
    let original = world.knob(KEY);
    for value in [5, 6] {
        world.apply(&desired(value));
        assert_eq!(world.knob(KEY), value.to_string());
    }
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes --revert-on-release host.toml").says(
        0,
        str![[r#"
knobs in host
  applied:
    - sysctl net.ipv4.tcp_retries1  6 -> 3  (released, original restored)
Applied: 0 created, 0 updated, 0 replaced, 1 deleted.

"#]],
    );
    assert_eq!(world.knob(KEY), original);
    world.run("apply --yes --revert-on-release host.toml").says(0, "No changes.\n");
}

#[test]
fn a_knob_that_was_as_declared_from_the_start_is_claimed_with_its_original() {
    let world = World::new();
    let original = world.knob(KEY);
    world.write("host.toml", desired(original.parse().unwrap()));
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    world.apply(&desired(9));
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    assert_eq!(world.knob(KEY), original);
}

#[test]
fn a_value_that_somebody_else_wrote_is_not_put_back() {
    let world = World::new();
    world.apply(&desired(5));
    world.meddle(KEY, "8");
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes --revert-on-release host.toml").says(
        0,
        str![[r#"
knobs in host
  applied:
    - sysctl net.ipv4.tcp_retries1  8  (released, the value stays)
Applied: 0 created, 0 updated, 0 replaced, 1 deleted.

"#]],
    );
    assert_eq!(world.knob(KEY), "8");
}

#[test]
fn without_the_flag_a_released_knob_stays_and_is_forgotten() {
    let world = World::new();
    world.apply(&desired(5));
    world.apply("[sysctl]\n");
    assert_eq!(world.knob(KEY), "5");
    world.run("apply --yes --revert-on-release host.toml").says(0, "No changes.\n");
    assert_eq!(world.knob(KEY), "5");
}

const FORWARD: &str = "[sysctl]\n\"net.ipv4.ip_forward\" = 1\n";

/// What the kernel rewrites along with `ip_forward`, and nothing declares.
const COUPLED: [&str; 5] = [
    "net/ipv4/conf/all/accept_redirects",
    "net/ipv4/conf/default/forwarding",
    "net/ipv4/conf/lo/forwarding",
    "net/ipv4/conf/va/forwarding",
    "net/ipv4/conf/vb/forwarding",
];

impl World {
    fn coupled(&self) -> [String; 5] {
        COUPLED.map(|key| self.knob(key))
    }

    /// A world in which one link forwards by itself.
    fn with_a_forwarding_link() -> Self {
        let world = World::new();
        world.add_pair("va", "vb");
        world.meddle("net/ipv4/conf/va/forwarding", "1");
        assert_eq!(world.coupled(), ["1", "0", "0", "1", "0"]);
        world
    }
}

#[test]
fn what_the_kernel_rewrote_along_with_a_knob_is_put_back_with_it() {
    let world = World::with_a_forwarding_link();
    world.apply(FORWARD);
    assert_eq!(world.coupled(), ["0", "1", "1", "1", "1"]);
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    assert_eq!(world.coupled(), ["1", "0", "0", "1", "0"]);
    world.run("apply --yes --revert-on-release host.toml").says(0, "No changes.\n");
}

#[test]
fn what_somebody_else_wrote_to_such_a_knob_since_stays() {
    let world = World::with_a_forwarding_link();
    world.apply(FORWARD);
    world.meddle("net/ipv4/conf/va/forwarding", "0");
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    assert_eq!(world.coupled(), ["1", "0", "0", "0", "0"]);
}

#[test]
fn a_daemon_that_reverts_when_it_stops_puts_them_back_too() {
    let world = World::with_a_forwarding_link();
    let daemon = world.keep(&format!("[settings]\non-stop = \"revert\"\n{FORWARD}"));
    world.converges();
    assert_eq!(world.coupled(), ["0", "1", "1", "1", "1"]);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert_eq!(world.knob("net/ipv4/ip_forward"), "0");
    assert_eq!(world.coupled(), ["1", "0", "0", "1", "0"]);
}

#[test]
fn a_refused_first_write_leaves_nothing_owned() {
    let world = World::with("[sysctl]\n\"net.ipv4.ip_default_ttl\" = 0\n");
    world.run("apply --yes host.toml").exits(1);
    world.write("host.toml", "[sysctl]\n");
    world.run("plan host.toml").says(0, "No changes.\n");
}

/// A link to a namespace, as `/run/netns` has it, that can be pointed at another one.
fn point(world: &World, netns: &Netns) -> String {
    let link = world.path().join("blue");
    let _ = std::fs::remove_file(&link);
    let file = format!("/proc/{}/fd/{}", std::process::id(), netns.as_fd().as_raw_fd());
    std::os::unix::fs::symlink(file, &link).unwrap();
    link.display().to_string()
}

#[test]
fn records_of_a_former_namespace_of_the_same_name_are_void() {
    let world = World::with(&desired(5));
    let read = |netns: &Netns| netns.run(|| world.knob(KEY)).unwrap();
    let first = Netns::anonymous().unwrap();
    let place = point(&world, &first);
    world.run(&format!("apply --yes host.toml --netns {place}")).says(
        0,
        str![[r#"
knobs in @DIR/blue
  applied:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Applied: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(read(&first), "5");
    let second = Netns::anonymous().unwrap();
    second.run(|| world.meddle(KEY, "4")).unwrap();
    let place = point(&world, &second);
    drop(first);
    world.write("empty.toml", "[sysctl]\n");
    let nothing = world.run(&format!("plan empty.toml --revert-on-release --netns {place}"));
    nothing.says(0, "No changes.\n");
    world.run(&format!("apply --yes host.toml --netns {place}")).exits(0);
    assert_eq!(read(&second), "5");
    world.run(&format!("apply --yes empty.toml --revert-on-release --netns {place}")).exits(0);
    assert_eq!(read(&second), "4", "the new namespace's own original");
}
