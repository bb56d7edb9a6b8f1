//! `--sandbox` and `demo`: work without privileges, and nothing of the host is in reach.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use snapbox::str;

use crate::world::World;

const DESIRED: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";

#[test]
fn a_sandbox_has_knobs_of_its_own() {
    let world = World::with(DESIRED);
    let before = world.knobs();
    world.finish(world.bare("--sandbox plan host.toml")).says(
        0,
        str![[r#"
knobs in sandbox
  config changed:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Plan: 0 to create, 1 to update, 0 to replace, 0 to delete.

"#]],
    );
    world.finish(world.bare("--sandbox apply --yes host.toml")).says(
        0,
        str![[r#"
knobs in sandbox
  applied:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Applied: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    world.finish(world.bare("--sandbox verify -q host.toml")).exits(2);
    assert!(world.knobs() == before, "a knob outside was turned");
}

#[test]
fn a_knob_of_the_whole_host_is_refused_in_a_sandbox() {
    let world = World::with("[sysctl]\n\"vm.swappiness\" = 1\n\"kernel.panic\" = 77\n");
    let host = ["vm/swappiness", "kernel/panic"].map(|key| format!("/proc/sys/{key}"));
    let before = host.each_ref().map(|path| fs::read_to_string(path).unwrap());
    world.finish(world.bare("--sandbox plan host.toml")).fails(str![[r#"
error: `sysctl vm.swappiness` belongs to the whole host, not to the sandbox
 --> host.toml:2:1
  |
2 | "vm.swappiness" = 1
  | ^^^^^^^^^^^^^^^
  |
  = help: only knobs under `net`, and `class/net` in sysfs, exist once per namespace

error: `sysctl kernel.panic` belongs to the whole host, not to the sandbox
 --> host.toml:3:1
  |
3 | "kernel.panic" = 77
  | ^^^^^^^^^^^^^^
  |
  = help: only knobs under `net`, and `class/net` in sysfs, exist once per namespace

2 errors in the document; nothing was changed

"#]]);
    let ran = world.finish(world.bare("--sandbox apply --yes host.toml")).exits(1);
    assert!(ran.stderr.contains("not to the sandbox"), "{}", ran.stderr);
    assert_eq!(host.each_ref().map(|path| fs::read_to_string(path).unwrap()), before);
}

#[test]
fn documents_that_only_root_may_read_are_read_before_the_sandbox_is_entered() {
    let world = World::with(DESIRED);
    let document = world.path().join("host.toml");
    fs::set_permissions(document, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o700)).unwrap();
    world.finish(world.bare("--sandbox apply --yes host.toml")).exits(0);
    world.finish(world.bare("--sandbox check host.toml")).says(0, "");
}

#[test]
fn a_state_directory_that_only_root_may_use_is_a_clear_error_in_a_sandbox() {
    let world = World::with(DESIRED);
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o700)).unwrap();
    for command in ["plan", "apply --yes"] {
        let ran = world.run(&format!("--sandbox {command} host.toml")).exits(1);
        assert!(ran.stderr.starts_with("error: cannot open the ledger @DIR"), "{}", ran.stderr);
        assert!(ran.stderr.contains("\nhelp: "), "{}", ran.stderr);
    }
    assert!(!world.state().exists());
}

#[test]
fn a_state_directory_that_the_sandbox_may_use_is_used() {
    let world = World::with(DESIRED);
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o777)).unwrap();
    world.run("--sandbox apply --yes host.toml").exits(0);
    assert!(world.ledger().exists());
}

#[test]
fn an_unprivileged_user_can_use_a_sandbox() {
    let world = World::with(DESIRED);
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The build directory may be closed to others.
    let program = world.path().join("homeostat");
    crate::program::copy_program(&program);
    for args in ["--sandbox apply --yes host.toml", "demo"] {
        let mut command = world.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        command.arg(&program).args(args.split_whitespace());
        let ran = world.finish(command).exits(0);
        assert!(ran.stdout.contains("\n    ~ sysctl net.ipv4."), "{}", ran.stdout);
    }
}

#[test]
fn without_privileges_the_host_is_refused_and_the_way_out_is_said() {
    let world = World::with(DESIRED);
    fs::set_permissions(world.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = world.path().join("homeostat");
    crate::program::copy_program(&program);
    let mut command = world.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.arg(&program).args(["apply", "--yes", "host.toml", "--state-dir", "state"]);
    let ran = world.finish(command).exits(1);
    assert!(ran.stdout.contains("or try it in a sandbox"), "{ran:#?}");
    assert_eq!(world.knob("net/ipv4/tcp_retries1"), "3");
}

#[test]
fn the_demo_heals_a_sandboxed_router_and_leaves_the_host_and_the_foreign_alone() {
    let world = World::new();
    let before = (world.knobs(), world.ip("link"));
    world.finish(world.bare("demo")).says(
        0,
        str![[r#"

# A sandbox: our own network namespace, no privileges. The document:
...
# homeostat plan demo.toml
namespaces in sandbox
  config changed:
    + namespace lab
nft in sandbox
  config changed:
    + table inet filter [..]
...
rtnl in sandbox
...
    ~ sysctl net.ipv4.tcp_retries1 [..] 3 -> 5
...
# homeostat apply demo.toml
...
Applied: [..] created, [..] updated, 0 replaced, 0 deleted.

# homeostat plan demo.toml     (a second pass writes nothing)
No changes.

# homeostat run demo.toml     (while another program sabotages it)
  delete a route         default via 192.0.2.1 [..]
...
# 54 of 54 healed
...
  firewall, by event [..] 3 [..]
...
  files (~) [..] 1 [..]
...
  foreign objects: 107, untouched

"#]],
    );
    assert!((world.knobs(), world.ip("link")) == before, "something outside was changed");
}

#[test]
fn without_nft_the_demo_goes_on_without_its_firewall_and_says_so() {
    let world = World::new();
    let mut command = world.bare("demo");
    command.env("PATH", "/nonexistent");
    let ran = world.finish(command).exits(0);
    let said = "# ... and no firewall, which needs `nft`: `nft` is not installed\n";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    assert!(!ran.stdout.contains("table inet filter"), "{}", ran.stdout);
    assert!(ran.stdout.contains("# 51 of 51 healed"), "{}", ran.stdout);
}

#[test]
fn without_haproxy_the_demo_goes_on_without_its_balancer_and_names_the_package() {
    let world = World::new();
    let demo = world.bare("demo");
    let mut command = world.command("unshare");
    let hide = "mount --bind /dev/null /usr/sbin/haproxy && exec \"$@\"";
    command.args(["--mount", "sh", "-c", hide, "sh"]);
    command.arg(demo.get_program()).args(demo.get_args());
    let ran = world.finish(command).exits(0);
    let said = "# ... and no balancer, which needs HAProxy: install the package `haproxy`\n";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    assert!(!ran.stdout.contains("haproxy.cfg"), "{}", ran.stdout);
    assert!(ran.stdout.contains("# 53 of 53 healed"), "{}", ran.stdout);
}

#[test]
fn a_sandbox_and_a_namespace_exclude_each_other() {
    let world = World::with(DESIRED);
    let ran = world.finish(world.bare("--sandbox --netns blue plan host.toml")).exits(1);
    assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
}
