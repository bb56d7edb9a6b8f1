//! Links of which something is held back for another owner: the rest of them is kept as declared.

use homeostat_engine::Cascades;
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

fn shown(namespace: &Namespace, link: &str) -> serde_json::Value {
    listed(namespace, &format!("-d link show dev {link}")).remove(0)
}

fn is_up(namespace: &Namespace, link: &str) -> bool {
    shown(namespace, link)["flags"].as_array().unwrap().contains(&"UP".into())
}

/// Passes over a document of which something is held back, until nothing is written; what was written.
fn written(bench: &mut Bench, entries: &[Declared<'_>]) -> Vec<String> {
    let declared = desired(entries);
    let mut written = Vec::new();
    for _ in 0..3 {
        let report = bench.pass(&declared);
        let (held, done): (Vec<String>, Vec<String>) =
            explained(&report).into_iter().partition(|line| line.starts_with("held link x0: "));
        assert_eq!(held.len(), 1, "{done:?}");
        if done.is_empty() {
            return written;
        }
        written.extend(done);
    }
    panic!("it does not come to rest: {written:?}");
}

/// A bridge of others, with the MTU of its ports, and our port in it.
fn port_of_a_foreign_bridge() -> (Namespace, Bench) {
    let namespace = cable();
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set va master br0");
    let mut bench = Bench::new();
    bench.converge(&desired(&[("link x0", "ifb up on alias old master br0")]));
    (namespace, bench)
}

#[test]
fn a_link_whose_mtu_is_held_back_comes_up_again() {
    let (namespace, mut bench) = port_of_a_foreign_bridge();
    let small = [("link x0", "ifb up on mtu 1300")];
    assert_eq!(written(&mut bench, &small), Vec::<String>::new());
    ip(&namespace, "link set x0 down");
    assert_eq!(written(&mut bench, &small), ["~ link x0"]);
    assert!(is_up(&namespace, "x0"));
    assert_eq!(shown(&namespace, "x0")["mtu"], 1500);
    assert_eq!(shown(&namespace, "br0")["mtu"], 1500);
}

#[test]
fn what_costs_others_nothing_is_written_beside_what_is_held_back() {
    let (namespace, mut bench) = port_of_a_foreign_bridge();
    let declared = [("link x0", "ifb up on mtu 1300 alias new")];
    assert_eq!(written(&mut bench, &declared), ["~ link x0"]);
    let alias = shown(&namespace, "x0")["ifalias"].clone();
    assert!(alias.as_str().unwrap().starts_with("new "), "{alias}");
    bench.config.guards.cascades = Cascades::Allow;
    assert_eq!(bench.converge(&desired(&declared)), ["~ link x0"]);
    assert_eq!(shown(&namespace, "x0")["mtu"], 1300);
}

#[test]
fn a_link_that_may_not_be_made_again_is_kept_up_meanwhile() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[("link x0", "vxlan id 40 up on")]));
    ip(&namespace, "address add 10.7.0.1/24 dev x0");
    let declared = [("link x0", "vxlan id 41 up on mtu 1400")];
    assert_eq!(written(&mut bench, &declared), ["~ link x0"]);
    ip(&namespace, "link set x0 down");
    assert_eq!(written(&mut bench, &declared), ["~ link x0"]);
    assert!(is_up(&namespace, "x0"));
    let shown = shown(&namespace, "x0");
    assert_eq!((&shown["mtu"], &shown["linkinfo"]["info_data"]["id"]), (&1400.into(), &40.into()));
}
