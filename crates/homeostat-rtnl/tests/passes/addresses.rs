//! Addresses: drift, primary and secondary ones, what the kernel takes along.

use homeostat_engine::Explain as _;
use homeostat_rtnl::{AddressMarks, Rtnl};

use crate::bench::{Bench, addresses, cable, desired, explained, ip, listed, try_desired, until};

#[test]
fn addresses_routes_and_a_default_converge_and_a_second_pass_writes_nothing() {
    let namespace = cable();
    let desired = desired(&[
        ("address 10.0.0.1/24 dev va", ""),
        ("address 2001:db8::1/64 dev va", ""),
        ("route 0.0.0.0/0", "via 10.0.0.2"),
        ("route 10.9.0.0/16", "dev va"),
        ("route 2001:db8:9::/48", "via 2001:db8::2"),
    ]);
    let mut bench = Bench::new();
    assert_eq!(bench.converge(&desired).len(), 5);
    assert_eq!(addresses(&namespace), ["10.0.0.1/24", "2001:db8::1/64"]);
    let default = listed(&namespace, "route show default");
    assert_eq!(
        (&default[0]["gateway"], &default[0]["protocol"]),
        (&"10.0.0.2".into(), &"76".into())
    );
    assert_eq!(listed(&namespace, "route show 10.9.0.0/16")[0]["scope"], "link");
}

#[test]
fn a_hand_deleted_address_returns_as_exactly_one_create() {
    let namespace = cable();
    let desired =
        desired(&[("address 10.0.0.1/24 dev va", ""), ("address 10.1.0.1/24 dev va", "")]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    ip(&namespace, "address del 10.0.0.1/24 dev va");
    assert_eq!(bench.converge(&desired), ["+ address 10.0.0.1/24 dev va"]);
}

#[test]
fn an_owned_address_dropped_from_the_desired_state_goes_and_a_foreign_one_stays() {
    let namespace = cable();
    let both = [("address 10.0.0.1/24 dev va", ""), ("address 2001:db8::1/64 dev va", "")];
    let mut bench = Bench::new();
    bench.converge(&desired(&both));
    ip(&namespace, "address add 192.0.2.1/24 dev va");
    ip(&namespace, "address add 2001:db8:1::1/64 dev va");
    let mut done = bench.converge(&desired(&[]));
    done.sort();
    assert_eq!(done, ["- address 10.0.0.1/24 dev va", "- address 2001:db8::1/64 dev va"]);
    assert_eq!(addresses(&namespace), ["192.0.2.1/24", "2001:db8:1::1/64"]);
}

#[test]
fn secondaries_that_also_go_are_deleted_one_by_one() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[
        ("address 10.0.0.1/24 dev va", ""),
        ("address 10.0.0.2/24 dev va", ""),
        ("address 10.0.0.3/24 dev va", ""),
    ]));
    assert_eq!(bench.converge(&desired(&[])).len(), 3);
    assert!(addresses(&namespace).is_empty());
}

#[test]
fn a_declared_secondary_is_made_again_when_its_primary_goes() {
    let namespace = cable();
    let mut bench = Bench::new();
    let both = [("address 10.0.0.1/24 dev va", ""), ("address 10.0.0.2/24 dev va", "")];
    bench.converge(&desired(&both));
    assert_eq!(bench.converge(&desired(&both[1..])), ["- address 10.0.0.1/24 dev va"]);
    assert_eq!(addresses(&namespace), ["10.0.0.2/24"]);
}

#[test]
fn an_address_is_exchanged_for_another_of_its_subnet() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[("address 10.0.0.1/24 dev va", "")]));
    let done = bench.converge(&desired(&[("address 10.0.0.2/24 dev va", "")]));
    assert_eq!(done, ["+ address 10.0.0.2/24 dev va", "- address 10.0.0.1/24 dev va"]);
    assert_eq!(addresses(&namespace), ["10.0.0.2/24"]);
}

#[test]
fn a_primary_that_would_take_a_foreign_secondary_along_is_held() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[("address 10.0.0.1/24 dev va", "")]));
    ip(&namespace, "address add 10.0.0.9/24 dev va");
    let report = bench.pass(&desired(&[]));
    let [held] = explained(&report).try_into().unwrap();
    assert!(held.starts_with("held address 10.0.0.1/24 dev va"), "{held}");
    assert!(held.contains("10.0.0.9/24"), "{held}");
    assert_eq!(addresses(&namespace), ["10.0.0.1/24", "10.0.0.9/24"]);
}

#[test]
fn the_last_address_of_a_link_does_not_take_foreign_routes_along() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[("address 10.0.0.1/24 dev va", "")]));
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.2");
    let report = bench.pass(&desired(&[]));
    let [held] = explained(&report).try_into().unwrap();
    assert!(held.contains("route 10.5.0.0/16"), "{held}");
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16").len(), 1);
}

