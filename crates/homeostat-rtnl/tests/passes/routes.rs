//! Routes: changes in place, failures that stay alone, what the kernel normalizes.

use homeostat_engine::Explain as _;

use crate::bench::{Bench, cable, desired, explained, ip, listed, try_desired};

const ADDRESS: (&str, &str) = ("address 10.0.0.1/24 dev va", "");

#[test]
fn a_gateway_change_is_one_update_in_place() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[ADDRESS, ("route 10.5.0.0/16", "via 10.0.0.2")]));
    let moved = desired(&[ADDRESS, ("route 10.5.0.0/16", "via 10.0.0.3")]);
    assert_eq!(bench.converge(&moved), ["~ route 10.5.0.0/16"]);
    let routes = listed(&namespace, "route show 10.5.0.0/16");
    assert_eq!((routes.len(), &routes[0]["gateway"]), (1, &"10.0.0.3".into()));
}

#[test]
fn a_gateway_change_of_an_ipv6_route_is_one_update_in_place() {
    let namespace = cable();
    let mut bench = Bench::new();
    let address = ("address 2001:db8::1/64 dev va", "");
    bench.converge(&desired(&[address, ("route 2001:db8:5::/48", "via 2001:db8::2")]));
    let moved = desired(&[address, ("route 2001:db8:5::/48", "via 2001:db8::3")]);
    assert_eq!(bench.converge(&moved), ["~ route 2001:db8:5::/48"]);
    let routes = listed(&namespace, "-6 route show 2001:db8:5::/48");
    assert_eq!((routes.len(), &routes[0]["gateway"]), (1, &"2001:db8::3".into()));
}

#[test]
fn a_hand_changed_route_is_put_right() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[ADDRESS, ("route 10.5.0.0/16", "via 10.0.0.2 mtu 1400")]);
    bench.converge(&desired);
    ip(&namespace, "route replace 10.5.0.0/16 via 10.0.0.2 mtu 1300 proto 76");
    assert_eq!(bench.converge(&desired), ["~ route 10.5.0.0/16"]);
}

#[test]
fn a_dead_gateway_fails_alone_and_in_the_kernels_words() {
    let namespace = cable();
    let desired = desired(&[
        ADDRESS,
        ("route 10.4.0.0/16", "via 10.0.0.2"),
        ("route 10.5.0.0/16", "via 192.0.2.1"),
        ("route 10.6.0.0/16", "via 10.0.0.2"),
    ]);
    let mut bench = Bench::new();
    let report = bench.pass(&desired);
    let failed: Vec<_> =
        explained(&report).into_iter().filter(|l| l.starts_with("failed")).collect();
    let [failed] = failed.try_into().unwrap();
    assert!(
        failed.starts_with("failed route 10.5.0.0/16: Nexthop has invalid gateway"),
        "{failed}"
    );
    assert_eq!(listed(&namespace, "route show proto 76").len(), 2);
}

