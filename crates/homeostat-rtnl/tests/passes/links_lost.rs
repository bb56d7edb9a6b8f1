//! What goes with links: foreign things are never lost without leave.

use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, cable, desired, explained, ip, listed};

const UP: (&str, &str) = ("link br0", "bridge up on");

/// A bridge of ours, with something foreign on it.
fn with(foreign: &str) -> (Namespace, Bench) {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[UP]));
    ip(&namespace, foreign);
    (namespace, bench)
}

fn held(bench: &mut Bench, entries: &[(&str, &str)]) -> String {
    let mut lines = explained(&bench.pass(&desired(entries)));
    lines.retain(|line| line.starts_with("held"));
    lines.join("; ")
}

/// Quirk: whatever is on a link goes with it, so that it is held for what is foreign.
#[test]
fn links_take_along() {
    for (foreign, key) in [
        ("address add 10.0.0.1/24 dev br0", "address 10.0.0.1/24 dev br0"),
        ("-6 address add 2001:db8::1/64 dev br0", "address 2001:db8::1/64 dev br0"),
        ("route add 10.5.0.0/16 dev br0 proto static", "route 10.5.0.0/16"),
        ("-6 route add 2001:db8:5::/48 dev br0 proto static", "route 2001:db8:5::/48"),
        ("nexthop add id 7 dev br0", "nexthop 7"),
        ("neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev br0", "neighbour 10.0.0.9 dev br0"),
        ("link set va master br0", "link va in its master"),
    ] {
        let (namespace, mut bench) = with(foreign);
        let before = listed(&namespace, "-d address show dev br0")[0]["addr_info"].clone();
        let held = held(&mut bench, &[]);
        assert!(held.contains(&format!("it would take `{key}` along")), "{foreign}: {held}");
        let after = listed(&namespace, "-d address show dev br0")[0]["addr_info"].clone();
        assert_eq!(before.as_array().map(Vec::len), after.as_array().map(Vec::len));
    }
}

#[test]
fn making_a_link_again_with_foreign_things_on_it_is_held_and_nothing_else_fails() {
    let (namespace, mut bench) = with("address add 10.0.0.1/24 dev br0");
    let declared = [("link br0", "vxlan id 5 up on"), ("address 10.9.0.1/24 dev br0", "")];
    let lines = explained(&bench.pass(&desired(&declared)));
    assert!(lines.iter().any(|line| line.starts_with("held link br0")), "{lines:#?}");
    assert!(lines.contains(&"+ address 10.9.0.1/24 dev br0".to_owned()), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.starts_with("failed")), "{lines:#?}");
    assert_eq!(listed(&namespace, "-d link show dev br0")[0]["linkinfo"]["info_kind"], "bridge");
}

#[test]
fn setting_a_link_down_with_foreign_routes_on_it_is_held() {
    for foreign in [
        "route add 10.5.0.0/16 dev br0 proto static",
        "-6 route add 2001:db8:5::/48 dev br0 proto static",
    ] {
        let (_namespace, mut bench) = with(foreign);
        let held = held(&mut bench, &[("link br0", "bridge up off")]);
        assert!(held.starts_with("held link br0"), "{foreign}: {held}");
    }
    // IPv4 addresses stay.
    let (_namespace, mut bench) = with("address add 10.0.0.1/24 dev br0");
    bench.converge(&desired(&[("link br0", "bridge up off")]));
}

#[test]
fn a_configured_link_is_not_set_down_under_foreign_routes() {
    let namespace = cable();
    ip(&namespace, "route add 10.5.0.0/16 dev va proto static");
    let held = held(&mut Bench::new(), &[("link va up", "off")]);
    assert!(held.starts_with("held link va up: it would take `route 10.5.0.0/16`"), "{held}");
}

#[test]
fn the_other_end_of_our_own_pair_is_nobodys_loss() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let declared = desired(&[("link x0", "veth peer x1 up on"), ("link x1 up", "on")]);
    bench.converge(&declared);
    assert_eq!(bench.converge(&desired(&[])).len(), 2);
    assert!(namespace.ip(&["link", "show", "dev", "x1"]).is_err());
    bench.converge(&declared);
    ip(&namespace, "address add 10.0.0.1/24 dev x1");
    let held = held(&mut bench, &[]);
    assert!(held.contains("held link x0: it would take `address 10.0.0.1/24 dev x1`"), "{held}");
}
