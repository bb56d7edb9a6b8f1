//! Every attribute reads back as it was written: one pass converges, the next writes nothing.

use crate::bench::{Bench, cable, desired, ip, listed};

const ADDRESSES: [(&str, &str); 2] =
    [("address 10.0.0.1/24 dev va", ""), ("address 2001:db8::1/64 dev va", "")];

fn assert_route(route: (&str, &str), args: &str, shown: &[(&str, &str)]) {
    let namespace = cable();
    let desired = desired(&[ADDRESSES[0], ADDRESSES[1], route]);
    Bench::new().converge(&desired);
    let routes = listed(&namespace, args);
    assert_eq!(routes.len(), 1, "{routes:?}");
    for (field, value) in shown {
        assert_eq!(routes[0].pointer(field).map(ToString::to_string), Some((*value).to_owned()));
    }
}

#[test]
fn types_that_lead_nowhere() {
    for kind in ["blackhole", "unreachable", "prohibit", "throw"] {
        let (attrs, shown) = (format!("type {kind}"), format!("\"{kind}\""));
        assert_route(("route 10.5.0.0/16", &attrs), "route show 10.5.0.0/16", &[("/type", &shown)]);
        let show = "-6 route show 2001:db8:5::/48";
        assert_route(("route 2001:db8:5::/48", &attrs), show, &[("/type", &shown)]);
    }
}

#[test]
fn source_mtu_and_link() {
    let attrs = "via 10.0.0.2 dev va src 10.0.0.1 mtu 1400";
    let shown = [("/prefsrc", "\"10.0.0.1\""), ("/dev", "\"va\""), ("/metrics/0/mtu", "1400")];
    assert_route(("route 10.5.0.0/16", attrs), "route show 10.5.0.0/16", &shown);
}

#[test]
fn a_gateway_that_counts_as_on_link() {
    let attrs = "via 192.0.2.1 dev va onlink on";
    let shown = [("/flags/0", "\"onlink\"")];
    assert_route(("route 10.5.0.0/16", attrs), "route show 10.5.0.0/16", &shown);
}

#[test]
fn ipv4_through_an_ipv6_gateway() {
    let shown = [("/via/host", "\"2001:db8::9\"")];
    let attrs = "via 2001:db8::9 dev va";
    assert_route(("route 10.5.0.0/16", attrs), "route show 10.5.0.0/16", &shown);
}

#[test]
fn a_declared_scope() {
    let attrs = "dev va scope global";
    assert_route(
        ("route 10.5.0.0/16", attrs),
        "-d route show 10.5.0.0/16",
        &[("/scope", "\"global\"")],
    );
}

#[test]
fn several_ways_with_weights() {
    let attrs = "hop 10.0.0.3*7 hop 10.0.0.2*1";
    let shown = [("/nexthops/0/weight", "1"), ("/nexthops/1/weight", "7")];
    assert_route(("route 10.5.0.0/16", attrs), "route show 10.5.0.0/16", &shown);
    let attrs = "hop 2001:db8::2*3 hop 2001:db8::3*2";
    let show = "-6 route show 2001:db8:5::/48";
    assert_route(("route 2001:db8:5::/48", attrs), show, &[("/nexthops/0/weight", "3")]);
}

#[test]
fn several_ways_change_in_place_and_go_as_one() {
    let namespace = cable();
    let mut bench = Bench::new();
    let [v4, v6] = ADDRESSES;
    let keys = ["route 10.5.0.0/16", "route 2001:db8:5::/48"];
    bench.converge(&desired(&[
        (keys[0], "hop 10.0.0.2*1 hop 10.0.0.3*1"),
        (keys[1], "hop 2001:db8::2*1 hop 2001:db8::3*1"),
        v4,
        v6,
    ]));
    let other = desired(&[
        (keys[0], "hop 10.0.0.2*1 hop 10.0.0.4*9"),
        (keys[1], "hop 2001:db8::2*1 hop 2001:db8::4*9"),
        v4,
        v6,
    ]);
    assert_eq!(bench.converge(&other), ["~ route 10.5.0.0/16", "~ route 2001:db8:5::/48"]);
    assert_eq!(bench.converge(&desired(&ADDRESSES)).len(), 2);
    assert!(listed(&namespace, "-6 route show 2001:db8:5::/48").is_empty());
}

