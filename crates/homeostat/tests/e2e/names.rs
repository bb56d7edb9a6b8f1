//! Other namespaces: by `--netns`, and by name in the document.

use std::os::fd::{AsFd as _, AsRawFd as _};

use homeostat_netns::{Netns, Place};
use snapbox::str;

use crate::program::{Holder, output};
use crate::world::World;

// Unlike forwarding, it is the same in every fresh namespace, whatever the host has.
const KEY: &str = "net/ipv4/tcp_retries1";
const DEFAULT: &str = "3";
const DESIRED: &str = "[sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";
const BLUE: &str = "[namespaces.blue.sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n";

impl World {
    /// The scopes in which the ledger says that we own something.
    fn recorded(&self) -> Vec<String> {
        let ledger = rusqlite::Connection::open(self.ledger()).unwrap();
        let mut scopes = ledger
            .prepare("SELECT DISTINCT scope FROM record WHERE owner = 'default' ORDER BY 1")
            .unwrap();
        let scopes = scopes.query_map([], |row| row.get(0)).unwrap();
        scopes.map(Result::unwrap).collect()
    }

    pub(crate) fn knob_in(&self, name: &str, key: &str) -> String {
        self.ip(&format!("netns exec {name} cat /proc/sys/{key}")).trim().to_owned()
    }
}

#[test]
fn a_namespace_is_reached_by_path_and_the_host_is_left_alone() {
    let world = World::with(DESIRED);
    let blue = Netns::anonymous().unwrap();
    let place = format!("/proc/{}/fd/{}", std::process::id(), blue.as_fd().as_raw_fd());
    let ran = world.run(&format!("apply --yes --netns {place} host.toml")).exits(0);
    assert!(ran.stdout.starts_with(&format!("knobs in {place}\n")), "{}", ran.stdout);
    assert_eq!(blue.run(|| world.knob(KEY)).unwrap(), "5");
    assert_eq!(world.knob(KEY), DEFAULT);
    world.run(&format!("verify --netns {place} host.toml")).says(0, "");
    world.run("verify -q host.toml").exits(2);
}

#[test]
fn a_namespace_is_reached_by_process() {
    let world = World::with(DESIRED);
    let holder = Holder::start("--net", "");
    world.run(&format!("apply --yes --netns {} host.toml", holder.pid())).exits(0);
    let blue = Netns::open(&Place::OfPid(holder.pid())).unwrap();
    assert_eq!(blue.run(|| world.knob(KEY)).unwrap(), "5");
    assert_eq!(world.knob(KEY), DEFAULT);
}

#[test]
fn a_name_of_digits_in_the_document_is_never_a_process() {
    let world = World::new().with_own_names();
    let holder = Holder::start("--net", "");
    let (pid, inside) = (holder.pid(), Netns::open(&Place::OfPid(holder.pid())).unwrap());
    let desired = format!("[namespaces.{pid}.sysctl]\n\"net.ipv4.tcp_retries1\" = 5\n");
    world.write("host.toml", desired);
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains(&format!("waits on namespace {pid}\n")), "{}", ran.stdout);
    assert_eq!(inside.run(|| world.knob(KEY)).unwrap(), DEFAULT, "another's was touched");
    world.ip(&format!("netns add {pid}"));
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.knob_in(&pid.to_string(), KEY), "5");
    assert_eq!(inside.run(|| world.knob(KEY)).unwrap(), DEFAULT, "another's was touched");
}

#[test]
fn what_was_done_in_a_process_is_never_looked_for_under_a_name() {
    let world = World::with(DESIRED).with_own_names();
    let holder = Holder::start("--net", "");
    let (pid, inside) = (holder.pid(), Netns::open(&Place::OfPid(holder.pid())).unwrap());
    world.ip(&format!("netns add {pid}"));
    world.run(&format!("apply --yes --netns {pid} host.toml")).exits(0);
    world.write("host.toml", "[sysctl]\n");
    let ran = world.run("apply --yes --revert-on-release --allow-mass-delete host.toml").exits(0);
    assert!(ran.stdout.starts_with(&format!("knobs in /proc/{pid}/ns/net\n")), "{}", ran.stdout);
    assert_eq!(inside.run(|| world.knob(KEY)).unwrap(), DEFAULT);
}

