//! Bonds, and the links in them.

use homeostat_rtnl::{
    AdSelect, ArpTargets, Bond, BondMode, FailOverMac, HashPolicy, LacpRate, Link, LinkKind,
    LinkName, PrimaryReselect,
};
use serde_json::json;

use crate::bench::{AGAIN, Bench, IN_PLACE, NAME, desired, name};

fn link(bond: Bond) -> Link {
    Link::new(LinkKind::Bond(bond))
}

fn mode(mode: BondMode) -> Bond {
    Bond { mode: Some(mode), ..Bond::default() }
}

/// A bench in a kernel that has bonds; none, after the test for one that has not.
fn bench() -> Option<Bench> {
    let mut bench = Bench::new();
    if bench.has("probe type bond") {
        return Some(bench);
    }
    bench.lacks(&link(Bond::default()), "bonding");
    None
}

#[test]
fn a_bond_is_made_in_every_mode() {
    let Some(mut bench) = bench() else { return };
    bench.check(&link(Bond::default()), &[]);
    for one in BondMode::ALL {
        let word = serde_json::to_value(one).unwrap();
        bench.check(&link(mode(*one)), &[("mode", word)]);
    }
}

#[test]
fn a_bond_is_made_with_its_options() {
    let Some(mut bench) = bench() else { return };
    let full = Bond {
        miimon: Some(100),
        updelay: Some(250),
        downdelay: Some(400),
        lacp_rate: Some(LacpRate::Fast),
        xmit_hash_policy: Some(HashPolicy::Layer34),
        min_links: Some(2),
        ..mode(BondMode::Lacp)
    };
    let expected = [
        ("miimon", json!(100)),
        ("updelay", json!(200)),
        ("downdelay", json!(400)),
        ("ad_lacp_rate", json!("fast")),
        ("xmit_hash_policy", json!("layer3+4")),
        ("min_links", json!(2)),
    ];
    bench.check(&link(full), &expected);
}

#[test]
fn a_bond_is_made_with_what_it_announces_and_asks() {
    let Some(mut bench) = bench() else { return };
    let announcing = Bond {
        miimon: Some(100),
        num_grat_arp: Some(3),
        peer_notif_delay: Some(250),
        ad_select: Some(AdSelect::Count),
        ..mode(BondMode::Lacp)
    };
    let expected = [
        ("num_peer_notif", json!(3)),
        ("peer_notify_delay", json!(200)),
        ("ad_select", json!("count")),
    ];
    bench.check(&link(announcing), &expected);
    let targets =
        |all: &[&str]| Some(ArpTargets(all.iter().map(|target| target.parse().unwrap()).collect()));
    let asking = |all: &[&str]| Bond {
        arp_interval: Some(500),
        arp_targets: targets(all),
        fail_over_mac: Some(FailOverMac::Active),
        primary_reselect: Some(PrimaryReselect::Failure),
        ..mode(BondMode::ActiveBackup)
    };
    let expected = [
        ("arp_interval", json!(500)),
        ("arp_ip_target", json!(["192.0.2.1", "192.0.2.2"])),
        ("fail_over_mac", json!("active")),
        ("primary_reselect", json!("failure")),
    ];
    bench.check(&link(asking(&["192.0.2.2", "192.0.2.1"])), &expected);
    let other = asking(&["192.0.2.3"]);
    bench.changes((&link(asking(&["192.0.2.1", "192.0.2.2"])), &link(other)), IN_PLACE);
    let select = |ad_select| Bond { ad_select: Some(ad_select), ..mode(BondMode::Lacp) };
    bench.changes((&link(select(AdSelect::Count)), &link(select(AdSelect::Stable))), IN_PLACE);
}