#[test]
fn an_ipv6_route_without_a_metric_is_stable() {
    let _namespace = cable();
    let desired = desired(&[
        ("address 2001:db8::1/64 dev va", ""),
        ("route 2001:db8:5::/48", "via 2001:db8::2"),
        ("route 2001:db8:6::/48 metric 7", "dev va"),
        ("route ::/0", "via 2001:db8::2"),
    ]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    for _ in 0..3 {
        bench.assert_quiet(&desired);
    }
}

#[test]
fn host_bits_are_masked_and_two_that_become_one_are_refused() {
    let namespace = cable();
    let desired = desired(&[ADDRESS, ("route 10.5.6.7/16", "via 10.0.0.2")]);
    Bench::new().converge(&desired);
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16").len(), 1);
    let twice = [("route 10.5.6.7/16", "via 10.0.0.2"), ("route 10.5.0.0/16", "via 10.0.0.2")];
    assert_eq!(
        try_desired(&twice).unwrap_err().to_string(),
        "`route 10.5.0.0/16` is declared twice"
    );
}

#[test]
fn tables_and_metrics_are_part_of_a_route() {
    let namespace = cable();
    let desired = desired(&[
        ADDRESS,
        ("route 10.5.0.0/16", "via 10.0.0.2"),
        ("route 10.5.0.0/16 metric 9", "via 10.0.0.3"),
        ("route 10.5.0.0/16 table 100", "via 10.0.0.4"),
        ("route 10.5.0.0/16 table 100000", "via 10.0.0.5"),
        ("route 10.5.0.0/16 tos 16", "via 10.0.0.6"),
    ]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    assert_eq!(listed(&namespace, "route show table 100000")[0]["gateway"], "10.0.0.5");
    let fewer = crate::bench::desired(&[ADDRESS, ("route 10.5.0.0/16 metric 9", "via 10.0.0.3")]);
    assert_eq!(bench.converge(&fewer).len(), 4);
    assert_eq!(listed(&namespace, "route show proto 76")[0]["metric"], 9);
}

#[test]
fn a_source_that_is_tentative_converges_by_itself_later() {
    let namespace = cable();
    let desired = desired(&[
        ("address 2001:db8::1/64 dev va", ""),
        ("route 2001:db8:5::/48", "via 2001:db8::2 src 2001:db8::1"),
    ]);
    let mut bench = Bench::new();
    let report = bench.pass(&desired);
    let [made, failed] = explained(&report).try_into().unwrap();
    assert_eq!(made, "+ address 2001:db8::1/64 dev va");
    assert!(failed.contains("Invalid source address"), "{failed}");
    // Duplicate address detection takes a second or two. An earlier pass fails, and harms nothing.
    let mut passes = 0;
    while !bench.pass(&desired).is_converged() {
        passes += 1;
        assert!(passes < 1_000_000, "it never converges");
    }
    assert_eq!(listed(&namespace, "-6 route show 2001:db8:5::/48")[0]["prefsrc"], "2001:db8::1");
}

#[test]
fn routes_lost_with_a_link_that_went_down_are_made_again() {
    let namespace = cable();
    let desired = desired(&[
        ADDRESS,
        ("route 10.5.0.0/16", "via 10.0.0.2"),
        ("address 2001:db8::1/64 dev va", ""),
    ]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    ip(&namespace, "link set va down");
    ip(&namespace, "link set va up");
    let mut done = bench.converge(&desired);
    done.sort();
    assert_eq!(done, ["+ address 2001:db8::1/64 dev va", "+ route 10.5.0.0/16"]);
}

#[test]
fn a_focused_pass_heals_what_it_looks_at_and_nothing_else() {
    let namespace = cable();
    let desired = desired(&[
        ADDRESS,
        ("route 10.5.0.0/16", "via 10.0.0.2"),
        ("route 10.6.0.0/16 table 77", "via 10.0.0.2"),
    ]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    ip(&namespace, "route del 10.5.0.0/16");
    ip(&namespace, "route flush table 77");
    let report = bench.focused(&desired, &["route 10.6.0.0/16 table 77"]);
    assert_eq!(explained(&report), ["+ route 10.6.0.0/16 table 77"]);
    let report = bench.focused(&desired, &["route 10.5.0.0/16", "address 10.0.0.1/24 dev va"]);
    assert_eq!(explained(&report), ["+ route 10.5.0.0/16"]);
    let report = bench.focused(&desired, &["route 10.5.0.0/16 table 4711"]);
    assert!(explained(&report).is_empty(), "a table that was never used is empty");
}

#[test]
fn a_route_whose_network_moves_to_another_link_is_created_there() {
    let namespace = cable();
    let keep = ("address 10.7.0.1/24 dev va", "");
    let mut bench = Bench::new();
    bench.converge(&desired(&[keep, ("address 10.0.0.1/24 dev va", "")]));
    let moved = [keep, ("address 10.0.0.1/24 dev vb", ""), ("route 10.5.0.0/16", "via 10.0.0.2")];
    bench.converge(&desired(&moved));
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16")[0]["dev"], "vb");
    bench.assert_quiet(&desired(&moved));
}

#[test]
fn a_local_route_is_on_this_host_without_a_word_about_its_scope() {
    let namespace = cable();
    let mut bench = Bench::new();
    for (key, attrs, scope) in [
        ("route 0.0.0.0/0 table 100", "type local dev lo", "host"),
        ("route 10.9.0.0/16 table 100", "type broadcast dev va", "link"),
        ("route ::/0 table 100", "type local dev lo", "global"),
    ] {
        bench.converge(&desired(&[(key, attrs)]));
        let family = if key.contains("::") { "-6" } else { "-4" };
        let shown = listed(&namespace, &format!("-d {family} route show table 100"));
        assert_eq!(shown[0]["scope"], scope, "{key}");
    }
}

/// Quirk: the kernel adds the route to the network of an address beside one of ours.
#[test]
fn the_prefix_of_an_address_twice() {
    let namespace = cable();
    let mut bench = Bench::new();
    let route = ("route 10.0.0.0/24", "dev va");
    bench.converge(&desired(&[route]));
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    assert_eq!(listed(&namespace, "route show 10.0.0.0/24").len(), 2);
    bench.assert_quiet(&desired(&[route]));
    assert!(bench.focused(&desired(&[route]), &[route.0]).is_converged());
    assert_eq!(bench.converge(&desired(&[])), ["- route 10.0.0.0/24"]);
    assert_eq!(listed(&namespace, "route show 10.0.0.0/24")[0]["protocol"], "kernel");
}

/// Quirk: an IPv6 route has every way once.
#[test]
fn v6_ways_differ() {
    let twice = |key: &'static str, via: &str| {
        let attrs = format!("hop {via}*1 hop {via}*2");
        try_desired(&[(key, &attrs)]).is_err()
    };
    assert!(twice("route 2001:db8:5::/48", "2001:db8::9"));
    assert!(!twice("route 10.5.0.0/16", "10.0.0.9"));
}