#[test]
fn a_namespace_that_is_called_host_is_not_the_host() {
    let world = World::with(DESIRED).with_own_names();
    world.ip("netns add host");
    let ran = world.run("apply --yes --netns host host.toml").exits(0);
    assert!(ran.stdout.starts_with("knobs in /run/netns/host\n"), "{}", ran.stdout);
    assert_eq!(world.knob_in("host", KEY), "5");
    world.write("empty.toml", "[sysctl]\n");
    world.run("plan --netns host host.toml").says(0, "No changes.\n");
    let ran = world.run("plan empty.toml").exits(0);
    assert!(ran.stdout.starts_with("knobs in /run/netns/host\n  held back:\n"), "{}", ran.stdout);
    assert_eq!(world.knob(KEY), DEFAULT);
}

#[test]
fn a_namespace_has_one_ledger_whether_reached_by_name_or_by_its_file() {
    let world = World::with(DESIRED).with_own_names();
    world.ip("netns add blue");
    world.run("apply --yes --netns blue host.toml").says(
        0,
        str![[r#"
knobs in blue
  applied:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Applied: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob_in("blue", KEY), "5");
    assert_eq!(world.knob(KEY), DEFAULT);
    world.run("plan --netns /run/netns/blue host.toml").says(0, "No changes.\n");
    world.write("host.toml", "[sysctl]\n");
    world.run("apply --yes --revert-on-release --netns /run/netns/blue host.toml").exits(0);
    assert_eq!(world.knob_in("blue", KEY), DEFAULT);
}

#[test]
fn a_namespace_that_is_not_there_is_an_error_that_lists_the_others() {
    let world = World::with(DESIRED).with_own_names();
    world.ip("netns add blue");
    world.run("plan --netns bleu host.toml").fails(str![[r#"
error: there is no network namespace named "bleu"
help: there is "blue"; make it with `ip netns add bleu`

"#]]);
    world.run("plan --netns /nosuch/ns host.toml").fails(str![[r#"
error: there is no network namespace at "/nosuch/ns"
help: give a file such as /run/netns/NAME or /proc/PID/ns/net

"#]]);
    world.run("plan --netns /dev/null host.toml").fails(str![[r#"
error: "/dev/null" is not a network namespace
help: give a file such as /run/netns/NAME or /proc/PID/ns/net

"#]]);
}

#[test]
fn knobs_of_a_namespace_that_is_not_there_wait_for_it() {
    let world = World::with(BLUE).with_own_names();
    world.run("plan host.toml").says(
        0,
        str![[r#"
knobs in blue
  waiting:
    . sysctl net.ipv4.tcp_retries1  waits on namespace blue
Not converged: no changes.

"#]],
    );
    world.run("plan --json host.toml").says(0, str![[r#"
{"format_version":"1.0","changes":[],"conflicts":[],"pending":[
  {"source":"knobs","scope":"blue","key":"sysctl net.ipv4.tcp_retries1","on":"namespace blue"}],"matched":[],"settled":[],"unknown":[],"held":[],"refused":[],"irreversible":[],"optional":[],"withdrawn":[],"warnings":[],"summary":{"create":0,"update":0,"replace":0,"delete":0}}

"#]]);
    world.run("verify -q host.toml").exits(2);
    world.run("apply --yes host.toml").says(
        1,
        str![[r#"
knobs in blue
  waiting:
    . sysctl net.ipv4.tcp_retries1  waits on namespace blue
Not converged: 0 created, 0 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob(KEY), DEFAULT, "the host was touched");
}

#[test]
fn knobs_of_a_namespace_are_applied_there_and_not_on_the_host() {
    let world = World::with(BLUE).with_own_names();
    world.ip("netns add blue");
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
knobs in blue
  applied:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Applied: 0 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.knob_in("blue", KEY), "5");
    assert_eq!(world.knob(KEY), DEFAULT);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
}

#[test]
fn a_namespace_that_left_the_document_is_held_not_leaked() {
    let world = World::with(BLUE).with_own_names();
    world.ip("netns add blue");
    world.run("apply --yes host.toml").exits(0);
    world.write("host.toml", "[sysctl]\n");
    world.run("plan host.toml").says(0, str![[r#"
knobs in blue
  held back:
    ! delete sysctl net.ipv4.tcp_retries1  `[namespaces.blue]` is missing from the document; to delete what it declared, write it with an empty `[namespaces.blue.sysctl]`, or use --allow-mass-delete
Not converged: no changes; 1 held back.

"#]]);
    world.run("apply --yes --revert-on-release host.toml").exits(1);
    assert_eq!(world.knob_in("blue", KEY), "5");
    world.run("apply --yes --revert-on-release --allow-mass-delete host.toml").says(
        0,
        str![[r#"
knobs in blue
  applied:
    - sysctl net.ipv4.tcp_retries1  5 -> 3  (released, original restored)
Applied: 0 created, 0 updated, 0 replaced, 1 deleted.

"#]],
    );
    assert_eq!(world.knob_in("blue", KEY), DEFAULT);
    world.run("plan host.toml").says(0, "No changes.\n");
}

#[test]
fn a_namespace_that_left_the_document_and_the_machine_is_nothing() {
    let world = World::with(BLUE).with_own_names();
    world.ip("netns add blue");
    world.run("apply --yes host.toml").exits(0);
    world.ip("netns del blue");
    world.write("host.toml", "[sysctl]\n");
    world.run("plan host.toml").says(0, "No changes.\n");
    assert_eq!(world.recorded(), ["blue"], "a plan writes nothing");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    assert!(world.recorded().is_empty(), "{:?}", world.recorded());
    world.ip("netns add blue");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
}

#[test]
fn the_records_of_a_former_namespace_of_the_same_name_are_dropped() {
    let world = World::with(BLUE).with_own_names();
    world.ip("netns add blue");
    world.run("apply --yes host.toml").exits(0);
    world.ip("netns del blue");
    world.ip("netns add blue");
    world.write("host.toml", "[sysctl]\n[namespaces.blue]\n");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    assert!(world.recorded().is_empty(), "{:?}", world.recorded());
}

#[test]
fn of_a_namespace_that_left_the_document_and_is_a_plain_file_now_only_the_records_go() {
    let world = World::with(BLUE).with_own_names();
    world.ip("netns add blue");
    world.run("apply --yes host.toml").exits(0);
    world.ip("netns del blue");
    output({
        let mut touch = world.command("touch");
        touch.arg("/run/netns/blue");
        touch
    });
    world.write("host.toml", "[sysctl]\n");
    world.run("plan host.toml").exits(0);
    assert_eq!(world.recorded(), ["blue"], "a plan writes nothing");
    world.run("apply --yes host.toml").exits(0);
    assert!(world.recorded().is_empty(), "what we owned went with the namespace");
    let mut test = world.command("test");
    test.args(["-f", "/run/netns/blue"]);
    output(test);
}

#[test]
fn a_namespace_made_again_gets_its_knobs_again() {
    let world = World::with(BLUE).with_own_names();
    world.ip("netns add blue");
    world.run("apply --yes host.toml").exits(0);
    world.ip("netns del blue");
    world.run("verify -q host.toml").exits(2);
    world.ip("netns add blue");
    assert_eq!(world.knob_in("blue", KEY), DEFAULT);
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.knob_in("blue", KEY), "5");
}

#[test]
fn a_knob_of_the_whole_host_is_refused_in_a_namespace() {
    let world = World::with("[sysctl]\n\"vm.swappiness\" = 60\n\"net.ipv4.tcp_retries1\" = 5\n");
    let blue = Netns::anonymous().unwrap();
    let place = format!("/proc/{}/fd/{}", std::process::id(), blue.as_fd().as_raw_fd());
    world.run(&format!("plan --netns {place} host.toml")).fails(str![[r#"
error: `sysctl vm.swappiness` belongs to the whole host, not to a network namespace
 --> host.toml:2:1
  |
2 | "vm.swappiness" = 60
  | ^^^^^^^^^^^^^^^
  |
  = help: only knobs under `net`, and `class/net` in sysfs, exist once per namespace

1 error in the document; nothing was changed

"#]]);
    let ran = world.run(&format!("apply --yes --netns {place} host.toml")).exits(1);
    assert!(ran.stderr.contains("belongs to the whole host"), "{}", ran.stderr);
    assert_eq!(blue.run(|| world.knob(KEY)).unwrap(), DEFAULT);
    world.write("host.toml", "[namespaces.blue.sysctl]\n\"vm.swappiness\" = 60\n");
    world.run("check host.toml").fails(str![[r#"
error: `vm.swappiness` is host-wide, not a knob of a namespace
 --> host.toml:2:1
  |
2 | "vm.swappiness" = 60
  | ^^^^^^^^^^^^^^^
  |
  = help: move it to the `sysctl` section at the top level of the document

1 error in the document; nothing was changed

"#]]);
}

#[test]
fn one_namespace_under_two_names_is_an_error_that_says_so() {
    let world = World::new().with_own_names();
    world.ip("netns add blue");
    world.write("host.toml", format!("{DESIRED}{BLUE}"));
    world.run("apply --yes --netns blue host.toml").fails(str![[r#"
error: `blue` is the same network namespace as `blue`
help: the document speaks of it twice: at its top level, or by another name

"#]]);
    assert_eq!(world.knob_in("blue", KEY), DEFAULT);
}