/// Quirk: delays are kept in multiples of the time between two looks.
#[test]
fn bond_delays_in_miimons() {
    let Some(mut bench) = bench() else { return };
    let delayed = |updelay| Bond {
        miimon: Some(100),
        updelay: Some(updelay),
        downdelay: Some(99),
        ..mode(BondMode::ActiveBackup)
    };
    bench.check(&link(delayed(399)), &[("updelay", json!(300)), ("downdelay", json!(0))]);
    bench.changes((&link(delayed(100)), &link(delayed(250))), IN_PLACE);
}

#[test]
fn a_bond_changes_in_place_but_for_its_mode() {
    let Some(mut bench) = bench() else { return };
    let lacp = || mode(BondMode::Lacp);
    for (from, to, sign) in [
        (mode(BondMode::BalanceRr), lacp(), AGAIN),
        (lacp(), Bond { miimon: Some(50), ..lacp() }, IN_PLACE),
        (lacp(), Bond { min_links: Some(3), ..lacp() }, IN_PLACE),
        (lacp(), Bond { lacp_rate: Some(LacpRate::Fast), ..lacp() }, IN_PLACE),
        (lacp(), Bond { xmit_hash_policy: Some(HashPolicy::Layer23), ..lacp() }, IN_PLACE),
    ] {
        bench.changes((&link(from), &link(to)), sign);
    }
}

/// Quirk: a link that is up is set down to be put into a bond, and a bond for another LACP rate.
#[test]
fn bonds_want_it_down() {
    let Some(mut bench) = bench() else { return };
    let rate = |rate| Link {
        up: Some(true),
        ..link(Bond { lacp_rate: Some(rate), ..mode(BondMode::Lacp) })
    };
    bench.changes((&rate(LacpRate::Slow), &rate(LacpRate::Fast)), IN_PLACE);
    let port =
        |master: Option<LinkName>| Link { up: Some(true), master, ..Link::new(LinkKind::Dummy) };
    let bond = || Link { up: Some(true), ..link(mode(BondMode::ActiveBackup)) };
    bench.converge(&desired(&[("a-port", port(None)), (NAME, bond())]));
    bench.converge(&desired(&[("a-port", port(Some(name(NAME)))), (NAME, bond())]));
    let shown = bench.shown("a-port");
    assert_eq!(shown["master"], NAME);
    assert!(shown["flags"].as_array().unwrap().contains(&"UP".into()));
}

#[test]
fn a_bond_prefers_a_link_that_comes_after_it() {
    let Some(mut bench) = bench() else { return };
    let port = || Link { master: Some(name(NAME)), ..Link::new(LinkKind::Dummy) };
    let prefers = |port: &str| {
        link(Bond { primary: Some(name(port)), miimon: Some(100), ..mode(BondMode::ActiveBackup) })
    };
    let with = |bond: Link| desired(&[("port0", port()), ("port1", port()), (NAME, bond)]);
    bench.converge(&with(prefers("port1")));
    assert_eq!(bench.options()["primary"], "port1");
    bench.converge(&with(prefers("port0")));
    assert_eq!(bench.options()["primary"], "port0");
    let done = bench.converge(&with(link(mode(BondMode::BalanceRr))));
    assert_eq!(
        done,
        [format!("{AGAIN} link {NAME}"), "~ link port0".into(), "~ link port1".into()]
    );
}

/// Quirk: the links of a bond get its MTU and its hardware address.
#[test]
fn links_in_a_bond_have_the_mtu_that_is_declared_for_them() {
    let Some(mut bench) = bench() else { return };
    let port = || Link { mtu: Some(1400), master: Some(name(NAME)), ..Link::new(LinkKind::Dummy) };
    let bond = |mtu| Link { mtu: Some(mtu), ..link(mode(BondMode::ActiveBackup)) };
    bench.settle(&desired(&[("port0", port()), (NAME, bond(1500))]));
    assert_eq!(bench.shown("port0")["mtu"], 1400);
    bench.settle(&desired(&[("port0", port()), (NAME, bond(1450))]));
    assert_eq!(bench.shown("port0")["mtu"], 1400);
    assert_eq!(bench.shown(NAME)["mtu"], 1450);
}
