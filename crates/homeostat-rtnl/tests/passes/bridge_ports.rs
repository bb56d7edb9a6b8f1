//! What a link has as a port of a bridge, judged by `ip`.

use homeostat_engine::OnRelease;
use homeostat_rtnl::Key;
use homeostat_testkit::namespace::Namespace;
use serde_json::{Value, json};

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

const BRIDGE: Declared<'_> = ("link br0", "bridge up on");
const PORT: Declared<'_> = ("link va master", "br0");

/// Each option: its word in keys, a value other than the usual one, the word of `ip`, and what `ip` then says.
fn options() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let flag = |key, word, is_on: bool| (key, if is_on { "on" } else { "off" }, word, json!(is_on));
    vec![
        flag("bridge-port.learning", "learning", false),
        flag("bridge-port.flood", "flood", false),
        flag("bridge-port.mcast-flood", "mcast_flood", false),
        flag("bridge-port.bcast-flood", "bcast_flood", false),
        flag("bridge-port.neigh-suppress", "neigh_suppress", true),
        flag("bridge-port.isolated", "isolated", true),
        flag("bridge-port.hairpin", "hairpin", true),
        flag("bridge-port.bpdu-guard", "guard", true),
        flag("bridge-port.root-guard", "root_block", true),
        flag("bridge-port.fast-leave", "fastleave", true),
        ("bridge-port.cost", "1234", "cost", json!(1234)),
        ("bridge-port.priority", "7", "priority", json!(7)),
    ]
}

/// What `ip` says of the port.
fn shown(namespace: &Namespace, link: &str) -> Value {
    let links = listed(namespace, &format!("-d link show dev {link}"));
    links[0]["linkinfo"]["info_slave_data"].clone()
}

#[test]
fn every_option_of_a_port_is_written_healed_and_given_back() {
    for (word, value, name, expected) in options() {
        let namespace = cable();
        ip(&namespace, "link add br0 type bridge");
        ip(&namespace, "link set va master br0");
        let usual = shown(&namespace, "va")[name].clone();
        assert_ne!(usual, expected, "{word}");
        let mut bench = Bench::new();
        bench.config.on_release = OnRelease::Restore;
        let key = format!("link va {word}");
        assert_eq!(key.parse::<Key>().unwrap().to_string(), key);
        let declared = desired(&[(&key, value)]);
        assert_eq!(bench.converge(&declared), [format!("~ {key}")]);
        assert_eq!(shown(&namespace, "va")[name], expected, "{word}");
        bench.heal(&declared);
        let back = match &usual {
            Value::Bool(flag) => if *flag { "on" } else { "off" }.to_owned(),
            number => number.to_string(),
        };
        ip(&namespace, &format!("link set va type bridge_slave {name} {back}"));
        assert_eq!(shown(&namespace, "va")[name], usual, "{word}");
        assert_eq!(bench.heal(&declared), [format!("~ {key}")]);
        assert_eq!(shown(&namespace, "va")[name], expected, "{word}");
        bench.converge(&desired(&[]));
        assert_eq!(shown(&namespace, "va")[name], usual, "{word}");
    }
}

#[test]
fn options_that_are_not_declared_are_left_alone() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[BRIDGE, PORT]));
    ip(&namespace, "link set va type bridge_slave learning off isolated on cost 77");
    bench.converge(&desired(&[BRIDGE, PORT, ("link va bridge-port.learning", "on")]));
    let port = shown(&namespace, "va");
    assert_eq!(
        [&port["learning"], &port["isolated"], &port["cost"]],
        [&json!(true), &json!(true), &json!(77)]
    );
}

#[test]
fn a_port_has_its_options_in_the_pass_that_puts_it_into_its_bridge() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = desired(&[
        BRIDGE,
        PORT,
        ("link va bridge-port.learning", "off"),
        ("link x0", "veth peer x1 master br0"),
        ("link x0 bridge-port.isolated", "on"),
    ]);
    let done = bench.converge(&declared);
    assert_eq!(
        done,
        [
            "+ link br0",
            "+ link x0",
            "~ link va master",
            "+ link va bridge-port.learning",
            "+ link x0 bridge-port.isolated"
        ]
    );
    assert_eq!(shown(&namespace, "va")["learning"], false);
    assert_eq!(shown(&namespace, "x0")["isolated"], true);
    ip(&namespace, "link del br0");
    bench.converge(&declared);
    assert_eq!(shown(&namespace, "va")["learning"], false);
    assert_eq!(shown(&namespace, "x0")["isolated"], true);
}

#[test]
fn what_is_declared_of_a_port_waits_until_the_link_is_in_a_bridge() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = desired(&[
        ("link va bridge-port.learning", "off"),
        ("link va vlans", "10"),
        ("link vb mtu", "1400"),
    ]);
    let lines = explained(&bench.pass(&declared));
    assert_eq!(
        lines,
        [
            "~ link vb mtu",
            "pending link va vlans: `va` to be in a bridge",
            "pending link va bridge-port.learning: `va` to be in a bridge"
        ]
    );
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set va master br0");
    let done = bench.heal(&declared);
    assert!(done.contains(&"~ link va bridge-port.learning".to_owned()), "{done:?}");
    assert_eq!(shown(&namespace, "va")["learning"], false);
}

#[test]
fn an_address_does_not_wait_for_the_options_of_its_port() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared =
        desired(&[("link va bridge-port.learning", "off"), ("address 10.0.0.1/24 dev va", "")]);
    bench.pass(&declared);
    assert_eq!(crate::bench::addresses(&namespace), ["10.0.0.1/24"]);
}

/// A kernel may be built without VLANs of bridges; then it is said, and nothing else waits for it.
#[test]
fn a_kernel_without_vlans_of_bridges_is_named() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set va master br0");
    let can_filter =
        namespace.ip(&["link", "set", "br0", "type", "bridge", "vlan_filtering", "1"]).is_ok();
    let mut bench = Bench::new();
    let lines = explained(&bench.pass(&desired(&[("link va vlans", "10")])));
    if can_filter {
        assert_eq!(lines, ["~ link va vlans"]);
    } else {
        assert!(
            lines[0].starts_with("failed link va vlans: the bridges of this kernel have no VLANs"),
            "{lines:?}"
        );
    }
}
