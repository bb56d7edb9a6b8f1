//! The configuration of other tools as a document: what it says, what it leaves out, and that it can be applied.

use std::path::Path;

use snapbox::{Assert, Data};

use crate::network::cabled;
use crate::world::World;

/// Imports an example, compares it with the document beside it, and checks that.
#[track_caller]
fn check(tool: &str, expected: &str) -> World {
    let world = World::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents/import");
    for file in std::fs::read_dir(examples.join(tool)).unwrap() {
        let file = file.unwrap();
        let name = format!("{tool}/{}", file.file_name().to_str().unwrap());
        world.write(&name, std::fs::read(file.path()).unwrap());
    }
    let ran = world.run(&format!("import {tool} {tool}")).exits(0);
    let expected = Data::read_from(&examples.join(expected), None);
    Assert::new().action_env("SNAPSHOTS").eq(&ran.stdout, expected);
    // The same is told to people.
    let left = ran.stdout.lines().filter_map(|line| line.strip_prefix("#   "));
    let told = ran.stderr.lines().filter_map(|line| line.strip_prefix("left out: "));
    assert!(left.eq(told), "{}", ran.stderr);
    world.write("host.toml", &ran.stdout);
    world.run("check host.toml").exits(0);
    world
}

#[test]
fn a_configuration_of_netplan_becomes_a_document() {
    check("netplan", "netplan.toml");
}

#[test]
fn a_configuration_of_networkd_becomes_a_document() {
    check("networkd", "networkd.toml");
}

#[test]
fn a_configuration_of_ifupdown_becomes_a_document() {
    check("ifupdown", "ifupdown.toml");
}

/// The same network, as each of the three writes it.
const SAME: [(&str, &str, &str); 3] = [
    (
        "netplan",
        "a.yaml",
        "network:\n  ethernets:\n    va:\n      addresses: [10.0.0.1/24]\n      routes:\n      \
         - {to: default, via: 10.0.0.254}\n      - {to: 10.9.0.0/16, via: 10.0.0.9, metric: 50}\n  \
         bridges:\n    br0:\n      interfaces: [vb]\n      addresses: [10.1.0.1/24]\n      \
         parameters: {stp: false}\n",
    ),
    (
        "networkd",
        "a.network",
        "[Match]\nName=va\n[Network]\nAddress=10.0.0.1/24\nGateway=10.0.0.254\n[Route]\n\
         Destination=10.9.0.0/16\nGateway=10.0.0.9\nMetric=50\n",
    ),
    (
        "ifupdown",
        "interfaces",
        "auto va\niface va inet static\n address 10.0.0.1/24\n gateway 10.0.0.254\nauto br0\n\
         iface br0 inet static\n address 10.1.0.1/24\n bridge-ports vb\n bridge-stp off\n",
    ),
];

#[test]
fn what_is_imported_can_be_applied_and_is_then_as_declared() {
    for (tool, name, text) in SAME {
        let world = cabled();
        world.write(name, text);
        let document = world.run(&format!("import {tool} {name}")).exits(0).stdout;
        world.apply(&document);
        world.run("verify host.toml").exits(0);
        let addresses = world.ip("address show dev va");
        assert!(addresses.contains("10.0.0.1/24"), "{tool}: {addresses}");
        let routes = world.ip("route show");
        assert!(routes.contains("default via 10.0.0.254 dev va"), "{tool}: {routes}");
        if tool != "networkd" {
            assert!(world.ip("link show master br0").contains("vb"), "{tool}");
            assert!(world.ip("address show dev br0").contains("10.1.0.1/24"), "{tool}");
        }
        if tool != "ifupdown" {
            assert!(routes.contains("10.9.0.0/16 via 10.0.0.9"), "{tool}: {routes}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let world = World::new();
    world.write("a.yaml", "network:\n  ethernets: [\n");
    let refused = world.run("import netplan a.yaml").exits(1).stderr;
    assert!(refused.contains("a.yaml:"), "{refused}");
    world.write("a.network", "[Match]\nName=va\nthis is nothing\n");
    let refused = world.run("import networkd a.network").exits(1).stderr;
    assert!(refused.contains("a.network:3:1: `this is nothing` is neither"), "{refused}");
    world.write("interfaces", "iface\n");
    let refused = world.run("import ifupdown interfaces").exits(1).stderr;
    assert!(refused.contains("interfaces:1:1: `iface` without a name"), "{refused}");
    let refused = world.run("import networkd missing.network").exits(1).stderr;
    assert!(refused.contains("cannot read missing.network"), "{refused}");
    world.write("b.yaml", "network:\n  ethernets:\n    va:\n      addresses: [300.0.0.1/24]\n");
    let refused = world.run("import netplan b.yaml").exits(1).stderr;
    assert!(refused.contains("300.0.0.1/24"), "{refused}");
}
