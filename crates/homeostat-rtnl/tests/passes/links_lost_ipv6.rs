//! A link whose MTU falls below 1280 loses IPv6; other fields cost neighbours and nexthops. Nothing foreign is
//! lost without leave.

use homeostat_engine::{Cascades, OnRelease};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, cable, desired, explained, ip, listed, until};

const LOW: (&str, &str) = ("link va mtu", "1000");

#[track_caller]
fn held(bench: &mut Bench, entries: &[(&str, &str)]) -> String {
    let mut lines = explained(&bench.pass(&desired(entries)));
    lines.retain(|line| line.starts_with("held"));
    lines.join("; ")
}

fn mtu(namespace: &Namespace, link: &str) -> serde_json::Value {
    listed(namespace, &format!("link show dev {link}"))[0]["mtu"].clone()
}

/// Addresses, routes, nexthops and neighbours by `ip`, without what comes and goes by itself.
fn everything(namespace: &Namespace) -> String {
    let shown = |args: &str| {
        let mut lines: Vec<String> =
            listed(namespace, args).iter().map(ToString::to_string).collect();
        lines.retain(|line| !line.contains("fe80"));
        lines.join("\n")
    };
    let lists =
        ["-6 route", "route", "neighbour show nud permanent", "neighbour show proxy", "nexthop"];
    let addresses = listed(namespace, "address");
    let addresses = addresses.iter().flat_map(|link| link["addr_info"].as_array().unwrap());
    let addresses = addresses.map(|address| address["local"].to_string());
    let addresses = addresses.filter(|address| !address.contains("fe80"));
    addresses.chain(lists.map(shown)).collect::<Vec<_>>().join("\n")
}

const IPV6: [(&str, &str); 4] = [
    ("-6 address add 2001:db8::1/64 dev va nodad", "address 2001:db8::1/64 dev va"),
    ("-6 route add 2001:db8:5::/48 dev va proto static", "route 2001:db8:5::/48"),
    ("neighbour add 2001:db8::9 lladdr 02:00:00:00:00:09 dev va", "neighbour 2001:db8::9 dev va"),
    ("neighbour add proxy 2001:db8::9 dev va", "neighbour 2001:db8::9 dev va proxy"),
];

/// Quirk: a link with an MTU below 1280 loses all that is IPv6 on it.
#[test]
fn a_low_mtu_takes_ipv6() {
    for (foreign, key) in IPV6 {
        let namespace = cable();
        ip(&namespace, foreign);
        let before = everything(&namespace);
        let mut bench = Bench::new();
        let held = held(&mut bench, &[LOW]);
        let expected = format!("held link va mtu: it would take `{key}` along");
        assert!(held.starts_with(&expected), "{foreign}: {held}");
        assert_eq!(mtu(&namespace, "va"), 1500);
        assert_eq!(everything(&namespace), before);
        // The kernel does what the guard says.
        bench.config.guards.cascades = Cascades::Allow;
        assert_eq!(bench.converge(&desired(&[LOW])), ["~ link va mtu"]);
        assert_eq!(mtu(&namespace, "va"), 1000);
        assert_ne!(everything(&namespace), before, "{foreign}");
    }
}

#[test]
fn a_link_that_we_made_is_held_alike_also_in_a_look_at_a_few_keys() {
    for (foreign, key) in IPV6 {
        let namespace = cable();
        let mut bench = Bench::new();
        bench.converge(&desired(&[("link br0", "bridge up on")]));
        let [foreign, key] = [foreign, key].map(|text| text.replace("va", "br0"));
        ip(&namespace, &foreign);
        let declared = desired(&[("link br0", "bridge up on mtu 1000")]);
        for report in [bench.pass(&declared), bench.focused(&declared, &["link br0"])] {
            let lines = explained(&report);
            let expected = format!("held link br0: it would take `{key}` along");
            assert!(lines.iter().any(|line| line.starts_with(&expected)), "{lines:#?}");
        }
        assert_eq!(mtu(&namespace, "br0"), 1500);
    }
    let namespace = cable();
    ip(&namespace, IPV6[0].0);
    let mut bench = Bench::new();
    bench.pass(&desired(&[]));
    let lines = explained(&bench.focused(&desired(&[LOW]), &["link va mtu"]));
    assert!(lines.iter().any(|line| line.starts_with("held link va mtu")), "{lines:#?}");
}

