//! Nexthop objects and groups of them, and the routes through them.

use homeostat_engine::{Cascades, Explain as _};
use homeostat_rtnl::Key;

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

const ADDRESS: Declared<'_> = ("address 10.0.0.1/24 dev va", "");
const ADDRESS6: Declared<'_> = ("address 2001:db8::1/64 dev va", "");
const TEN: Declared<'_> = ("nexthop 10", "via 10.0.0.2 dev va");
const ELEVEN: Declared<'_> = ("nexthop 11", "via 10.0.0.3 dev va");
const GROUP: Declared<'_> = ("nexthop 20", "member 10*5 member 11*7");
const ROUTE: Declared<'_> = ("route 10.5.0.0/16", "nhid 10");

fn assert_nexthop(attrs: &str, shown: &[(&str, &str)]) {
    let namespace = cable();
    let entries = [ADDRESS, ADDRESS6, TEN, ELEVEN, ("nexthop 30", attrs)];
    let mut bench = Bench::new();
    bench.converge(&desired(&entries));
    let nexthops = listed(&namespace, "-d nexthop show id 30");
    for (field, value) in [("/protocol", "\"76\"")].iter().chain(shown) {
        let seen = nexthops[0].pointer(field).map(ToString::to_string);
        assert_eq!(seen, Some((*value).to_owned()), "{field} in {nexthops:?}");
    }
    assert_eq!(bench.converge(&desired(&entries[..4])), ["- nexthop 30"]);
    assert_eq!(listed(&namespace, "nexthop show").len(), 2);
}

#[test]
fn every_attribute_reads_back_as_it_was_written() {
    let gateway = [("/gateway", "\"10.0.0.9\""), ("/dev", "\"va\"")];
    assert_nexthop("via 10.0.0.9 dev va", &gateway);
    assert_nexthop("via 10.0.0.9 dev va scope link", &[("/scope", "\"link\"")]);
    assert_nexthop("via 192.0.2.9 dev va onlink on", &[("/flags/0", "\"onlink\"")]);
    assert_nexthop("via 10.0.0.9 dev va onlink off", &gateway);
    assert_nexthop("via 2001:db8::9 dev va", &[("/gateway", "\"2001:db8::9\"")]);
    assert_nexthop("dev va", &[("/dev", "\"va\""), ("/scope", "\"host\"")]);
    assert_nexthop("dev va family inet6", &[("/dev", "\"va\""), ("/scope", "\"link\"")]);
    assert_nexthop("blackhole on", &[("/blackhole", "null")]);
    assert_nexthop("blackhole on family inet6", &[("/blackhole", "null")]);
    let group = [("/group/0/id", "10"), ("/group/0/weight", "255"), ("/group/1/id", "11")];
    assert_nexthop("member 11*1 member 10*255", &group);
}

/// Quirk: older kernels refuse the greatest weight.
#[test]
fn a_weight_of_256() {
    let namespace = cable();
    let mut bench = Bench::new();
    let declared = desired(&[ADDRESS, TEN, ELEVEN, ("nexthop 30", "member 10*256")]);
    let report = bench.pass(&declared);
    if listed(&namespace, "nexthop show").iter().all(|nexthop| nexthop["id"] != 30) {
        let failed: Vec<_> =
            explained(&report).into_iter().filter(|line| line.contains("30")).collect();
        assert!(failed[0].starts_with("failed nexthop 30: Invalid value for weight"), "{failed:?}");
    } else {
        bench.assert_quiet(&declared);
    }
}

#[test]
fn members_come_before_their_groups_and_groups_before_their_routes() {
    let namespace = cable();
    let mut bench = Bench::new();
    let entries = [ADDRESS, TEN, ELEVEN, GROUP, ("route 10.5.0.0/16", "nhid 20")];
    let made = bench.converge(&desired(&entries));
    let keys = ["address 10.0.0.1/24 dev va", "nexthop 10", "nexthop 11", "nexthop 20"];
    let expected = keys.iter().chain(&["route 10.5.0.0/16"]).map(|key| format!("+ {key}"));
    assert_eq!(made, expected.collect::<Vec<_>>());
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16")[0]["nhid"], 20);
    let gone = bench.converge(&desired(&[ADDRESS]));
    assert_eq!(gone, ["- route 10.5.0.0/16", "- nexthop 20", "- nexthop 10", "- nexthop 11"]);
}

