//! Namespaces of our own: made, healed and removed with what is inside, and never those of others.

use std::fs;

use rusqlite::Connection;
use serde_json::Value;
use snapbox::str;

use crate::program::{Holder, output};
use crate::terminal::Terminal;
use crate::world::World;

const KEY: &str = "net/ipv4/tcp_retries1";
const BLUE: &str = r#"[namespaces.blue]
create = true
sysctl = { "net.ipv4.tcp_retries1" = 5 }
"#;
/// Says aloud that there are no namespaces.
const NONE: &str = "[namespaces]\n";

fn world() -> World {
    World::with(BLUE).with_own_names()
}

impl World {
    fn spaces(&self) -> Vec<String> {
        let mut command = self.command("ip");
        command.args(["netns", "list"]);
        let listed = output(command);
        listed.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    }

    pub(crate) fn in_blue(&self, args: &str) -> String {
        let mut command = self.command("ip");
        command.args(["netns", "exec", "blue"]).args(args.split_whitespace());
        output(command).trim().to_owned()
    }

    fn netns(&self, args: &str) {
        let mut command = self.command("ip");
        command.arg("netns").args(args.split_whitespace());
        output(command);
    }

    /// The record of `blue`, if there is one.
    fn record_of_blue(&self) -> Option<Value> {
        let ledger = Connection::open(self.ledger()).unwrap();
        let record =
            ledger.query_row("SELECT record FROM record WHERE key = 'namespace blue'", [], |row| {
                row.get::<_, String>(0)
            });
        record.ok().map(|text| serde_json::from_str(&text).unwrap())
    }
}

#[test]
fn a_namespace_and_what_is_inside_converge_in_one_apply() {
    let world = world();
    world.run("plan host.toml").says(
        0,
        str![[r#"
namespaces in host
  config changed:
    + namespace blue
knobs in blue
  waiting:
    . sysctl net.ipv4.tcp_retries1  waits on namespace blue
Plan: 1 to create, 0 to update, 0 to replace, 0 to delete.

"#]],
    );
    world.run("verify -q host.toml").exits(2);
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
namespaces in host
  applied:
    + namespace blue
knobs in blue
  applied:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Applied: 1 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.spaces(), ["blue"]);
    assert_eq!(world.in_blue(&format!("cat /proc/sys/{KEY}")), "5");
    assert!(world.in_blue("ip -o link show lo").contains("<LOOPBACK>"), "lo is not as made");
    assert_eq!(world.knob(KEY), "3", "the host was touched");
}

#[test]
fn a_second_apply_writes_nothing() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    let before = fs::read(world.ledger()).unwrap();
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    assert!(fs::read(world.ledger()).unwrap() == before, "the ledger was written");
    world.run("verify host.toml").says(0, "");
}

#[test]
fn the_record_says_which_namespace_is_ours() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    let record = world.record_of_blue().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let identity = record["identity"].as_str().unwrap();
    assert!(identity.starts_with(&format!("boot {}, netns ", boot.trim())), "{identity}");
    assert_eq!(record["stage"], "done");
}

#[test]
fn a_namespace_that_was_deleted_by_hand_is_made_again_with_what_was_inside() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    world.netns("delete blue");
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
namespaces in host
  applied:
    + namespace blue
knobs in blue
  applied:
    ~ sysctl net.ipv4.tcp_retries1  3 -> 5
Applied: 1 created, 1 updated, 0 replaced, 0 deleted.

"#]],
    );
    assert_eq!(world.in_blue(&format!("cat /proc/sys/{KEY}")), "5");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
}