#[test]
fn our_routes_that_go_with_a_swapped_address_are_made_again_in_the_same_pass() {
    let namespace = cable();
    let mut bench = Bench::new();
    let route = ("route 10.5.0.0/16", "via 10.0.0.9");
    bench.converge(&desired(&[("address 10.0.0.1/24 dev va", ""), route]));
    let moved = desired(&[("address 10.0.0.2/24 dev va", ""), route]);
    let done = bench.converge(&moved);
    let expected =
        ["+ address 10.0.0.2/24 dev va", "- address 10.0.0.1/24 dev va", "-/+ route 10.5.0.0/16"];
    assert_eq!(done, expected);
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16").len(), 1);
}

#[test]
fn another_prefix_length_of_an_ipv6_address_takes_its_place() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[("address 2001:db8::1/64 dev va", "")]));
    bench.converge(&desired(&[("address 2001:db8::1/80 dev va", "")]));
    assert_eq!(addresses(&namespace), ["2001:db8::1/80"]);
}

#[test]
fn the_same_ipv4_address_with_two_prefix_lengths_coexists() {
    let namespace = cable();
    let desired =
        desired(&[("address 10.0.0.1/24 dev va", ""), ("address 10.0.0.1/16 dev va", "")]);
    Bench::new().converge(&desired);
    assert_eq!(addresses(&namespace).len(), 2);
}

#[test]
fn what_waits_for_a_link_follows_when_it_appears_and_when_it_is_made_again() {
    let namespace = cable();
    let desired = desired(&[
        ("address 10.7.0.1/24 dev vc", ""),
        ("route 10.8.0.0/16", "via 10.7.0.2 dev vc"),
        ("address 10.0.0.1/24 dev va", ""),
    ]);
    let mut bench = Bench::new();
    let pending =
        ["pending address 10.7.0.1/24 dev vc: link vc", "pending route 10.8.0.0/16: link vc"];
    let report = bench.pass(&desired);
    assert_eq!(explained(&report)[0], "+ address 10.0.0.1/24 dev va");
    assert_eq!(explained(&report)[1..], pending);
    for _ in 0..2 {
        ip(&namespace, "link add vc type veth peer name vd");
        ip(&namespace, "link set vc up");
        ip(&namespace, "link set vd up");
        assert_eq!(bench.converge(&desired).len(), 2);
        ip(&namespace, "link del vc");
        assert_eq!(explained(&bench.pass(&desired)), pending);
    }
}

#[test]
fn a_leased_address_is_matched_and_left_as_it_is() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va valid_lft 600 preferred_lft 300");
    let desired = desired(&[("address 10.0.0.1/24 dev va", "")]);
    let mut bench = Bench::new();
    assert_eq!(bench.converge(&desired), ["matched address 10.0.0.1/24 dev va: no protocol"]);
    let shown = listed(&namespace, "address show dev va");
    let valid = shown[0]["addr_info"][0]["valid_life_time"].as_u64().unwrap();
    assert!(valid <= 600, "{valid}");
}

#[test]
fn a_route_over_an_address_that_waits_for_its_link_waits_too() {
    let namespace = cable();
    let desired = desired(&[
        ("address 10.9.0.1/24 dev later", ""),
        ("route 10.5.0.0/16", "via 10.9.0.2"),
        ("route 10.6.0.0/16", "via 10.9.0.2 src 10.9.0.1"),
    ]);
    let mut bench = Bench::new();
    let expected = [
        "pending address 10.9.0.1/24 dev later: link later",
        "pending route 10.5.0.0/16: link later",
        "pending route 10.6.0.0/16: link later",
    ];
    assert_eq!(explained(&bench.pass(&desired)), expected);
    ip(&namespace, "link add later type ifb");
    ip(&namespace, "link set later up");
    assert_eq!(bench.converge(&desired).len(), 3);
}

/// A source that does as on a kernel that keeps no mark on addresses.
fn unmarked() -> Bench {
    Bench::of(Rtnl::here().with_address_marks(AddressMarks::Ledger))
}

#[test]
fn without_a_mark_in_the_kernel_the_ledger_tells_our_addresses_from_others() {
    let namespace = cable();
    let mut bench = unmarked();
    ip(&namespace, "address add 10.1.0.1/24 dev va");
    bench.converge(&desired(&[
        ("address 10.0.0.1/24 dev va", ""),
        ("address 10.0.0.2/24 dev va", ""),
    ]));
    let shown = listed(&namespace, "address show dev va to 10.0.0.1");
    assert!(shown[0]["addr_info"][0].get("protocol").is_none(), "{shown:?}");
    let fewer = desired(&[("address 10.0.0.2/24 dev va", "")]);
    assert_eq!(bench.converge(&fewer), ["- address 10.0.0.1/24 dev va"]);
    assert_eq!(bench.converge(&desired(&[])), ["- address 10.0.0.2/24 dev va"]);
    assert_eq!(addresses(&namespace), ["10.1.0.1/24"], "that one was not recorded");
}

