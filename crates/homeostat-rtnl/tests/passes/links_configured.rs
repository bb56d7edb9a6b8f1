//! Links that are only configured: each declared field is kept, and its original put back.

use homeostat_engine::{Explain as _, OnRelease};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, cable, desired, explained, ip, listed};

fn shown(namespace: &Namespace, name: &str) -> serde_json::Value {
    listed(namespace, &format!("-d link show dev {name}")).remove(0)
}

const FIELDS: [(&str, &str); 5] = [
    ("link va mtu", "1400"),
    ("link va txqueuelen", "77"),
    ("link va mac", "02:00:00:00:00:0a"),
    ("link va alias", "office"),
    ("link va master", "br0"),
];

#[test]
fn declared_fields_are_kept_and_their_originals_put_back() {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge");
    // One whose MTU was set does not follow its ports.
    ip(&namespace, "link set br0 mtu 1300");
    ip(&namespace, "link set va alias old");
    let before = shown(&namespace, "va");
    let mut bench = Bench::new();
    bench.config.on_release = OnRelease::Restore;
    let mut done = bench.converge(&desired(&FIELDS));
    done.sort();
    let fields = ["alias", "mac", "master", "mtu", "txqueuelen"];
    assert_eq!(done, fields.map(|field| format!("~ link va {field}")));
    let after = shown(&namespace, "va");
    assert_eq!((&after["mtu"], &after["master"]), (&1400.into(), &"br0".into()));
    assert_eq!(after["txqlen"], 77);
    ip(&namespace, "link set va txqueuelen 78");
    assert_eq!(bench.heal(&desired(&FIELDS)), ["~ link va txqueuelen"]);
    assert_eq!(
        (&after["address"], &after["ifalias"]),
        (&"02:00:00:00:00:0a".into(), &"office".into())
    );
    assert_eq!(bench.converge(&desired(&[])).len(), 5);
    let restored = shown(&namespace, "va");
    for part in ["mtu", "txqlen", "address", "ifalias", "master", "group", "flags"] {
        assert_eq!(restored[part], before[part], "{part}");
    }
}

#[test]
fn what_is_not_declared_is_left_alone() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = desired(&[("link va mtu", "1400")]);
    bench.converge(&declared);
    ip(&namespace, "link set va alias mine");
    ip(&namespace, "link set va down");
    bench.assert_quiet(&declared);
    ip(&namespace, "link set va mtu 1300");
    assert_eq!(bench.converge(&declared), ["~ link va mtu"]);
    assert_eq!(shown(&namespace, "va")["ifalias"], "mine");
}

#[test]
fn a_field_that_is_as_declared_is_claimed_and_given_up_without_a_write() {
    let namespace = cable();
    let mut bench = Bench::new();
    assert_eq!(bench.converge(&desired(&[("link va up", "on")])).len(), 0);
    ip(&namespace, "link set va down");
    assert_eq!(bench.converge(&desired(&[("link va up", "on")])), ["~ link va up"]);
    assert_eq!(bench.converge(&desired(&[])), ["- link va up"]);
    assert!(shown(&namespace, "va")["flags"].as_array().unwrap().contains(&"UP".into()));
}

#[test]
fn a_link_that_is_not_there_is_waited_for_and_found_when_it_comes() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared =
        desired(&[("link eth9 mtu", "1400"), ("link eth9 up", "on"), ("link va master", "br9")]);
    let mut lines = explained(&bench.pass(&declared));
    lines.sort();
    let waiting = [
        "pending link eth9 mtu: link eth9",
        "pending link eth9 up: link eth9",
        "pending link va master: link br9",
    ];
    assert_eq!(lines, waiting);
    ip(&namespace, "link add eth9 type ifb");
    ip(&namespace, "link add br9 type bridge");
    bench.converge(&declared);
    ip(&namespace, "link del eth9");
    assert!(!bench.pass(&declared).is_converged());
    ip(&namespace, "link add eth9 mtu 1200 type ifb");
    bench.converge(&declared);
    assert_eq!(shown(&namespace, "eth9")["mtu"], 1400);
}

#[test]
fn an_existing_link_goes_into_a_bridge_that_is_made_in_the_same_pass() {
    let namespace = cable();
    let mut bench = Bench::new();
    let done = bench.converge(&desired(&[("link br0", "bridge up on"), ("link va master", "br0")]));
    assert_eq!(done, ["+ link br0", "~ link va master"]);
    let done = bench.converge(&desired(&[("link br0", "bridge"), ("link va master", "br0")]));
    assert!(done.is_empty());
    ip(&namespace, "link del br0");
    let declared = desired(&[("link br0", "bridge up on"), ("link va master", "br0")]);
    assert_eq!(bench.converge(&declared).len(), 2, "it is put back into its master");
    assert_eq!(shown(&namespace, "va")["master"], "br0");
}

#[test]
fn the_marks_of_others_stay_in_an_alias_that_is_configured() {
    let namespace = cable();
    ip(&namespace, "link set va alias homeostat:blue");
    let mut bench = Bench::new();
    bench.converge(&desired(&[("link va alias", "office")]));
    assert_eq!(shown(&namespace, "va")["ifalias"], "office homeostat:blue");
}

#[test]
fn the_end_of_a_pair_that_goes_with_the_other_is_not_converged() {
    let _namespace = cable();
    let mut bench = Bench::new();
    let other_end = ("link x1 up", "on");
    bench.converge(&desired(&[("link x0", "veth peer x1"), other_end]));
    let lines = explained(&bench.pass(&desired(&[other_end])));
    assert!(lines.contains(&"- link x0".to_owned()), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("pending link x1 up")), "{lines:?}");
    assert_eq!(explained(&bench.pass(&desired(&[other_end]))), ["pending link x1 up: link x1"]);
}
