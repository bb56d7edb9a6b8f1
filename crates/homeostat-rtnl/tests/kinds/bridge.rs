//! Bridges, and their ports.

use homeostat_rtnl::{Bridge, Centis, Link, LinkKind, LongCentis, VlanProtocol};
use serde_json::json;

use crate::bench::{Bench, IN_PLACE, NAME, desired, name};

fn link(bridge: Bridge) -> Link {
    Link::new(LinkKind::Bridge(bridge))
}

#[test]
fn a_bridge_is_made_with_its_options() {
    let mut bench = Bench::new();
    bench.check(&link(Bridge::default()), &[]);
    let bridge = Bridge {
        stp: Some(true),
        mcast_snooping: Some(false),
        priority: Some(100),
        forward_delay: Some(Centis(400)),
        hello_time: Some(Centis(300)),
        max_age: Some(Centis(900)),
        ageing_time: Some(Centis(6000)),
        ..Bridge::default()
    };
    let expected = [
        ("stp_state", json!(1)),
        ("mcast_snooping", json!(0)),
        ("priority", json!(100)),
        ("forward_delay", json!(400)),
        ("hello_time", json!(300)),
        ("max_age", json!(900)),
        ("ageing_time", json!(6000)),
    ];
    bench.check(&link(bridge), &expected);
}

#[test]
fn a_bridge_is_made_with_options_of_groups() {
    let mut bench = Bench::new();
    let time = |centis| Some(LongCentis(Centis(centis)));
    let full = Bridge {
        mcast_querier: Some(true),
        mcast_query_use_ifaddr: Some(true),
        mcast_router: Some(2),
        mcast_igmp_version: Some(3),
        mcast_mld_version: Some(2),
        mcast_hash_max: Some(1024),
        mcast_last_member_count: Some(3),
        mcast_startup_query_count: Some(4),
        mcast_last_member_interval: time(200),
        mcast_membership_interval: time(25_000),
        mcast_querier_interval: time(24_000),
        mcast_query_interval: time(12_000),
        mcast_query_response_interval: time(900),
        mcast_startup_query_interval: time(3_000),
        ..Bridge::default()
    };
    let expected = [
        ("mcast_querier", json!(1)),
        ("mcast_query_use_ifaddr", json!(1)),
        ("mcast_router", json!(2)),
        ("mcast_igmp_version", json!(3)),
        ("mcast_mld_version", json!(2)),
        ("mcast_hash_max", json!(1024)),
        ("mcast_last_member_cnt", json!(3)),
        ("mcast_startup_query_cnt", json!(4)),
        ("mcast_last_member_intvl", json!(200)),
        ("mcast_membership_intvl", json!(25_000)),
        ("mcast_querier_intvl", json!(24_000)),
        ("mcast_query_intvl", json!(12_000)),
        ("mcast_query_response_intvl", json!(900)),
        ("mcast_startup_query_intvl", json!(3_000)),
    ];
    bench.check(&link(full.clone()), &expected);
    for to in [
        Bridge { mcast_querier: Some(false), ..full.clone() },
        Bridge { mcast_igmp_version: Some(2), ..full.clone() },
        Bridge { mcast_query_interval: time(15_000), ..full.clone() },
    ] {
        bench.changes((&link(full.clone()), &link(to)), IN_PLACE);
    }
}

#[test]
fn every_option_of_a_bridge_changes_in_place() {
    let mut bench = Bench::new();
    for to in [
        Bridge { stp: Some(true), ..Bridge::default() },
        Bridge { mcast_snooping: Some(false), ..Bridge::default() },
        Bridge { priority: Some(7), ..Bridge::default() },
        Bridge { forward_delay: Some(Centis(700)), ..Bridge::default() },
        Bridge { hello_time: Some(Centis(100)), ..Bridge::default() },
        Bridge { max_age: Some(Centis(700)), ..Bridge::default() },
        Bridge { ageing_time: Some(Centis(0)), ..Bridge::default() },
    ] {
        bench.changes((&link(Bridge::default()), &link(to)), IN_PLACE);
    }
}

/// Quirk: an odd number of hundredths of a second is none of ticks.
#[test]
fn bridge_times_in_ticks() {
    let mut bench = Bench::new();
    for odd in [199, 201, 333] {
        let bridge = Bridge { hello_time: Some(Centis(odd)), ..Bridge::default() };
        bench.converge(&desired(&[(NAME, link(bridge))]));
    }
}

#[test]
fn vlan_options_are_set_where_the_kernel_filters_vlans() {
    let mut bench = Bench::new();
    bench.ip("link add probe type bridge").unwrap();
    let can_filter = bench.ip("link set probe type bridge vlan_filtering 1").is_ok();
    bench.ip("link del probe").unwrap();
    let bridge = Bridge {
        vlan_filtering: Some(true),
        vlan_protocol: Some(VlanProtocol::Stag),
        vlan_default_pvid: Some(7),
        ..Bridge::default()
    };
    if can_filter {
        let expected = [
            ("vlan_filtering", json!(1)),
            ("vlan_protocol", json!("802.1ad")),
            ("vlan_default_pvid", json!(7)),
        ];
        bench.check(&link(bridge.clone()), &expected);
        bench.changes((&link(Bridge::default()), &link(bridge)), IN_PLACE);
        return;
    }
    let report = bench.pass(&desired(&[(NAME, link(bridge))]));
    let lines = crate::bench::explained(&report);
    let options = "with the options `vlan-filtering`, `vlan-protocol`, `vlan-default-pvid`";
    assert!(
        lines[0].contains("Operation not supported") && lines[0].contains(options),
        "{lines:?}"
    );
    assert!(bench.ip(&format!("link show dev {NAME}")).is_err(), "half a link is none");
}

#[test]
fn a_port_is_put_into_its_bridge_and_into_another() {
    let mut bench = Bench::new();
    let port = |master: &str| Link {
        master: Some(name(master)),
        up: Some(true),
        ..Link::new(LinkKind::Ifb)
    };
    let bridge = || link(Bridge::default());
    let with = |port: Link| desired(&[("a-port", port), ("br0", bridge()), ("br1", bridge())]);
    let done = bench.converge(&with(port("br0")));
    assert_eq!(done, ["+ link br0", "+ link br1", "+ link a-port"], "masters come first");
    assert_eq!(bench.shown("a-port")["master"], "br0");
    assert_eq!(bench.converge(&with(port("br1"))), ["~ link a-port"]);
    bench.ip("link set a-port nomaster").unwrap();
    assert_eq!(bench.converge(&with(port("br1"))), ["~ link a-port"]);
    assert_eq!(bench.shown("a-port")["master"], "br1");
}

/// Quirk: a bridge whose MTU was not set follows its ports, and the message that makes it does not
/// count as setting.
#[test]
fn a_bridge_follows_its_ports() {
    for (mtu, ports) in [(1400, 1500), (1500, 1400), (68, 1500)] {
        let mut bench = Bench::new();
        let bridge = Link { mtu: Some(mtu), ..link(Bridge::default()) };
        let port = Link { mtu: Some(ports), master: Some(name("br0")), ..Link::new(LinkKind::Ifb) };
        let done = bench.converge(&desired(&[("br0", bridge), ("a-port", port)]));
        assert_eq!(done, ["+ link br0", "+ link a-port"]);
        assert_eq!(bench.shown("br0")["mtu"], mtu);
    }
}
