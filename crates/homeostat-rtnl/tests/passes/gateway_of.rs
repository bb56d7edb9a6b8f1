//! Routes that follow the gateway that a lease or a router advertisement has brought on a link. Here `ip` puts the
//! default routes there, under the protocols of DHCP and of advertisements.

use homeostat_rtnl::DesiredState;
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, cable, desired, explained, ip, listed};

const V4: &str = "route 0.0.0.0/0 table 100";
const V6: &str = "route ::/0 table 100";

/// A link with the addresses of a lease, and the routes that follow its gateways.
fn leased() -> (Namespace, DesiredState) {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "address add 2001:db8::1/64 dev va nodad");
    let follow = "gateway-of va";
    (namespace, desired(&[(V4, follow), (V6, follow)]))
}

/// The gateways of the two routes.
fn gateways(namespace: &Namespace) -> [Option<String>; 2] {
    ["-4 route show table all default", "-6 route show table all default"].map(|args| {
        let mut routes = listed(namespace, args);
        routes.retain(|route| route["table"] == "100");
        assert!(routes.len() <= 1, "{routes:?}");
        routes.first().map(|route| {
            assert_eq!((&route["dev"], &route["protocol"]), (&"va".into(), &"76".into()));
            route["gateway"].as_str().unwrap().to_owned()
        })
    })
}

fn are(found: &[Option<String>; 2], expected: [&str; 2]) {
    assert_eq!(found.each_ref().map(|gateway| gateway.as_deref().unwrap_or("none")), expected);
}

#[test]
fn a_route_waits_for_the_gateway_and_follows_it_as_it_changes() {
    let (namespace, desired) = leased();
    let mut bench = Bench::new();
    let waits = |key| format!("pending {key}: a gateway: no gateway on va yet");
    assert_eq!(explained(&bench.pass(&desired)), [waits(V4), waits(V6)]);
    while bench.hint().is_some() {}

    ip(&namespace, "route add default via 10.0.0.254 dev va proto dhcp metric 100");
    assert_eq!(bench.hinted(), [V4], "nothing else has to do with it");
    ip(&namespace, "route del default via 10.0.0.254 dev va proto dhcp metric 100");
    ip(&namespace, "route add default via 10.0.0.254 dev va proto dhcp metric 100");
    assert_eq!(bench.heal(&desired), [format!("+ {V4}")]);
    are(&gateways(&namespace), ["10.0.0.254", "none"]);
    ip(&namespace, "-6 route add default via fe80::9 dev va proto ra metric 1024");
    assert_eq!(bench.heal(&desired), [format!("+ {V6}")]);
    are(&gateways(&namespace), ["10.0.0.254", "fe80::9"]);
    bench.assert_quiet(&desired);

    ip(&namespace, "route replace default via 10.0.0.253 dev va proto dhcp metric 100");
    ip(&namespace, "-6 route del default via fe80::9 dev va proto ra metric 1024");
    ip(&namespace, "-6 route add default via fe80::8 dev va proto ra metric 1024");
    assert_eq!(bench.heal(&desired), [format!("~ {V4}"), format!("~ {V6}")]);
    are(&gateways(&namespace), ["10.0.0.253", "fe80::8"]);
    bench.assert_quiet(&desired);
    let leases = listed(&namespace, "route show default");
    assert_eq!((leases.len(), &leases[0]["protocol"]), (1, &"dhcp".into()), "{leases:?}");
}

#[test]
fn without_a_gateway_the_route_stays_until_there_is_another() {
    let (namespace, desired) = leased();
    let mut bench = Bench::new();
    ip(&namespace, "route add default via 10.0.0.254 dev va proto dhcp");
    ip(&namespace, "-6 route add default via fe80::9 dev va proto ra");
    bench.converge(&desired);
    while bench.hint().is_some() {}
    ip(&namespace, "route del default");
    let waits = format!("pending {V4}: a gateway: no gateway on va yet");
    assert_eq!(bench.heal(&desired), [waits]);
    are(&gateways(&namespace), ["10.0.0.254", "fe80::9"]);
    ip(&namespace, "route add default via 10.0.0.252 dev va proto static");
    assert_eq!(bench.heal(&desired), [format!("~ {V4}")]);
    are(&gateways(&namespace), ["10.0.0.252", "fe80::9"]);
}

#[test]
fn what_another_does_to_the_route_heals_and_other_links_do_not_matter() {
    let (namespace, desired) = leased();
    let mut bench = Bench::new();
    ip(&namespace, "route add default via 10.0.0.254 dev va proto dhcp");
    ip(&namespace, "-6 route add default via fe80::9 dev va proto ra");
    bench.converge(&desired);
    while bench.hint().is_some() {}
    ip(&namespace, "route replace default via 10.0.0.7 dev va table 100 proto 76");
    assert_eq!(bench.heal(&desired), [format!("~ {V4}")]);
    ip(&namespace, "route del default table 100");
    assert_eq!(bench.heal(&desired), [format!("+ {V4}")]);
    are(&gateways(&namespace), ["10.0.0.254", "fe80::9"]);
    ip(&namespace, "address add 10.1.0.1/24 dev vb");
    while bench.hint().is_some() {}
    ip(&namespace, "route add default via 10.1.0.254 dev vb proto dhcp metric 5");
    assert_eq!(bench.heal(&desired), [""; 0]);
    bench.assert_quiet(&desired);
}

#[test]
fn a_link_that_loses_and_gets_its_lease_again_is_followed() {
    let (namespace, desired) = leased();
    let mut bench = Bench::new();
    ip(&namespace, "route add default via 10.0.0.254 dev va proto dhcp");
    ip(&namespace, "-6 route add default via fe80::9 dev va proto ra");
    bench.converge(&desired);
    while bench.hint().is_some() {}
    // The kernel announces none of the IPv4 routes that go with the last address.
    ip(&namespace, "address del 10.0.0.1/24 dev va");
    let waits = format!("pending {V4}: a gateway: no gateway on va yet");
    let done = bench.heal(&desired);
    assert!(done.contains(&waits), "{done:?}");
    are(&gateways(&namespace), ["none", "fe80::9"]);
    ip(&namespace, "address add 10.0.5.1/24 dev va");
    ip(&namespace, "route add default via 10.0.5.254 dev va proto dhcp");
    let done = bench.heal(&desired);
    assert!(done.contains(&format!("+ {V4}")), "{done:?}");
    are(&gateways(&namespace), ["10.0.5.254", "fe80::9"]);
    bench.assert_quiet(&desired);
}

#[test]
fn a_gateway_that_counts_as_on_link_does_so_for_the_routes_that_follow_it() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[(V4, "gateway-of va mtu 1400")]);
    ip(&namespace, "address add 192.0.2.1/32 dev va");
    ip(&namespace, "route add default via 172.31.1.1 dev va onlink proto dhcp");
    bench.converge(&desired);
    let route = &listed(&namespace, "route show table 100")[0];
    assert_eq!(route["gateway"], "172.31.1.1");
    assert!(route["flags"].to_string().contains("onlink"), "{route}");
}