#[test]
fn what_stays_with_a_low_mtu_holds_nothing() {
    for foreign in [
        "address add 10.7.0.1/24 dev va",
        "route add 10.5.0.0/16 dev va proto static",
        "neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev va",
        "neighbour add proxy 10.0.0.9 dev va",
        "-6 nexthop add id 7 dev va",
        "-6 address add 2001:db8::1/64 dev vb nodad",
    ] {
        let namespace = cable();
        ip(&namespace, foreign);
        let before = everything(&namespace);
        assert_eq!(Bench::new().converge(&desired(&[LOW])), ["~ link va mtu"], "{foreign}");
        assert_eq!(everything(&namespace), before, "{foreign}");
    }
    let namespace = cable();
    ip(&namespace, IPV6[0].0);
    let before = everything(&namespace);
    Bench::new().converge(&desired(&[("link va mtu", "1280")]));
    assert_eq!(everything(&namespace), before);
}

/// Quirk: links above, and a bridge whose MTU was not set, are lowered too.
#[test]
fn others_follow_a_low_mtu() {
    let namespace = cable();
    ip(&namespace, "link add mv0 link va up type macvlan mode private");
    ip(&namespace, "-6 address add 2001:db8::1/64 dev mv0 nodad");
    let mut bench = Bench::new();
    let line = held(&mut bench, &[LOW]);
    assert!(line.contains("it would take `address 2001:db8::1/64 dev mv0` along"), "{line}");
    bench.config.guards.cascades = Cascades::Allow;
    bench.converge(&desired(&[LOW]));
    assert_eq!(mtu(&namespace, "mv0"), 1000);

    let namespace = cable();
    ip(&namespace, "link add br0 up type bridge");
    ip(&namespace, "link set va master br0");
    ip(&namespace, "-6 address add 2001:db8::1/64 dev br0 nodad");
    let mut bench = Bench::new();
    let line = held(&mut bench, &[LOW]);
    assert!(line.contains("it would take `address 2001:db8::1/64 dev br0` along"), "{line}");
    bench.config.guards.cascades = Cascades::Allow;
    bench.converge(&desired(&[LOW]));
    assert_eq!(mtu(&namespace, "br0"), 1000);
}

/// One that it was made with is not set: the next port changes it.
#[test]
fn a_bridge_whose_mtu_was_set_does_not_follow() {
    let namespace = cable();
    ip(&namespace, "link add br0 up type bridge");
    ip(&namespace, "link set br0 mtu 1400");
    ip(&namespace, "link set va master br0");
    ip(&namespace, "-6 address add 2001:db8::1/64 dev br0 nodad");
    let before = everything(&namespace);
    Bench::new().converge(&desired(&[LOW]));
    assert_eq!((mtu(&namespace, "br0"), everything(&namespace)), (1400.into(), before));
}

#[test]
fn a_small_port_is_not_put_into_a_bridge_that_would_lose_ipv6() {
    let namespace = cable();
    ip(&namespace, "link add br0 up type bridge");
    ip(&namespace, "-6 address add 2001:db8::1/64 dev br0 nodad");
    ip(&namespace, "link set va mtu 1000");
    let mut bench = Bench::new();
    let master = ("link va master", "br0");
    let line = held(&mut bench, &[master]);
    assert!(line.contains("it would take `address 2001:db8::1/64 dev br0` along"), "{line}");
    bench.config.guards.cascades = Cascades::Allow;
    bench.converge(&desired(&[master]));
    assert_eq!(mtu(&namespace, "br0"), 1000);

    let namespace = cable();
    ip(&namespace, "link add br0 up type bridge");
    ip(&namespace, "-6 address add 2001:db8::1/64 dev br0 nodad");
    let port = ("link x0", "veth peer x1 mtu 1000 master br0 up on");
    let line = held(&mut Bench::new(), &[port]);
    assert!(line.contains("it would take `address 2001:db8::1/64 dev br0` along"), "{line}");
}

#[test]
fn an_original_that_was_low_is_not_put_back_over_foreign_ipv6() {
    let namespace = cable();
    ip(&namespace, "link set va mtu 1000");
    let mut bench = Bench::new();
    bench.config.on_release = OnRelease::Restore;
    bench.converge(&desired(&[("link va mtu", "1500")]));
    ip(&namespace, IPV6[0].0);
    let line = held(&mut bench, &[]);
    assert!(line.starts_with("held link va mtu: it would take `address 2001:db8::1/64"), "{line}");
    assert_eq!(mtu(&namespace, "va"), 1500);
}

