//! No host forwards without its firewall: what lets packets through waits for it.
#![expect(clippy::disallowed_methods, reason = "runs `nft`")]

use std::process::Command;

use crate::world::World;

/// A firewall on a table that a stranger may hold, and a router behind it.
const ROUTER: &str = r#"
[nftables]
ruleset = "table inet filter { chain forward { type filter hook forward priority 0; policy drop; }; }"

[sysctl]
"net.ipv4.ip_forward" = 1
"net.ipv6.conf.all.forwarding" = 1
"net.ipv4.conf.lo.forwarding" = 0
"net.ipv4.conf.default.rp_filter" = 1
"#;

const ON: &str = "nft's first pass";

fn nft(command: &str) {
    let output = Command::new("nft").args(command.split(' ')).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

fn forwards(world: &World) -> [String; 2] {
    ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"].map(|knob| world.knob(knob))
}

#[test]
fn an_apply_whose_firewall_is_in_conflict_turns_no_forwarding_on() {
    let world = World::with(ROUTER);
    nft("add table inet filter");
    let report = world.run("apply --yes --json host.toml").json(1);
    let pending: Vec<(&str, &str)> = report["pending"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["key"].as_str().unwrap(), one["on"].as_str().unwrap()))
        .collect();
    let keys = ["sysctl net.ipv4.ip_forward", "sysctl net.ipv6.conf.all.forwarding"];
    assert_eq!(pending, keys.map(|key| (key, ON)));
    assert_eq!(forwards(&world), ["0", "0"]);
    assert_eq!(world.knob("net/ipv4/conf/default/rp_filter"), "1", "the rest goes on");
    nft("delete table inet filter");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(forwards(&world), ["1", "1"]);
    assert_eq!(world.knob("net/ipv4/conf/lo/forwarding"), "0");
}

#[test]
fn a_plan_shows_the_forwarding_that_the_apply_will_turn_on_after_the_firewall() {
    let world = World::with(ROUTER);
    let plan = world.plan();
    assert_eq!(plan["pending"].as_array().unwrap().len(), 0, "{plan}");
    let planned = plan["changes"].as_array().unwrap().iter();
    let keys: Vec<&str> = planned.map(|one| one["key"].as_str().unwrap()).collect();
    assert!(keys.contains(&"sysctl net.ipv4.ip_forward"), "{keys:?}");
}

#[test]
fn forwarding_that_is_declared_off_waits_for_nothing() {
    let world = World::with(&ROUTER.replace("forward\" = 1", "forward\" = 0"));
    world.meddle("net/ipv4/ip_forward", "1");
    nft("add table inet filter");
    world.run("apply --yes host.toml").exits(1);
    assert_eq!(forwards(&world), ["0", "0"]);
}

#[test]
fn a_daemon_turns_forwarding_on_by_itself_once_its_firewall_stands() {
    let world = World::new();
    nft("add table inet filter");
    let _daemon = world.keep(&format!(
        "[settings.nft]\nresync = \"1h\"\n[settings.knobs]\nresync = \"1h\"\n{ROUTER}"
    ));
    world.stands();
    let report = world.run("resync --json").json(1);
    assert_eq!(report["pending"][0]["on"], ON, "{report}");
    assert_eq!(forwards(&world), ["0", "0"]);
    let status = world.run("status").stdout;
    assert!(status.contains("pending"), "{status}");
    // Nobody asks for a pass: the firewall comes by hint, and forwarding with it.
    nft("delete table inet filter");
    world.converges();
    assert_eq!(forwards(&world), ["1", "1"]);
}

#[test]
fn a_document_that_brings_firewall_and_forwarding_together_keeps_their_order() {
    let world = World::new();
    nft("add table inet filter");
    let _daemon = world.keep("[nftables]\n[sysctl]\n\"net.ipv4.conf.default.rp_filter\" = 1\n");
    world.converges();
    world.write("host.toml", ROUTER);
    let report = world.run("reload --json").json(1);
    assert_eq!(report["pending"][0]["on"], ON, "{report}");
    assert_eq!(forwards(&world), ["0", "0"]);
    nft("delete table inet filter");
    world.converges();
    assert_eq!(forwards(&world), ["1", "1"]);
}

#[test]
fn forwarding_that_joins_a_firewall_that_stands_is_there_when_the_reload_returns() {
    let (firewall, _) = ROUTER.split_once("[sysctl]").unwrap();
    let world = World::new();
    let _daemon = world.keep(&format!("{firewall}\n[sysctl]\n"));
    world.converges();
    world.write("host.toml", ROUTER);
    world.run("reload").exits(0);
    assert_eq!(forwards(&world), ["1", "1"]);
}

#[test]
fn a_router_goes_on_forwarding_when_another_program_changes_its_firewall_later() {
    let world = World::new();
    let _daemon = world.keep(ROUTER);
    world.converges();
    world.run("pause").exits(0);
    nft("delete table inet filter");
    nft("add table inet filter");
    world.run("resume").exits(0);
    world.meddle("net/ipv4/ip_forward", "0");
    world.run("resync").exits(1);
    assert_eq!(forwards(&world), ["1", "1"]);
}

#[test]
fn forwarding_that_was_on_before_us_comes_back_only_behind_the_firewall() {
    let off = ROUTER.replace("\" = 1", "\" = 0");
    let (firewall, _) = off.split_once("[sysctl]").unwrap();
    let world = World::with(&off);
    world.meddle("net/ipv4/ip_forward", "1");
    world.run("apply --yes host.toml").exits(0);
    assert_eq!(forwards(&world), ["0", "0"]);
    // The table is a stranger's meanwhile.
    nft("delete table inet filter");
    nft("add table inet filter");
    world.write("host.toml", format!("{firewall}\n[sysctl]\n"));
    let report = world.run("apply --yes --revert-on-release --json host.toml").json(1);
    let pending = report["pending"].as_array().unwrap();
    let held =
        |one: &serde_json::Value| one["key"] == "sysctl net.ipv4.ip_forward" && one["on"] == ON;
    assert!(pending.iter().any(held), "{report}");
    assert_eq!(forwards(&world), ["0", "0"]);
    nft("delete table inet filter");
    world.run("apply --yes --revert-on-release host.toml").exits(0);
    assert_eq!(forwards(&world)[0], "1");
}