#[test]
fn routes_through_nexthops_of_every_kind_are_stable() {
    let namespace = cable();
    let mut bench = Bench::new();
    let entries = [
        ADDRESS,
        ADDRESS6,
        TEN,
        ELEVEN,
        GROUP,
        ("nexthop 12", "blackhole on"),
        ("nexthop 13", "blackhole on family inet6"),
        ("nexthop 14", "via 2001:db8::9 dev va"),
        ("nexthop 15", "dev va"),
        ("route 10.5.0.0/16", "nhid 10"),
        ("route 10.6.0.0/16", "nhid 20 mtu 1400"),
        ("route 10.7.0.0/16 table 100 metric 7", "nhid 12"),
        ("route 10.8.0.0/16", "nhid 14"),
        ("route 10.9.0.0/16", "nhid 15 src 10.0.0.1"),
        ("route 2001:db8:5::/48", "nhid 14"),
        ("route 2001:db8:6::/48", "nhid 13"),
    ];
    bench.converge(&desired(&entries));
    assert_eq!(listed(&namespace, "route show proto 76").len(), 4);
    assert_eq!(listed(&namespace, "-6 route show proto 76").len(), 2);
    assert_eq!(bench.converge(&desired(&entries[..9])).len(), 7, "they go, holes too");
    assert!(listed(&namespace, "route show table all proto 76").is_empty());
}

#[test]
fn a_route_moves_between_a_way_and_a_nexthop_in_place() {
    let _namespace = cable();
    let mut bench = Bench::new();
    let six = ("nexthop 16", "via 2001:db8::2 dev va");
    let entries = |v4, v6| {
        let routes = [("route 10.5.0.0/16", v4), ("route 2001:db8:5::/48", v6)];
        desired(&[&[ADDRESS, ADDRESS6, TEN, six][..], &routes].concat())
    };
    let ways = entries("via 10.0.0.2 dev va", "via 2001:db8::2 dev va");
    let nexthops = entries("nhid 10", "nhid 16");
    bench.converge(&ways);
    for desired in [&nexthops, &ways, &nexthops] {
        let moved = ["~ route 10.5.0.0/16", "~ route 2001:db8:5::/48"];
        assert_eq!(bench.converge(desired), moved);
    }
}

#[test]
fn a_nexthop_and_a_group_change_in_place_under_their_routes() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[
        ADDRESS,
        TEN,
        ELEVEN,
        GROUP,
        ROUTE,
        ("route 10.6.0.0/16", "nhid 20"),
    ]));
    let moved = [
        ADDRESS,
        ("nexthop 10", "via 10.0.0.7 dev va"),
        ELEVEN,
        ("nexthop 20", "member 10*1"),
        ROUTE,
        ("route 10.6.0.0/16", "nhid 20"),
    ];
    assert_eq!(bench.converge(&desired(&moved)), ["~ nexthop 10", "~ nexthop 20"]);
    let route = &listed(&namespace, "route show 10.6.0.0/16")[0];
    assert_eq!((&route["gateway"], &route["nhid"]), (&"10.0.0.7".into(), &20.into()));
}

#[test]
fn nexthop_kind_is_for_good() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "nexthop add id 10 via 10.0.0.2 dev va");
    ip(&namespace, "nexthop add id 11 via 10.0.0.3 dev va");
    ip(&namespace, "nexthop add id 20 group 10");
    for args in ["id 10 group 11", "id 20 via 10.0.0.3 dev va"] {
        let args = format!("nexthop replace {args}");
        let words: Vec<&str> = args.split_whitespace().collect();
        let refused = namespace.ip(&words).unwrap_err().to_string();
        assert!(refused.contains("Can not replace a nexthop"), "{refused}");
    }
}

#[test]
fn a_nexthop_that_becomes_a_group_is_made_anew_and_its_routes_follow() {
    let namespace = cable();
    let mut bench = Bench::new();
    let bound = ("nexthop 20", "via 10.0.0.9 dev va");
    let route = ("route 10.5.0.0/16", "nhid 20");
    bench.converge(&desired(&[ADDRESS, TEN, ELEVEN, bound, route]));
    let grouped = desired(&[ADDRESS, TEN, ELEVEN, GROUP, route]);
    let done = bench.converge(&grouped);
    assert_eq!(done, ["-/+ nexthop 20", "-/+ route 10.5.0.0/16"]);
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16")[0]["nhid"], 20);
}