#[test]
fn without_a_mark_a_lost_ledger_loses_no_address() {
    let namespace = cable();
    let desired = desired(&[("address 10.0.0.1/24 dev va", "")]);
    unmarked().converge(&desired);
    let report = unmarked().pass(&desired);
    assert!(
        explained(&report)[0].starts_with("matched address 10.0.0.1/24"),
        "{:?}",
        explained(&report)
    );
    unmarked().converge(&crate::bench::desired(&[]));
    assert_eq!(addresses(&namespace), ["10.0.0.1/24"]);
}

/// Quirk: an IPv4 address that lives for ever is preferred for ever, or not at all.
#[test]
fn v4_forever_is_preferred_forever() {
    let namespace = cable();
    let mut bench = Bench::new();
    for key in ["address 10.0.0.1/24 dev va", "address 2001:db8::1/64 dev va"] {
        let refused = try_desired(&[(key, "preferred 60")]).is_err();
        assert_eq!(refused, key.contains("10.0.0.1"), "{key}");
        assert!(try_desired(&[(key, "valid 0 preferred 0")]).is_err(), "{key}");
        for attrs in ["valid 600 preferred 60", "valid 600 preferred 0", "preferred 0"] {
            bench.converge(&desired(&[(key, attrs)]));
            let shown = listed(&namespace, "address show dev va scope global");
            let is_deprecated = shown[0]["addr_info"][0]["deprecated"] == true;
            assert_eq!(is_deprecated, attrs.ends_with("preferred 0"), "{key} {attrs}");
        }
        bench.converge(&desired(&[]));
    }
}

/// Quirk: an address that another host has stays, and is not used.
#[test]
fn a_duplicate_address_is_not_as_declared() {
    let namespace = cable();
    ip(&namespace, "-6 address add 2001:db8::1/64 dev vb nodad");
    let declared = desired(&[("address 2001:db8::1/64 dev va", "")]);
    let mut bench = Bench::new();
    bench.pass(&declared);
    let shown = || listed(&namespace, "-6 address show dev va to 2001:db8::1");
    until("the other host", || shown()[0]["addr_info"][0]["dadfailed"] == true);
    for report in
        [bench.pass(&declared), bench.focused(&declared, &["address 2001:db8::1/64 dev va"])]
    {
        assert!(!report.is_converged());
        let lines = explained(&report);
        let expected = "failed address 2001:db8::1/64 dev va: another host on the link has this";
        assert!(lines.len() == 1 && lines[0].starts_with(expected), "{lines:?}");
    }
    ip(&namespace, "-6 address del 2001:db8::1/64 dev vb");
    ip(&namespace, "-6 address del 2001:db8::1/64 dev va");
    assert_eq!(bench.converge(&declared), ["+ address 2001:db8::1/64 dev va"]);
}

#[test]
fn routes_follow_the_network_of_their_gateway_to_another_link() {
    let namespace = cable();
    let (route, other) =
        (("route 10.5.0.0/16", "via 10.1.0.9"), ("address 10.2.0.1/24 dev va", ""));
    let ipv6 = ("route 2001:db8:5::/48", "via fd01::9");
    let mut bench = Bench::new();
    bench.converge(&desired(&[
        ("address 10.1.0.1/24 dev va", ""),
        ("address fd01::1/64 dev va", ""),
        other,
        route,
        ipv6,
    ]));
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16")[0]["dev"], "va");
    let moved = desired(&[
        ("address 10.1.0.1/24 dev vb", ""),
        ("address fd01::1/64 dev vb", ""),
        other,
        route,
        ipv6,
    ]);
    let done = bench.converge(&moved);
    assert!(done.iter().any(|line| line.contains("route 10.5.0.0/16")), "{done:?}");
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16")[0]["dev"], "vb");
    assert_eq!(listed(&namespace, "-6 route show 2001:db8:5::/48")[0]["dev"], "vb");
    bench.assert_quiet(&moved);
}

#[test]
fn a_foreign_route_stays_when_the_network_of_a_gateway_moves() {
    let namespace = cable();
    let (route, other) =
        (("route 10.5.0.0/16", "via 10.1.0.9"), ("address 10.2.0.1/24 dev va", ""));
    let mut bench = Bench::new();
    bench.converge(&desired(&[("address 10.1.0.1/24 dev va", ""), other]));
    ip(&namespace, "route add 10.5.0.0/16 via 10.1.0.9 proto bird");
    let moved = desired(&[("address 10.1.0.1/24 dev vb", ""), other, route]);
    bench.pass(&moved);
    let [left] = listed(&namespace, "route show 10.5.0.0/16").try_into().unwrap();
    assert_eq!(left["protocol"], "bird", "{left}");
    assert_eq!(left["dev"], "va", "{left}");
}
