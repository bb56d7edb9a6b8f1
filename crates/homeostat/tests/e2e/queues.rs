//! Queues of links, from the document to the kernel and back; judged by `tc`.

use serde_json::Value;
use snapbox::str;

use crate::keeping::until;
use crate::program::output;
use crate::undone::round_trip_with;
use crate::world::World;

const SHAPED: &str =
    "[links.va.qdisc]\nkind = \"tbf\"\nrate = \"10mbit\"\nburst = \"32k\"\nlatency = \"50ms\"\n";

impl World {
    fn tc(&self, args: &str) -> String {
        let mut command = self.command("tc");
        command.args(args.split_whitespace());
        output(command)
    }

    /// The root qdisc of a link.
    fn root(&self, link: &str) -> Value {
        let all = self.tc(&format!("-j qdisc show dev {link}"));
        let all: Vec<Value> = serde_json::from_str(&all).unwrap();
        all.into_iter().find(|one| one["root"] == true).unwrap_or_default()
    }

    fn is_shaped(&self) -> bool {
        let root = self.root("va");
        root["kind"] == "tbf" && root["options"]["rate"] == 1_250_000
    }
}

fn cabled() -> World {
    let world = World::new();
    world.add_pair("va", "vb");
    world
}

#[test]
fn a_queue_is_planned_made_shown_and_let_go() {
    let world = cabled();
    world.write("host.toml", SHAPED);
    world.run("plan host.toml").says(
        0,
        str![[r#"
qdisc in host
  config changed:
    + qdisc va  kind tbf burst 32k limit 95268b rate 10mbit
Plan: 1 to create, 0 to update, 0 to replace, 0 to delete.

"#]],
    );
    world.run("apply --yes host.toml").exits(0);
    assert!(world.is_shaped(), "{}", world.root("va"));
    world.run("verify host.toml").exits(0);
    let shown = world.run("show").exits(0).stdout;
    let tables: toml::Table = shown.parse().unwrap();
    assert_eq!(tables["links"]["va"]["qdisc"]["rate"].as_str(), Some("10mbit"), "{shown}");
    world.write("shown.toml", shown);
    world.run("plan --detailed-exitcode shown.toml").says(0, "No changes.\n");

    world.write("host.toml", SHAPED.replace("10mbit", "1mbit"));
    world.run("plan host.toml").says(
        0,
        str![[r#"
qdisc in host
  config changed:
    ~ qdisc va  limit 95268b -> 39018b, rate 10mbit -> 1mbit
Plan: 0 to create, 1 to update, 0 to replace, 0 to delete.

"#]],
    );
    world.write("host.toml", SHAPED);

    // A table that only disappears lets nothing go.
    world.write("host.toml", "[links.va]\nup = true\n");
    let plan = world.plan();
    let held = &plan["held"][0];
    assert_eq!(held["key"], "qdisc va", "{plan}");
    let why = held["reason"].as_str().unwrap();
    assert!(why.starts_with("`[links.va.qdisc]` is missing from the document"), "{why}");
    assert!(why.contains("write an empty `[links.va.qdisc]`, or "), "{why}");
    world.apply("[links.va]\nup = true\n[links.va.qdisc]\n");
    assert_eq!(world.root("va")["handle"], "0:");
    world.run("verify host.toml").exits(0);
}

#[test]
fn a_daemon_heals_a_queue_and_follows_its_link() {
    let world = cabled();
    let _daemon = world.keep(&format!(
        "{SHAPED}[links.later.qdisc]\nkind = \"pfifo\"\nlimit = 7\n[links.later]\noptional = true\n"
    ));
    until("the queue", || world.is_shaped());
    world.tc("qdisc del dev va root");
    until("the queue after it was deleted", || world.is_shaped());
    world.tc("qdisc change dev va root handle 4000: tbf rate 1mbit burst 32k latency 50ms");
    until("its rate", || world.is_shaped());
    world.ip("link add later type ifb");
    until("the other queue", || world.root("later")["options"]["limit"] == 7);
    // Another program's is left to it, and is a conflict.
    world.tc("qdisc replace dev later root handle 1: pfifo limit 3");
    until("the conflict", || {
        let status: Value = serde_json::from_str(&world.run("status --json").stdout).unwrap();
        status["open_keys"].as_array().is_some_and(|keys| {
            keys.iter().any(|one| one["key"] == "qdisc later" && one["kind"] == "conflict")
        })
    });
    assert_eq!(world.root("later")["options"]["limit"], 3);
}

/// What `tc` says of all queues, without what it counts and the numbers of links.
fn queues(world: &World) -> String {
    let (qdiscs, classes) = (world.tc("qdisc show"), world.tc("class show dev va"));
    let lines = qdiscs.lines().chain(classes.lines()).filter(|line| !line.contains(" 0: "));
    let mut lines: Vec<&str> =
        lines.map(|line| line.split(" direct_packets_stat").next().unwrap()).collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn a_trial_that_is_rolled_back_leaves_all_queues_as_they_were() {
    let other = "[links.va.qdisc]\nkind = \"htb\"\n[links.va.qdisc.classes.10]\nrate = \"1mbit\"\n";
    let made = "[links.ifb7]\nkind = \"ifb\"\n[links.ifb7.qdisc]\nkind = \"pfifo\"\nlimit = 9\n";
    let wire = "[links.va]\nup = true\n";
    let both = format!("{wire}{SHAPED}{made}");
    let adopting = "[links.vb.qdisc]\nkind = \"bfifo\"\nlimit = \"64k\"\nadopt = true\n";
    for tried in [
        // Another kind, none, a link of ours that goes with its queue, and one of another program.
        format!("{wire}{other}{made}"),
        format!("{wire}[links.va.qdisc]\n{made}"),
        format!("{wire}{SHAPED}"),
        format!("{both}{adopting}"),
    ] {
        let world = cabled();
        world.tc("qdisc add dev vb root handle 1: htb default 10");
        world.tc("class add dev vb parent 1: classid 1:10 htb rate 3mbit");
        world.apply(&both);
        let before = queues(&world);
        round_trip_with(&world, &both, &tried, "", || {});
        assert_eq!(queues(&world), before, "{tried}");
        world.run("verify host.toml").exits(0);
    }
}