#[test]
fn a_namespace_that_left_the_document_goes_with_all_that_is_ours_inside() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    world.write("host.toml", NONE);
    world.run("plan host.toml").says(
        0,
        str![[r#"
namespaces in host
  config changed:
    - namespace blue  (with all that is ours inside)
  cannot be undone:
    ! namespace blue  programs in it, and the links in it that are not declared, do not return
Plan: 0 to create, 0 to update, 0 to replace, 1 to delete.

"#]],
    );
    world.run("apply --yes host.toml").says(
        0,
        str![[r#"
namespaces in host
  applied:
    - namespace blue  (with all that is ours inside)
Applied: 0 created, 0 updated, 0 replaced, 1 deleted.

"#]],
    );
    assert!(world.spaces().is_empty());
    let ledger = Connection::open(world.ledger()).unwrap();
    let inside = "SELECT count(*) FROM record WHERE scope != 'host'";
    let left: u32 = ledger.query_row(inside, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "records outlived the namespace");
    world.run("apply --yes host.toml").says(0, "No changes.\n");
}

#[test]
fn silence_about_namespaces_is_no_desired_state_to_remove_them() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    world.write("host.toml", "[sysctl]\n");
    let ran = world.run("apply --yes host.toml").exits(1);
    let held = "! delete namespace blue  `[namespaces.blue]` is missing from the document; to delete what it declared, write an empty `[namespaces]`";
    assert!(ran.stdout.contains(held), "{}", ran.stdout);
    assert_eq!(world.spaces(), ["blue"]);
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert!(world.spaces().is_empty());
}

#[test]
fn a_namespace_that_is_named_but_no_longer_to_be_made_stays() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    let named = BLUE.replace("create = true", "create = false");
    world.write("host.toml", &named);
    world.run("apply --yes host.toml").says(0, "No changes.\n");
    assert_eq!(world.spaces(), ["blue"]);
    world.netns("delete blue");
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains("waits on namespace blue"), "{}", ran.stdout);
    assert!(world.spaces().is_empty());
}

#[test]
fn a_foreign_link_inside_holds_the_removal_and_is_named() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    world.in_blue("ip link add wan type bridge");
    world.write("host.toml", NONE);
    let ran = world.run("apply --yes host.toml").exits(1);
    let held = "! delete namespace blue  it would take `link wan` along, which belongs to";
    assert!(ran.stdout.contains(held), "{}", ran.stdout);
    assert_eq!(world.spaces(), ["blue"]);
    assert!(world.in_blue("ip -o link show wan").contains("wan"));
    world.run("apply --yes --allow-cascades host.toml").exits(0);
    assert!(world.spaces().is_empty());
}

#[test]
fn a_process_inside_holds_the_removal() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    world.write("host.toml", NONE);
    let mut command = world.command("ip");
    command.args(["netns", "exec", "blue"]);
    let guest = Holder::in_shell_of(command, "");
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains("it would take `process "), "{}", ran.stdout);
    drop(guest);
    world.run("apply --yes host.toml").exits(0);
    assert!(world.spaces().is_empty());
}

#[test]
fn a_foreign_namespace_of_that_name_is_used_and_never_deleted() {
    let world = world();
    world.netns("add blue");
    let ran = world.run("apply --yes -v host.toml").exits(0);
    assert!(
        ran.stdout.contains("already there, not ours:\n    = namespace blue"),
        "{}",
        ran.stdout
    );
    assert_eq!(world.in_blue(&format!("cat /proc/sys/{KEY}")), "5");
    world.write("host.toml", NONE);
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert_eq!(world.spaces(), ["blue"]);
}

#[test]
fn a_namespace_that_somebody_else_made_again_is_not_ours() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    world.netns("delete blue");
    world.netns("add blue");
    let ran = world.run("apply --yes -v host.toml").exits(0);
    assert!(
        ran.stdout.contains("already there, not ours:\n    = namespace blue"),
        "{}",
        ran.stdout
    );
    assert!(world.record_of_blue().is_none(), "a record outlived its namespace");
    world.write("host.toml", NONE);
    world.run("apply --yes --allow-mass-delete host.toml").exits(0);
    assert_eq!(world.spaces(), ["blue"]);
}

