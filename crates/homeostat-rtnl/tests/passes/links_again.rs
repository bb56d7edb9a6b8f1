//! Links that another process created again under the same name: the records of the ledger are about the former ones.

use homeostat_engine::OnRelease;
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, desired, explained, ip, listed};

const BRIDGE: (&str, &str) = ("link br0", "bridge up on");

fn mtu(namespace: &Namespace, name: &str) -> serde_json::Value {
    listed(namespace, &format!("link show dev {name}"))[0]["mtu"].clone()
}

#[test]
fn a_link_that_somebody_else_made_again_is_theirs_and_no_mark_was_taken_off() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    bench.converge(&desired(&[BRIDGE]));
    ip(&namespace, "link del br0");
    ip(&namespace, "link add br0 mtu 1300 type bridge");
    let declared = desired(&[("link br0", "bridge mtu 1400")]);
    let report = bench.pass(&declared);
    assert_eq!(explained(&report), ["conflict link br0: another owner"]);
    let reason =
        report.plan().findings_of(homeostat_engine::Kind::Conflict).next().unwrap().1.reason();
    assert_ne!(reason, "our mark was taken off");
    assert_eq!(mtu(&namespace, "br0"), 1300);
    bench.assert_quiet(&desired(&[]));
    assert_eq!(mtu(&namespace, "br0"), 1300);
}

#[test]
fn a_configured_link_that_was_made_again_has_another_original() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add eth9 type ifb");
    let mut bench = Bench::new();
    bench.config.on_release = OnRelease::Restore;
    let declared = desired(&[("link eth9 mtu", "1400")]);
    bench.converge(&declared);
    ip(&namespace, "link del eth9");
    ip(&namespace, "link add eth9 mtu 1200 type ifb");
    assert_eq!(bench.converge(&declared), ["~ link eth9 mtu"]);
    bench.converge(&desired(&[]));
    assert_eq!(mtu(&namespace, "eth9"), 1200);
}

#[test]
fn what_is_recorded_of_links_that_we_make_again_stands_after_one_pass() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add eth9 type ifb");
    let mut bench = Bench::new();
    let with = |id: &'static str| {
        desired(&[
            ("link vx0", id),
            ("link mv0", "macvlan parent vx0"),
            ("link x0", "veth peer x1"),
            ("link x1 mtu", "1400"),
            ("link eth9 up", "on"),
            ("link eth9 mtu", "1500"),
        ])
    };
    for id in ["vxlan id 5", "vxlan id 6"] {
        bench.pass(&with(id));
        let records = bench.records();
        bench.assert_quiet(&with(id));
        assert_eq!(bench.records(), records);
        assert!(!records.contains("identity: None"), "{records}");
    }
}
