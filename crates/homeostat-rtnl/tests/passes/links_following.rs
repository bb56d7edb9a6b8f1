//! Values of links that the kernel changes along with another link: a report says "converged" only if they are as
//! declared, and the next pass sees to them.

use homeostat_engine::Explain as _;
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

/// Passes until one is converged, and what they did; a report that says so is true.
fn settle(bench: &mut Bench, entries: &[Declared<'_>]) -> Vec<String> {
    let declared = desired(entries);
    let mut done = Vec::new();
    for _ in 0..3 {
        let report = bench.pass(&declared);
        done.extend(explained(&report));
        if report.is_converged() {
            bench.assert_quiet(&declared);
            return done;
        }
    }
    panic!("not converged: {done:#?}");
}

fn shown(namespace: &Namespace, link: &str, value: &str) -> serde_json::Value {
    listed(namespace, &format!("link show dev {link}")).remove(0)[value].clone()
}

/// `va` is in the bridge `br0`, which has the MTU of its ports.
fn bridged() -> Namespace {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set va master br0");
    namespace
}

const BRIDGE: Declared<'_> = ("link br0 mtu", "1500");

#[test]
fn a_bridge_has_its_declared_mtu_after_one_of_its_ports_got_a_smaller_one() {
    let namespace = bridged();
    let mut bench = Bench::new();
    settle(&mut bench, &[BRIDGE]);
    settle(&mut bench, &[BRIDGE, ("link va mtu", "1300")]);
    assert_eq!(shown(&namespace, "br0", "mtu"), 1500);
    assert_eq!(shown(&namespace, "va", "mtu"), 1300);
}

#[test]
fn a_bridge_has_its_declared_mtu_after_a_smaller_port_has_joined() {
    for port in [
        [("link x0", "veth peer x1 mtu 1300 master br0"), ("link x1 up", "on")],
        [("link vb mtu", "1300"), ("link vb master", "br0")],
    ] {
        let namespace = bridged();
        let mut bench = Bench::new();
        settle(&mut bench, &[BRIDGE]);
        settle(&mut bench, &[BRIDGE, port[0], port[1]]);
        assert_eq!(shown(&namespace, "br0", "mtu"), 1500, "{port:?}");
    }
}

#[test]
fn a_bridge_of_ours_has_its_declared_mtu_after_its_ports_have_changed() {
    let namespace = cable();
    let mut bench = Bench::new();
    let small = ("link x0", "ifb mtu 1300 master br0");
    settle(&mut bench, &[("link br0", "bridge"), ("link x0", "ifb master br0")]);
    settle(&mut bench, &[("link br0", "bridge mtu 1500"), small]);
    assert_eq!(shown(&namespace, "br0", "mtu"), 1500);
}

#[test]
fn a_bridge_has_its_declared_mtu_after_its_smallest_port_grew_or_left() {
    let small = ("link br0 mtu", "1300");
    for port in ["link va mtu", "link va master"] {
        let namespace = bridged();
        ip(&namespace, "link set va mtu 1300");
        ip(&namespace, "link add br1 type bridge");
        ip(&namespace, "link set br1 mtu 1400");
        ip(&namespace, "link set vb master br0");
        let mut bench = Bench::new();
        settle(&mut bench, &[small]);
        let value = if port.ends_with("mtu") { "1500" } else { "br1" };
        settle(&mut bench, &[small, (port, value)]);
        assert_eq!(shown(&namespace, "br0", "mtu"), 1300, "{port}");
    }
}

#[test]
fn a_bridge_of_ours_has_its_declared_hardware_address_after_a_port_with_a_lower_one_has_joined() {
    let namespace = cable();
    let mut bench = Bench::new();
    ip(&namespace, "link set va address 02:00:00:00:00:0f");
    ip(&namespace, "link set vb address 02:00:00:00:00:01");
    let bridge = ("link br0", "bridge");
    settle(&mut bench, &[bridge, ("link va master", "br0")]);
    assert_eq!(shown(&namespace, "br0", "address"), "02:00:00:00:00:0f");
    let bridge = ("link br0", "bridge mac 02:00:00:00:00:0f");
    settle(&mut bench, &[bridge, ("link va master", "br0"), ("link vb master", "br0")]);
    assert_eq!(shown(&namespace, "br0", "address"), "02:00:00:00:00:0f");
}

#[test]
fn a_macvlan_that_cannot_be_larger_than_its_parent_is_not_converged() {
    let namespace = cable();
    let mut bench = Bench::new();
    let above = ("link m0", "macvlan parent va mtu 1500");
    settle(&mut bench, &[above]);
    let declared = desired(&[above, ("link va mtu", "1300")]);
    let report = bench.pass(&declared);
    assert!(!report.is_converged(), "{:#?}", explained(&report));
    let lines = explained(&bench.pass(&declared));
    assert!(lines.iter().any(|line| line.starts_with("failed link m0")), "{lines:#?}");
    assert_eq!(shown(&namespace, "m0", "mtu"), 1300);
}
