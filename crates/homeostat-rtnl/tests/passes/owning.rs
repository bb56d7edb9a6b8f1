//! Who owns what: foreign objects are never written, and only the marks identify ours.

use homeostat_engine::Explain as _;
use homeostat_rtnl::{AddressMarks, Key, Rtnl};

use crate::bench::{Bench, addresses, cable, desired, explained, ip, listed};

const ADDRESS: (&str, &str) = ("address 10.0.0.1/24 dev va", "");
const ROUTE: (&str, &str) = ("route 10.5.0.0/16", "via 10.0.0.2");

/// If this fails on a newer kernel, more writes can be made conditional: see `has_precondition` of the laws.
#[test]
fn the_kernel_asks_for_the_protocol_only_where_routes_are_deleted() {
    let namespace = cable();
    let run = |args: &str| {
        let args: Vec<&str> = args.split_whitespace().collect();
        namespace.ip(&args).map_err(|error| error.to_string())
    };
    let protocol = |args: &str| listed(&namespace, args)[0]["protocol"].clone();
    ip(&namespace, "address add 10.0.0.1/24 dev va");

    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.2 proto 77");
    assert!(run("route del 10.5.0.0/16 proto 76").unwrap_err().contains("No such process"));
    ip(&namespace, "route replace 10.5.0.0/16 via 10.0.0.3 proto 76");
    assert_eq!(protocol("route show 10.5.0.0/16"), "76");

    ip(&namespace, "nexthop add id 5 via 10.0.0.2 dev va proto 77");
    assert!(run("nexthop del id 5 proto 76").unwrap_err().contains("Invalid values in header"));
    ip(&namespace, "nexthop replace id 5 via 10.0.0.3 dev va proto 76");
    assert_eq!(protocol("nexthop show"), "76");

    let nine = "neigh add 10.0.0.9 dev va lladdr 02:00:00:00:00:09 proto 77";
    ip(&namespace, nine);
    ip(&namespace, "neigh del 10.0.0.9 dev va proto 76");
    ip(&namespace, nine);
    ip(&namespace, "neigh replace 10.0.0.9 dev va lladdr 02:00:00:00:00:08 proto 76");
    assert_eq!(protocol("neigh show nud permanent"), "76");
}

#[test]
fn a_foreign_route_survives_an_empty_desired_state() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.2 proto bird");
    let before = listed(&namespace, "-4 -d route show table all");
    Bench::new().assert_quiet(&desired(&[]));
    assert_eq!(listed(&namespace, "-4 -d route show table all"), before);
}

#[test]
fn a_foreign_route_on_a_wanted_key_is_a_conflict_and_stays_as_it_is() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.3 proto bird");
    ip(&namespace, "-6 route add 2001:db8:5::/48 dev va proto 200");
    let before = listed(&namespace, "-4 -d route show table all");
    let before6 = listed(&namespace, "-6 -d route show proto 200");
    let desired = desired(&[ROUTE, ("route 2001:db8:5::/48", "dev vb")]);
    let mut bench = Bench::new();
    let conflicts = [
        "conflict route 10.5.0.0/16: protocol bird",
        "conflict route 2001:db8:5::/48: protocol 200",
    ];
    assert_eq!(explained(&bench.plan(&desired)), conflicts);
    assert_eq!(explained(&bench.pass(&desired)), conflicts);
    assert_eq!(listed(&namespace, "-4 -d route show table all"), before);
    assert_eq!(listed(&namespace, "-6 -d route show proto 200"), before6);
    ip(&namespace, "route del 10.5.0.0/16");
    ip(&namespace, "-6 route del 2001:db8:5::/48");
    assert_eq!(bench.converge(&desired).len(), 2);
}

#[test]
fn a_foreign_twin_on_our_key_is_a_conflict_and_neither_is_written() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[ADDRESS, ROUTE]));
    ip(&namespace, "route prepend 10.5.0.0/16 via 10.0.0.7 proto bird");
    let before = listed(&namespace, "-4 -d route show table all");
    let moved = desired(&[ADDRESS, ("route 10.5.0.0/16", "via 10.0.0.9")]);
    assert_eq!(explained(&bench.pass(&moved)), ["conflict route 10.5.0.0/16: unmarked"]);
    assert_eq!(listed(&namespace, "-4 -d route show table all"), before);
}

#[test]
fn a_foreign_object_that_is_as_declared_is_matched_and_never_deleted() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.2 proto static");
    let mut bench = Bench::new();
    let matched = [
        "matched address 10.0.0.1/24 dev va: no protocol",
        "matched route 10.5.0.0/16: protocol static",
    ];
    assert_eq!(bench.converge(&desired(&[ADDRESS, ROUTE])), matched);
    bench.assert_quiet(&desired(&[]));
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16").len(), 1);
}

