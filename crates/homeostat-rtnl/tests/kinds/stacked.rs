//! Kinds that stand on another link, and VRFs.

use homeostat_engine::Explain as _;
use homeostat_rtnl::{
    Bridge, Ipvlan, IpvlanMode, Link, LinkKind, LinkRef, Macvlan, MacvlanMode, Vlan, VlanProtocol,
    Vrf,
};
use serde_json::json;

use crate::bench::{AGAIN, Bench, IN_PLACE, NAME, desired, explained, name, on_low};

fn macvlan(mode: Option<MacvlanMode>) -> Link {
    on_low(LinkKind::Macvlan(Macvlan { mode }))
}

fn ipvlan(mode: Option<IpvlanMode>) -> Link {
    on_low(LinkKind::Ipvlan(Ipvlan { mode }))
}

fn vlan(id: u16, protocol: Option<VlanProtocol>) -> Link {
    on_low(LinkKind::Vlan(Vlan { id, protocol }))
}

#[test]
fn a_macvlan_is_made_in_every_mode() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type macvlan") {
        return bench.lacks(&macvlan(None), "macvlan");
    }
    bench.check(&macvlan(None), &[]);
    for mode in MacvlanMode::ALL {
        let word = serde_json::to_value(mode).unwrap();
        bench.check(&macvlan(Some(*mode)), &[("mode", word)]);
    }
}

/// Quirk: what is in passthru mode stays in it.
#[test]
fn macvlan_passthru_fixed() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type macvlan") {
        return bench.lacks(&macvlan(None), "macvlan");
    }
    let of = |mode| macvlan(Some(mode));
    let (bridge, passthru) = (of(MacvlanMode::Bridge), of(MacvlanMode::Passthru));
    bench.changes((&bridge, &of(MacvlanMode::Private)), IN_PLACE);
    bench.changes((&bridge, &passthru), AGAIN);
    bench.changes((&passthru, &bridge), AGAIN);
}

#[test]
fn another_parent_is_another_macvlan() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type macvlan") {
        return bench.lacks(&macvlan(None), "macvlan");
    }
    let other = Link { parent: Some(LinkRef::here(name("low1"))), ..macvlan(None) };
    bench.changes((&macvlan(None), &other), AGAIN);
}

#[test]
fn an_ipvlan_is_made_in_every_mode_and_changes_it_in_place() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type ipvlan") {
        return bench.lacks(&ipvlan(None), "ipvlan");
    }
    bench.check(&ipvlan(None), &[]);
    for mode in IpvlanMode::ALL {
        let word = serde_json::to_value(mode).unwrap();
        bench.check(&ipvlan(Some(*mode)), &[("mode", word)]);
    }
    bench.changes((&ipvlan(Some(IpvlanMode::L2)), &ipvlan(Some(IpvlanMode::L3))), IN_PLACE);
}

#[test]
fn a_vlan_is_made_and_has_its_tag_for_good() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type vlan id 5") {
        return bench.lacks(&vlan(5, None), "8021q");
    }
    bench.check(&vlan(5, None), &[("id", json!(5)), ("protocol", json!("802.1Q"))]);
    let provider = vlan(6, Some(VlanProtocol::Stag));
    bench.check(&provider, &[("id", json!(6)), ("protocol", json!("802.1ad"))]);
    bench.changes((&vlan(5, None), &vlan(6, None)), AGAIN);
    bench.changes((&vlan(6, None), &provider), AGAIN);
}

#[test]
fn a_vrf_is_made_and_has_its_table_for_good() {
    let mut bench = Bench::new();
    let vrf = |table| Link::new(LinkKind::Vrf(Vrf { table }));
    if !bench.has("probe type vrf table 9") {
        return bench.lacks(&vrf(100), "vrf");
    }
    bench.check(&vrf(100), &[("table", json!(100))]);
    bench.changes((&vrf(100), &vrf(101)), AGAIN);
    let port = Link { master: Some(name("red")), ..Link::new(LinkKind::Dummy) };
    bench.converge(&desired(&[("a-port", port.clone()), ("red", vrf(100))]));
    assert_eq!(bench.shown("a-port")["master"], "red");
    let done = bench.converge(&desired(&[("a-port", port), ("red", vrf(101))]));
    assert_eq!(done, ["-/+ link red", "~ link a-port"], "it is put back into its master");
}

#[test]
fn children_come_after_their_parents_whatever_their_names() {
    let mut bench = Bench::new();
    let parent = |text| Some(LinkRef::here(name(text)));
    let child = Link { parent: parent("b0"), ..macvlan(None) };
    let bridge = Link::new(LinkKind::Bridge(Bridge::default()));
    if !bench.has("probe link low0 type macvlan") {
        return bench.lacks(&macvlan(None), "macvlan");
    }
    let done = bench.converge(&desired(&[("a0", child), ("b0", bridge)]));
    assert_eq!(done, ["+ link b0", "+ link a0"]);
}

/// Quirk: VLANs come up with the link below them.
#[test]
fn a_vlan_stays_down_when_its_parent_comes_up() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type vlan id 5") {
        return bench.lacks(&vlan(5, None), "8021q");
    }
    let parent = |up| Link { up: Some(up), ..Link::new(LinkKind::Bridge(Bridge::default())) };
    let on_parent = || Some(LinkRef::here(name("parent")));
    let above = || Link { up: Some(false), parent: on_parent(), ..vlan(5, None) };
    bench.settle(&desired(&[("parent", parent(false)), (NAME, above())]));
    bench.settle(&desired(&[("parent", parent(true)), (NAME, above())]));
    let flags = |link: &str| bench.shown(link)["flags"].as_array().unwrap().clone();
    assert!(flags("parent").contains(&"UP".into()));
    assert!(!flags(NAME).contains(&"UP".into()));
}

#[test]
fn a_vlan_that_cannot_be_up_on_its_parent_is_not_converged() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type vlan id 5") {
        return bench.lacks(&vlan(5, None), "8021q");
    }
    let parent = |up| Link { up: Some(up), ..Link::new(LinkKind::Bridge(Bridge::default())) };
    let on_parent = || Some(LinkRef::here(name("parent")));
    let above = || Link { up: Some(true), parent: on_parent(), ..vlan(5, None) };
    bench.settle(&desired(&[("parent", parent(true)), (NAME, above())]));
    let declared = desired(&[("parent", parent(false)), (NAME, above())]);
    for _ in 0..2 {
        let report = bench.pass(&declared);
        assert!(!report.is_converged(), "{:#?}", explained(&report));
    }
}

/// Quirk: an ipvlan has the MTU of the link below it, and the kernel says so to nobody.
#[test]
fn an_ipvlan_keeps_its_declared_mtu_when_that_of_its_parent_changes() {
    let mut bench = Bench::new();
    if !bench.has("probe link low0 type ipvlan") {
        return bench.lacks(&ipvlan(None), "ipvlan");
    }
    let parent = |mtu| Link { mtu: Some(mtu), ..Link::new(LinkKind::Dummy) };
    let on_parent = || Some(LinkRef::here(name("parent")));
    let above = || Link { mtu: Some(1300), parent: on_parent(), ..ipvlan(None) };
    for mtu in [1400, 1500, 1350] {
        bench.settle(&desired(&[("parent", parent(mtu)), (NAME, above())]));
        assert_eq!(bench.shown(NAME)["mtu"], 1300, "over {mtu}");
    }
}