#[test]
fn a_hand_deleted_nexthop_returns_with_its_route_and_its_place_in_the_group() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[ADDRESS, TEN, ELEVEN, GROUP, ROUTE]);
    bench.converge(&desired);
    ip(&namespace, "nexthop del id 10");
    let done = bench.converge(&desired);
    assert_eq!(done, ["+ nexthop 10", "~ nexthop 20", "+ route 10.5.0.0/16"]);
    ip(&namespace, "nexthop del id 20");
    assert_eq!(bench.converge(&desired), ["+ nexthop 20"], "exactly one create");
}

#[test]
fn a_foreign_nexthop_survives_and_one_on_a_wanted_number_is_a_conflict() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "nexthop add id 10 via 10.0.0.7 dev va proto bird");
    ip(&namespace, "nexthop add id 11 via 10.0.0.3 dev va proto static");
    ip(&namespace, "nexthop add id 12 blackhole");
    let before = listed(&namespace, "-d nexthop show");
    let mut bench = Bench::new();
    let report = bench.pass(&desired(&[ADDRESS, TEN, ELEVEN]));
    let lines = explained(&report);
    assert!(lines.contains(&"conflict nexthop 10: protocol bird".to_owned()), "{lines:?}");
    assert!(lines.contains(&"matched nexthop 11: protocol static".to_owned()), "{lines:?}");
    bench.converge(&desired(&[]));
    assert_eq!(listed(&namespace, "-d nexthop show"), before);
}

#[test]
fn standing_leave_takes_a_nexthop_from_anybody() {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "nexthop add id 10 via 10.0.0.7 dev va proto bird");
    let mut bench = Bench::new();
    bench.config.adopt.insert(TEN.0.parse::<Key>().unwrap());
    assert!(bench.pass(&desired(&[TEN])).is_converged());
    bench.config.adopt.clear();
    bench.assert_quiet(&desired(&[TEN]));
    assert_eq!(bench.converge(&desired(&[])), ["- nexthop 10"]);
}

#[test]
fn nexthop_takes_routes() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[ADDRESS, TEN, ELEVEN]));
    ip(&namespace, "route add 10.9.0.0/16 nhid 10 proto bird");
    ip(&namespace, "nexthop add id 40 group 11 proto bird");
    ip(&namespace, "route add 10.8.0.0/16 nhid 40 proto bird");
    let routes = listed(&namespace, "-4 route show table all");
    let held = explained(&bench.pass(&desired(&[ADDRESS])));
    let expected = [
        "held nexthop 10: it would take `route 10.9.0.0/16` along",
        "held nexthop 11: it would take `nexthop 40` along",
    ];
    assert_eq!(held.len(), 2, "{held:?}");
    for (line, expected) in held.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
    assert_eq!(listed(&namespace, "-4 route show table all"), routes);
    // In a look at nothing but the nexthop, too.
    let held = explained(&bench.focused(&desired(&[ADDRESS]), &["nexthop 10"]));
    assert!(held[0].starts_with(expected[0]), "{held:?}");
    bench.config.guards.cascades = Cascades::Allow;
    assert_eq!(bench.converge(&desired(&[ADDRESS])), ["- nexthop 10", "- nexthop 11"]);
    assert!(listed(&namespace, "route show proto bird").is_empty(), "the kernel took them");
    assert!(listed(&namespace, "nexthop show").is_empty(), "and the group with its last member");
}

#[test]
fn a_nexthop_that_has_to_be_made_anew_is_held_for_the_sake_of_a_foreign_route() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[ADDRESS, TEN, ELEVEN]));
    ip(&namespace, "route add 10.9.0.0/16 nhid 11 proto bird");
    let report = bench.pass(&desired(&[ADDRESS, TEN, ("nexthop 11", "member 10*1")]));
    let lines = explained(&report);
    assert!(
        lines[0].starts_with("held nexthop 11: it would take `route 10.9.0.0/16`"),
        "{lines:?}"
    );
    assert_eq!(listed(&namespace, "route show 10.9.0.0/16").len(), 1);
}