#[test]
fn connected_routes_and_loopback_addresses_are_the_kernels() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[ADDRESS]));
    let report = bench.pass(&desired(&[
        ADDRESS,
        ("route 10.0.0.0/24", "via 10.0.0.2"),
        ("address ::1/128 dev lo", "noprefixroute on"),
    ]));
    let conflicts =
        ["conflict address ::1/128 dev lo: kernel", "conflict route 10.0.0.0/24: kernel"];
    assert_eq!(explained(&report), conflicts);
    assert_eq!(addresses(&namespace), ["10.0.0.1/24"]);
}

#[test]
fn a_foreign_address_on_a_wanted_key_is_a_conflict() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va label va:1");
    let desired = desired(&[("address 10.0.0.1/24 dev va", "label va:2")]);
    let report = Bench::new().pass(&desired);
    assert_eq!(explained(&report), ["conflict address 10.0.0.1/24 dev va: no protocol"]);
    let links = listed(&namespace, "address show dev va");
    assert_eq!(links[0]["addr_info"][0]["label"], "va:1");
}

#[test]
fn ownership_survives_a_lost_ledger() {
    let namespace = cable();
    Bench::new().converge(&desired(&[ADDRESS, ROUTE]));
    // Another bench has another ledger, which knows nothing.
    let done = Bench::new().converge(&desired(&[]));
    assert_eq!(done, ["- route 10.5.0.0/16", "- address 10.0.0.1/24 dev va"]);
    assert!(addresses(&namespace).is_empty());
}

#[test]
fn two_owners_in_one_namespace_leave_each_other_alone() {
    let namespace = cable();
    let (mut one, mut two) = (Bench::new(), Bench::with_protocol(77));
    let ours = desired(&[ADDRESS, ROUTE]);
    let theirs =
        desired(&[("address 10.1.0.1/24 dev va", ""), ("route 10.6.0.0/16", "via 10.1.0.2")]);
    one.converge(&ours);
    two.converge(&theirs);
    one.assert_quiet(&ours);
    two.assert_quiet(&theirs);
    one.converge(&desired(&[]));
    two.assert_quiet(&theirs);
    assert_eq!(addresses(&namespace), ["10.1.0.1/24"]);
}

#[test]
fn standing_leave_takes_a_key_from_anybody() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va valid_lft 600 preferred_lft 600");
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.3 proto bird");
    let declared = desired(&[ADDRESS, ROUTE]);
    let mut bench = Bench::new();
    bench.config.adopt.extend([ADDRESS.0.parse::<Key>().unwrap(), ROUTE.0.parse().unwrap()]);
    let mut report = bench.pass(&declared);
    if explained(&report).iter().any(|line| line.starts_with("held address")) {
        // Where the address has to be made anew, the route over it has to be ours before.
        report = bench.pass(&declared);
    }
    assert!(report.is_converged(), "{:#?}", explained(&report));
    bench.config.adopt.clear();
    bench.assert_quiet(&declared);
    assert_eq!(listed(&namespace, "route show proto 76").len(), 1);
    bench.converge(&desired(&[]));
    assert_eq!(addresses(&namespace), ["10.0.0.1/24"], "it is given back");
    assert_eq!(listed(&namespace, "route show proto bird").len(), 1);
}

/// Quirk: some kernels never change the mark of an IPv4 address, so that it is made anew to be ours, with
/// what goes along; and not, if that is foreign.
#[test]
fn v4_mark_for_good() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    let mut bench = Bench::of(Rtnl::here().with_address_marks(AddressMarks::Fixed));
    bench.config.adopt.insert(ADDRESS.0.parse().unwrap());
    ip(&namespace, "route add 10.6.0.0/16 via 10.0.0.2 proto bird");
    let lines = explained(&bench.pass(&desired(&[ADDRESS])));
    assert!(lines[0].starts_with("held address 10.0.0.1/24 dev va: it would take"), "{lines:?}");
    assert_eq!(listed(&namespace, "route show proto bird").len(), 1);
    ip(&namespace, "route del 10.6.0.0/16");
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.2 proto 76");
    let report = bench.pass(&desired(&[ADDRESS, ROUTE]));
    assert!(report.is_converged(), "{:#?}", explained(&report));
    assert_eq!(explained(&report), ["-/+ address 10.0.0.1/24 dev va", "-/+ route 10.5.0.0/16"]);
    bench.config.adopt.clear();
    bench.assert_quiet(&desired(&[ADDRESS, ROUTE]));
    bench.converge(&desired(&[]));
    assert_eq!(addresses(&namespace), ["10.0.0.1/24"], "it is given back");
}