/// The kernel says only that an argument is invalid, every time again.
#[test]
fn our_own_ipv6_address_waits_for_a_larger_mtu_and_is_not_tried() {
    let namespace = cable();
    let address = ("address 2001:db8::1/64 dev va", "");
    let mut bench = Bench::new();
    bench.converge(&desired(&[address]));
    let declared = desired(&[address, LOW]);
    let pending =
        "pending address 2001:db8::1/64 dev va: an MTU of 1280 or more on link va, which has 1000";
    bench.pass(&declared);
    for _ in 0..2 {
        let report = bench.pass(&declared);
        assert_eq!(explained(&report), [pending]);
        assert_eq!(report.plan().steps.len(), 0);
    }
    ip(&namespace, "link set va mtu 1500");
    let done = bench.converge(&desired(&[address]));
    assert_eq!(done, ["- link va mtu", "+ address 2001:db8::1/64 dev va"]);
    // The MTU is not declared here: another process lowered it.
    ip(&namespace, "link set va mtu 1000");
    assert_eq!(explained(&bench.pass(&desired(&[address]))), [pending]);
}

/// Quirk: the loopback link loses its IPv6 addresses, too, and can have them again at once.
#[test]
fn the_loopback_link_has_ipv6_with_any_mtu() {
    let namespace = cable();
    ip(&namespace, "link set lo up");
    let declared = desired(&[("address 2001:db8::7/128 dev lo", ""), ("link lo mtu", "1000")]);
    let mut bench = Bench::new();
    bench.pass(&declared);
    bench.pass(&declared);
    bench.assert_quiet(&declared);
    assert!(everything(&namespace).contains("2001:db8::7"));
}

/// Quirk: a link with another hardware address forgets its neighbours, proxies excepted.
#[test]
fn a_new_mac_takes_neighbours() {
    let mac = ("link va mac", "02:00:00:00:00:0a");
    for (foreign, is_lost) in [
        ("neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev va", true),
        ("neighbour add 2001:db8::9 lladdr 02:00:00:00:00:09 dev va", true),
        ("neighbour add proxy 10.0.0.9 dev va", false),
        ("-6 address add 2001:db8::1/64 dev va nodad", false),
        ("route add 10.5.0.0/16 dev va proto static", false),
    ] {
        let namespace = cable();
        ip(&namespace, foreign);
        let before = everything(&namespace);
        let mut bench = Bench::new();
        bench.pass(&desired(&[]));
        if is_lost {
            for report in [bench.pass(&desired(&[mac])), bench.focused(&desired(&[mac]), &[mac.0])]
            {
                let lines = explained(&report);
                let expected = "held link va mac: it would take `neighbour ";
                assert!(lines.iter().any(|line| line.starts_with(expected)), "{lines:#?}");
            }
            assert_eq!(everything(&namespace), before);
            bench.config.guards.cascades = Cascades::Allow;
        }
        // What is not lost holds nothing.
        bench.converge(&desired(&[mac]));
        assert_eq!(everything(&namespace) != before, is_lost, "{foreign}");
    }
}

/// Quirk: with the last IPv4 address of a link its IPv4 neighbours go.
#[test]
fn the_last_address_takes_neighbours() {
    for (foreign, is_lost) in [
        ("neighbour add 10.8.0.9 lladdr 02:00:00:00:00:09 dev va", true),
        ("neighbour add proxy 10.8.0.9 dev va", true),
        ("neighbour add 2001:db8::9 lladdr 02:00:00:00:00:09 dev va", false),
    ] {
        let namespace = cable();
        ip(&namespace, "address flush dev va scope global");
        let mut bench = Bench::new();
        bench.converge(&desired(&[("address 10.8.0.1/24 dev va", "")]));
        ip(&namespace, foreign);
        let before = everything(&namespace);
        let line = held(&mut bench, &[]);
        assert_eq!(line.contains("it would take `neighbour "), is_lost, "{foreign}: {line}");
        assert_eq!(everything(&namespace) == before, is_lost, "{foreign}");
    }
}

/// Quirk: a link that loses its carrier loses its nexthops with their routes.
#[test]
fn the_other_end_of_a_pair_loses_nexthops() {
    let namespace = cable();
    ip(&namespace, "nexthop add id 7 dev vb");
    let before = everything(&namespace);
    let mut bench = Bench::new();
    let line = held(&mut bench, &[("link va up", "off")]);
    assert!(line.starts_with("held link va up: it would take `nexthop 7` along"), "{line}");
    assert_eq!(everything(&namespace), before);
    bench.config.guards.cascades = Cascades::Allow;
    bench.converge(&desired(&[("link va up", "off")]));
    until("the loss of the carrier", || listed(&namespace, "nexthop").is_empty());
}