#[test]
fn a_crash_between_intent_and_creation_is_made_good() {
    let world = world();
    world.run("apply --yes host.toml").exits(0);
    // What a process leaves that dies with its intent announced and nothing made.
    world.netns("delete blue");
    let mut record = world.record_of_blue().unwrap();
    record["stage"] = "intent".into();
    record.as_object_mut().unwrap().remove("identity");
    let ledger = Connection::open(world.ledger()).unwrap();
    let change = "UPDATE record SET record = ?1 WHERE key = 'namespace blue'";
    ledger.execute(change, [record.to_string()]).unwrap();
    drop(ledger);
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(world.record_of_blue().unwrap()["stage"], "done");
    assert!(world.record_of_blue().unwrap()["identity"].is_string());
    world.write("host.toml", NONE);
    world.run("apply --yes host.toml").exits(0);
    assert!(world.spaces().is_empty());
}

#[test]
fn an_operator_who_says_yes_gets_the_namespace_and_what_is_inside() {
    let world = world();
    let terminal = Terminal::open();
    terminal.type_in("yes\n");
    let mut command = world.homeostat("apply host.toml");
    command.stdin(terminal.end());
    let ran = world.finish(command).exits(0);
    assert!(ran.stderr.contains("+ namespace blue"), "{}", ran.stderr);
    assert_eq!(ran.last_line(), "Applied: 1 created, 1 updated, 0 replaced, 0 deleted.");
    assert_eq!(world.in_blue(&format!("cat /proc/sys/{KEY}")), "5");
}

#[test]
fn an_operator_is_asked_before_a_namespace_is_made() {
    let world = world();
    let ran = world.run("apply host.toml").exits(1);
    assert!(ran.stderr.contains("there is no terminal to ask on"), "{}", ran.stderr);
    assert!(world.spaces().is_empty());
}

#[test]
fn a_source_that_only_observes_makes_nothing() {
    let world = world();
    world.write("host.toml", format!("[settings.namespaces]\nmode = \"observe\"\n{BLUE}"));
    let ran = world.run("apply --yes host.toml").exits(1);
    assert!(ran.stdout.contains("in [settings.namespaces]"), "{}", ran.stdout);
    assert!(world.spaces().is_empty());
}

#[test]
fn a_run_about_one_namespace_makes_no_others() {
    let world = world();
    world.netns("add red");
    world.run("apply --yes --netns red host.toml").fails(str![[r#"
error: `blue` is not made by a run in one namespace
 --> host.toml:1:13
  |
1 | [namespaces.blue]
  |             ^^^^
  |
  = help: names belong to the host: run it for the host, or leave `create` out

1 error in the document; nothing was changed

"#]]);
    assert_eq!(world.spaces(), ["red"]);
}

#[test]
fn a_sandbox_has_namespaces_of_its_own() {
    let world = world();
    let ran = world.finish(world.bare("--sandbox apply --yes host.toml")).exits(0);
    assert!(
        ran.stdout.contains("namespaces in sandbox\n  applied:\n    + namespace blue"),
        "{ran:#?}"
    );
    assert!(ran.stdout.contains("knobs in blue\n  applied:"), "{ran:#?}");
    assert!(world.spaces().is_empty(), "a name left the sandbox");
}

#[test]
fn addresses_and_routes_inside_converge_in_the_same_apply_and_go_with_it() {
    let world = World::new().with_own_names();
    world.apply(
        "[namespaces.blue]\ncreate = true\nlinks.lo.addresses = [\"10.7.0.1/32\"]\n\
         [[namespaces.blue.routes]]\nto = \"10.8.0.0/16\"\ntype = \"blackhole\"\n",
    );
    assert!(world.in_blue("ip route").contains("blackhole 10.8.0.0/16"));
    world.write("host.toml", NONE);
    let ran = world.run("apply --yes host.toml").exits(0);
    assert_eq!(ran.last_line(), "Applied: 0 created, 0 updated, 0 replaced, 1 deleted.");
    assert!(world.spaces().is_empty());
}

#[test]
fn the_example_of_own_namespaces_converges_in_a_sandbox() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/own-namespaces.toml");
    let world = World::with(&fs::read_to_string(example).unwrap());
    let ran = world.finish(world.bare("--sandbox apply --yes host.toml")).exits(0);
    assert!(ran.stdout.contains("    + namespace blue\n    + namespace green\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("rtnl in blue\n  applied:\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("knobs in blue\n  applied:\n"), "{}", ran.stdout);
}