fn assert_address(address: (&str, &str), shown: &[(&str, &str)]) {
    let namespace = cable();
    // An address that is there already, in another shape, has to change.
    let mut bench = Bench::new();
    bench.converge(&desired(&[(address.0, "")]));
    bench.converge(&desired(&[address]));
    let links = listed(&namespace, "-d address show dev va");
    for (field, value) in shown {
        let value = Some((*value).to_owned());
        let path = format!("/0/addr_info/0/{field}");
        let links = serde_json::Value::from(links.clone());
        assert_eq!(links.pointer(&path).map(ToString::to_string), value, "{links}");
    }
}

#[test]
fn scope_label_and_noprefixroute_of_an_address() {
    let attrs = "scope link label va:7 noprefixroute on";
    let shown = [("scope", "\"link\""), ("label", "\"va:7\""), ("noprefixroute", "true")];
    assert_address(("address 10.0.0.1/24 dev va", attrs), &shown);
    assert_address(
        ("address 2001:db8::1/64 dev va", "noprefixroute on"),
        &[("noprefixroute", "true")],
    );
}

#[test]
fn broadcast_of_an_address() {
    for broadcast in ["10.0.0.255", "10.0.0.127"] {
        let attrs = format!("broadcast {broadcast}");
        let shown = format!("\"{broadcast}\"");
        assert_address(("address 10.0.0.1/24 dev va", &attrs), &[("broadcast", &shown)]);
    }
    let on_ipv6 = [("address 2001:db8::1/64 dev va", "broadcast 10.0.0.255")];
    assert!(crate::bench::try_desired(&on_ipv6).is_err());
}

#[test]
fn lifetimes_of_an_address() {
    let shown = [("dynamic", "true")];
    assert_address(("address 10.0.0.1/24 dev va", "valid 6000 preferred 3000"), &shown);
    assert_address(("address 2001:db8::1/64 dev va", "valid 6000"), &shown);
}

#[test]
fn an_address_with_a_peer() {
    let shown = [("address", "\"10.0.0.2\""), ("prefixlen", "32")];
    assert_address(("address 10.0.0.1 peer 10.0.0.2/32 dev va", ""), &shown);
    let shown = [("address", "\"2001:db8::2\""), ("prefixlen", "128")];
    assert_address(("address 2001:db8::1 peer 2001:db8::2/128 dev va", ""), &shown);
}

#[test]
fn a_loopback_address_has_the_hosts_scope() {
    let namespace = cable();
    Bench::new().converge(&desired(&[("address 127.0.0.5/8 dev lo", "")]));
    let links = listed(&namespace, "address show dev lo");
    let addresses = links[0]["addr_info"].as_array().unwrap();
    assert!(addresses.iter().any(|a| a["local"] == "127.0.0.5" && a["scope"] == "host"));
    ip(&namespace, "link set lo down");
}

#[test]
fn the_type_of_a_route_changes_in_place() {
    let namespace = cable();
    let mut bench = Bench::new();
    let [v4, v6] = ADDRESSES;
    let keys = ["route 10.5.0.0/16", "route 2001:db8:5::/48"];
    let on = desired(&[v4, v6, (keys[0], "via 10.0.0.2"), (keys[1], "via 2001:db8::2")]);
    let nowhere = desired(&[v4, v6, (keys[0], "type blackhole"), (keys[1], "type blackhole")]);
    let direct = desired(&[v4, v6, (keys[0], "dev vb"), (keys[1], "dev vb")]);
    bench.converge(&on);
    for desired in [&nowhere, &on, &direct, &nowhere, &direct, &on] {
        assert_eq!(bench.converge(desired), keys.map(|key| format!("~ {key}")));
    }
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16").len(), 1);
    assert_eq!(listed(&namespace, "-6 route show 2001:db8:5::/48").len(), 1);
}