#[test]
fn a_member_leaves_its_group_before_it_goes() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[ADDRESS, TEN, ELEVEN, GROUP, ("route 10.5.0.0/16", "nhid 20")]));
    let rest = [ADDRESS, TEN, ("nexthop 20", "member 10*5"), ("route 10.5.0.0/16", "nhid 20")];
    assert_eq!(bench.converge(&desired(&rest)), ["~ nexthop 20", "- nexthop 11"]);
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16").len(), 1);
}

#[test]
fn a_nexthop_on_an_absent_link_waits_and_so_does_what_goes_through_it() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[
        ("address 10.1.0.1/24 dev later", ""),
        ("nexthop 10", "via 10.1.0.2 dev later"),
        ("nexthop 20", "member 10*1"),
        ("route 10.5.0.0/16", "nhid 10"),
        ("route 10.6.0.0/16", "nhid 20"),
    ]);
    let pending = [
        "pending address 10.1.0.1/24 dev later: link later",
        "pending route 10.5.0.0/16: nexthop 10",
        "pending route 10.6.0.0/16: nexthop 20",
        "pending nexthop 10: link later",
        "pending nexthop 20: nexthop 10",
    ];
    assert_eq!(explained(&bench.pass(&desired)), pending);
    ip(&namespace, "link add later type bridge");
    ip(&namespace, "link set later up");
    assert_eq!(bench.converge(&desired).len(), 5);
}

#[test]
fn a_failed_nexthop_blocks_what_goes_through_it() {
    let _namespace = cable();
    let mut bench = Bench::new();
    let lost = ("nexthop 10", "via 192.0.2.9 dev va");
    let report = bench.pass(&desired(&[ADDRESS, lost, ELEVEN, GROUP, ROUTE]));
    let lines = explained(&report);
    let failed = lines.iter().filter(|line| line.starts_with("failed nexthop 10: ")).count();
    assert_eq!(failed, 1, "{lines:?}");
    assert!(lines.contains(&"pending nexthop 20: nexthop 10".to_owned()), "{lines:?}");
    assert!(lines.contains(&"pending route 10.5.0.0/16: nexthop 10".to_owned()), "{lines:?}");
}

#[test]
fn nexthop_scope_is_derived_and_nexthop_delete_asks_for_no_protocol() {
    use homeostat_netlink::uapi::{NHA_BLACKHOLE, NHA_ID, RTM_DELNEXTHOP, RTM_NEWNEXTHOP};
    let _namespace = cable();
    let ask = |kind, fixed: [u8; 8]| {
        let mut batch = homeostat_netlink::Batch::new();
        let mut message = batch.message(kind, 0x400);
        message.fixed(&fixed).attr_u32(NHA_ID, 7);
        if kind == RTM_NEWNEXTHOP {
            message.attr_flag(NHA_BLACKHOLE);
        }
        message.finish().unwrap();
        let family = homeostat_netlink::Family::Route;
        let mut connection = homeostat_netlink::Connection::open(family).unwrap();
        let mut answer = String::new();
        connection.run(&mut batch, &mut |_, reply| answer = format!("{reply:?}")).unwrap();
        answer
    };
    assert!(ask(RTM_NEWNEXTHOP, [2, 253, 76, 0, 0, 0, 0, 0]).contains("Refused"));
    assert_eq!(ask(RTM_NEWNEXTHOP, [2, 0, 76, 0, 0, 0, 0, 0]), "Done");
    assert!(ask(RTM_DELNEXTHOP, [0, 0, 76, 0, 0, 0, 0, 0]).contains("Refused"));
    assert_eq!(ask(RTM_DELNEXTHOP, [0; 8]), "Done");
}

#[test]
fn a_nexthop_lost_with_its_link_that_went_down_returns_with_its_route() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[ADDRESS, TEN, ROUTE]);
    bench.converge(&desired);
    ip(&namespace, "link set va down");
    assert!(listed(&namespace, "nexthop show").is_empty());
    ip(&namespace, "link set va up");
    assert_eq!(bench.converge(&desired), ["+ nexthop 10", "+ route 10.5.0.0/16"]);
}
