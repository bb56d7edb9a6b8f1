//! Links that are made: who owns them, and what becomes of what is on them.

use homeostat_engine::{Cascades, Explain as _};
use homeostat_netlink::uapi::{
    IFLA_GROUP, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, NLM_F_CREATE, NLM_F_EXCL,
    RTM_NEWLINK,
};
use homeostat_netlink::{Batch, Connection, Family};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, desired, explained, ip, listed, try_desired};

const BRIDGE: (&str, &str) = ("link br0", "bridge up on");
const ADDRESS: (&str, &str) = ("address 10.0.0.1/24 dev br0", "");
const ROUTE: (&str, &str) = ("route 10.5.0.0/16", "via 10.0.0.2");
const ROUTE6: (&str, &str) = ("route 2001:db8:5::/48", "dev br0");

fn shown(namespace: &Namespace, name: &str) -> serde_json::Value {
    listed(namespace, &format!("-d link show dev {name}")).remove(0)
}

fn exists(namespace: &Namespace, name: &str) -> bool {
    namespace.ip(&["link", "show", "dev", name]).is_ok()
}

#[test]
fn a_link_is_made_with_what_is_on_it_in_one_pass_and_goes_with_it() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let done = bench.converge(&desired(&[BRIDGE, ADDRESS, ROUTE, ROUTE6]));
    let all = [
        "+ link br0",
        "+ address 10.0.0.1/24 dev br0",
        "+ route 10.5.0.0/16",
        "+ route 2001:db8:5::/48",
    ];
    assert_eq!(done, all);
    let link = shown(&namespace, "br0");
    assert_eq!((&link["group"], &link["ifalias"]), (&"76".into(), &"homeostat:default".into()));
    bench.converge(&desired(&[]));
    assert!(!exists(&namespace, "br0"));
}

#[test]
fn a_hand_deleted_link_returns_with_its_addresses_and_routes_in_one_pass() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let desired = desired(&[BRIDGE, ADDRESS, ROUTE, ROUTE6]);
    bench.converge(&desired);
    let before = shown(&namespace, "br0")["ifindex"].clone();
    ip(&namespace, "link del br0");
    assert_eq!(bench.converge(&desired).len(), 4);
    // Another one took the number in the meantime.
    assert_ne!(shown(&namespace, "br0")["ifindex"], before);
    assert_eq!(listed(&namespace, "route show proto 76").len(), 1);
    assert_eq!(listed(&namespace, "-6 route show proto 76").len(), 1);
}

#[test]
fn a_link_that_is_made_again_takes_what_was_on_it_into_the_same_pass() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let with = |id: &'static str| {
        desired(&[
            ("link vx0", id),
            ("address 10.0.0.1/24 dev vx0", ""),
            ("address 2001:db8::1/64 dev vx0", ""),
            ROUTE,
            ("route 10.6.0.0/16", "dev vx0"),
        ])
    };
    bench.converge(&with("vxlan id 5 up on"));
    let done = bench.converge(&with("vxlan id 6 up on"));
    let all = [
        "-/+ link vx0",
        "+ address 10.0.0.1/24 dev vx0",
        "+ address 2001:db8::1/64 dev vx0",
        "+ route 10.5.0.0/16",
        "+ route 10.6.0.0/16",
    ];
    assert_eq!(done, all);
    assert_eq!(listed(&namespace, "route show proto 76").len(), 2);
    assert_eq!(shown(&namespace, "vx0")["linkinfo"]["info_data"]["id"], 6);
}

#[test]
fn nexthops_and_neighbours_come_with_their_link_and_with_its_replacement() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let with = |link: &'static str| {
        desired(&[
            ("link vx0", link),
            ("address 10.0.0.1/24 dev vx0", ""),
            ("nexthop 10", "via 10.0.0.2 dev vx0"),
            ("nexthop 20", "member 10*1"),
            ("route 10.5.0.0/16", "nhid 20"),
            ("neighbour 10.0.0.9 dev vx0", "02:00:00:00:00:09"),
        ])
    };
    assert_eq!(bench.converge(&with("vxlan id 5 up on")).len(), 6);
    assert_eq!(bench.converge(&with("vxlan id 6 up on")).len(), 6);
    ip(&namespace, "link del vx0");
    assert_eq!(bench.converge(&with("vxlan id 6 up on")).len(), 6);
    assert_eq!(listed(&namespace, "nexthop show").len(), 2);
}

/// Quirk: the group is honoured in the creating message, the alias is not.
#[test]
fn an_alias_comes_after_the_link() {
    let namespace = Namespace::enter().unwrap();
    let mut batch = Batch::new();
    let mut message = batch.message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    message.fixed(&[0; 16]).attr_str(IFLA_IFNAME, "x0").attr_u32(IFLA_GROUP, 76);
    message.attr(IFLA_IFALIAS, b"early");
    message.nest(IFLA_LINKINFO, |kind| _ = kind.attr_str(IFLA_INFO_KIND, "ifb"));
    message.finish().unwrap();
    let mut connection = Connection::open(Family::Route).unwrap();
    connection.ask(&mut batch, &mut |_| {}).unwrap();
    let link = shown(&namespace, "x0");
    assert_eq!((&link["group"], &link["ifalias"]), (&"76".into(), &serde_json::Value::Null));
}

#[test]
fn a_focused_pass_heals_a_link_and_looks_at_nothing_else() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let declared = desired(&[BRIDGE, ("link br1", "bridge mtu 1400"), ADDRESS]);
    bench.converge(&declared);
    ip(&namespace, "link set br1 mtu 1300");
    ip(&namespace, "link set br0 down");
    assert_eq!(explained(&bench.focused(&declared, &["link br1"])), ["~ link br1"]);
    assert_eq!(explained(&bench.focused(&declared, &["link br0"])), ["~ link br0"]);
    ip(&namespace, "route add 10.7.0.0/16 dev br0 proto static");
    let gone = desired(&[("link br1", "bridge mtu 1400")]);
    let lines = explained(&bench.focused(&gone, &["link br0"]));
    assert!(lines[0].starts_with("held link br0: it would take `route 10.7.0.0/16`"), "{lines:?}");
}

#[test]
fn a_foreign_link_on_a_wanted_name_is_a_conflict_and_stays_as_it_is() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add br0 type bridge");
    let before = listed(&namespace, "-d link show");
    let report = Bench::new().pass(&desired(&[("link br0", "bridge mtu 1400")]));
    assert_eq!(explained(&report), ["conflict link br0: another owner"]);
    assert_eq!(listed(&namespace, "-d link show"), before);
}

#[test]
fn a_foreign_link_that_is_as_declared_is_matched_and_never_deleted() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add br0 type bridge");
    let mut bench = Bench::new();
    assert_eq!(
        bench.converge(&desired(&[("link br0", "bridge")])),
        ["matched link br0: another owner"]
    );
    bench.assert_quiet(&desired(&[]));
    assert!(exists(&namespace, "br0"));
}

#[test]
fn standing_leave_takes_a_link_over_in_place() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set br0 alias office");
    let before = shown(&namespace, "br0")["ifindex"].clone();
    let mut bench = Bench::new();
    bench.config.adopt.insert("link br0".parse().unwrap());
    let declared = desired(&[("link br0", "bridge mtu 1400")]);
    let report = bench.pass(&declared);
    assert!(report.is_converged(), "{:?}", explained(&report));
    bench.config.adopt.clear();
    bench.assert_quiet(&declared);
    let link = shown(&namespace, "br0");
    assert_eq!((&link["ifindex"], &link["mtu"]), (&before, &1400.into()));
    assert_eq!(
        (&link["group"], &link["ifalias"]),
        (&"76".into(), &"office homeostat:default".into())
    );
}

#[test]
fn a_foreign_link_that_would_have_to_be_made_again_is_not_taken_over() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add br0 type vxlan id 5 dstport 4789");
    let mut bench = Bench::new();
    bench.config.adopt.insert("link br0".parse().unwrap());
    let report = bench.pass(&desired(&[BRIDGE]));
    let lines = explained(&report);
    assert!(lines[0].starts_with("failed link br0: it belongs to another owner"), "{lines:?}");
    assert_eq!(shown(&namespace, "br0")["linkinfo"]["info_kind"], "vxlan");
}

#[test]
fn a_mark_that_somebody_took_off_is_reported_and_the_link_is_left_alone() {
    for strip in
        [&["link set br0 alias mine"][..], &["link set br0 alias mine", "link set br0 group 0"]]
    {
        let namespace = Namespace::enter().unwrap();
        let mut bench = Bench::new();
        bench.converge(&desired(&[BRIDGE]));
        for args in strip {
            ip(&namespace, args);
        }
        let before = shown(&namespace, "br0");
        for declared in [desired(&[("link br0", "bridge mtu 1400")]), desired(&[])] {
            let report = bench.pass(&declared);
            assert_eq!(explained(&report), ["conflict link br0: another owner"]);
            let reason = report
                .plan()
                .findings_of(homeostat_engine::Kind::Conflict)
                .next()
                .unwrap()
                .1
                .reason();
            assert_eq!(reason, "our mark was taken off");
        }
        let after = shown(&namespace, "br0");
        for part in ["ifindex", "ifalias", "group", "mtu", "flags"] {
            assert_eq!(after[part], before[part], "{part}");
        }
    }
}

#[test]
fn ownership_of_links_survives_a_lost_ledger() {
    let namespace = Namespace::enter().unwrap();
    Bench::new().converge(&desired(&[("link br0", "bridge alias office")]));
    // Another bench has another ledger, which knows nothing.
    assert_eq!(Bench::new().converge(&desired(&[])), ["- link br0"]);
    assert!(!exists(&namespace, "br0"));
}

#[test]
fn a_group_alone_makes_nothing_ours() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add br0 group 76 type bridge");
    Bench::new().assert_quiet(&desired(&[]));
    assert!(exists(&namespace, "br0"));
}

#[test]
fn another_owners_link_is_foreign() {
    let namespace = Namespace::enter().unwrap();
    Bench::with_protocol(77).converge(&desired(&[]));
    let blue = homeostat_rtnl::Rtnl::here().with_owner("blue");
    Bench::of(blue).converge(&desired(&[BRIDGE]));
    let report = Bench::new().pass(&desired(&[("link br0", "bridge mtu 1400")]));
    assert_eq!(explained(&report), ["conflict link br0: homeostat:blue"]);
    Bench::new().assert_quiet(&desired(&[]));
    assert!(exists(&namespace, "br0"));
}

#[test]
fn what_waits_for_a_link_waits_with_all_that_is_on_it() {
    let _namespace = Namespace::enter().unwrap();
    let report = Bench::new().pass(&desired(&[
        ("link mv0", "macvlan parent eth9"),
        ("link port", "ifb master br9"),
        ("address 10.0.0.1/24 dev mv0", ""),
    ]));
    let all = [
        "pending address 10.0.0.1/24 dev mv0: link mv0",
        "pending link mv0: link eth9",
        "pending link port: link br9",
    ];
    let mut lines = explained(&report);
    lines.sort();
    assert_eq!(lines, all);
}

#[test]
fn what_is_on_a_link_that_fails_is_blocked_and_the_rest_goes_on() {
    let namespace = Namespace::enter().unwrap();
    let report = Bench::new().pass(&desired(&[
        BRIDGE,
        ("link br1", "bridge mtu 70000 up on"),
        ADDRESS,
        ("address 10.1.0.1/24 dev br1", ""),
        ("route 10.6.0.0/16", "via 10.1.0.2"),
    ]));
    let lines = explained(&report);
    assert!(lines.iter().any(|l| l.starts_with("failed link br1: mtu greater")), "{lines:#?}");
    assert!(lines.contains(&"pending address 10.1.0.1/24 dev br1: link br1".into()), "{lines:#?}");
    assert!(lines.iter().any(|l| l.starts_with("pending route 10.6.0.0/16: ")), "{lines:#?}");
    assert!(exists(&namespace, "br0") && !exists(&namespace, "br1"));
}

#[test]
fn a_link_that_is_half_made_is_made_again() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let declared = desired(&[("link br0", "bridge")]);
    bench.intend(&declared);
    // The state that a crash leaves between the message that makes it and the one that marks it.
    ip(&namespace, "link add br0 group 76 type bridge");
    assert_eq!(bench.converge(&declared), ["-/+ link br0"]);
    assert_eq!(shown(&namespace, "br0")["ifalias"], "homeostat:default");
}

/// A crash left it without its mark, and somebody renamed it: it has the VNI that the declared link needs.
#[test]
fn a_link_that_is_half_made_and_renamed_makes_way() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    let declared = desired(&[("link vx0", "vxlan id 7")]);
    bench.intend(&declared);
    ip(&namespace, "link add vx9 group 76 type vxlan id 7 dstport 4789");
    ip(&namespace, "link add vx8 type vxlan id 8 dstport 4789");
    // The declared one is made by the next pass: links are created before others are deleted.
    bench.pass(&declared);
    bench.converge(&declared);
    assert!(exists(&namespace, "vx0") && !exists(&namespace, "vx9"));
    assert!(exists(&namespace, "vx8"), "it was never ours");
}

#[test]
fn impossible_links_are_refused() {
    for (key, attrs, why) in [
        ("link br0", "bridge parent eth0", "stands on no other"),
        ("link mv0", "macvlan", "needs a parent"),
        ("link mv0", "macvlan parent mv0", "refers to itself"),
        ("link br0", "bridge mtu 0", "at least 1"),
        ("link br0", "bridge alias homeostat:blue", "our mark"),
        ("link vx0", "vxlan id 16777216", "below 16777216"),
        ("link eth0 master", "eth0", "refers to itself"),
    ] {
        let error = try_desired(&[(key, attrs)]).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(why), "{key} {attrs}: {cause}");
    }
    assert!(try_desired(&[BRIDGE, BRIDGE]).is_err());
    assert!(try_desired(&[BRIDGE, ("link br0 mtu", "1400")]).is_err());
    let both_ends = [("link x0", "veth peer x1"), ("link x1", "veth peer x0")];
    assert!(try_desired(&both_ends).is_err());
}

#[test]
fn a_link_that_takes_foreign_things_along_is_held_until_that_is_allowed() {
    let namespace = Namespace::enter().unwrap();
    let mut bench = Bench::new();
    bench.converge(&desired(&[BRIDGE]));
    ip(&namespace, "link add mv0 link br0 type macvlan");
    let report = bench.pass(&desired(&[]));
    let lines = explained(&report);
    assert!(lines[0].starts_with("held link br0: it would take `link mv0` along"), "{lines:?}");
    assert!(exists(&namespace, "br0") && exists(&namespace, "mv0"));
    bench.config.guards.cascades = Cascades::Allow;
    bench.converge(&desired(&[]));
    assert!(!exists(&namespace, "br0"));
}

#[test]
fn second_names_answer_too_and_stand_in_the_way_of_a_new_link() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link property add dev lo altname br0");
    let report = Bench::new().pass(&desired(&[BRIDGE]));
    let text = explained(&report).join("\n");
    assert!(text.contains("`br0` is an alternative name of link `lo`"), "{text}");
    ip(&namespace, "link property del dev lo altname br0");
    assert_eq!(Bench::new().converge(&desired(&[BRIDGE])), ["+ link br0"]);
}

/// Quirk: the kernel waits once for all links of a group that is deleted.
#[test]
fn a_link_takes_its_time() {
    let namespace = crate::bench::cable();
    let mut bench = Bench::new();
    let keys: Vec<String> = (0..300).map(|number| format!("link x{number}")).collect();
    let peers: Vec<String> = (0..300).map(|number| format!("veth peer y{number}")).collect();
    let pairs: Vec<_> =
        keys.iter().map(String::as_str).zip(peers.iter().map(String::as_str)).collect();
    let mut all = vec![("link br0", "bridge"), ("link mv0", "macvlan parent br0")];
    all.extend(&pairs);
    bench.converge(&desired(&all));
    // One of them goes with the one below, and one is kept; others have groups of their own.
    ip(&namespace, "link add theirs group 99 type veth peer name theirs1");
    bench.config.guards.mass_delete = homeostat_engine::MassDelete::Allow;
    assert_eq!(bench.converge(&desired(&pairs[..1])).len(), 301);
    let left = listed(&namespace, "link");
    let left: Vec<_> = left.iter().map(|link| link["ifname"].as_str().unwrap()).collect();
    assert_eq!(left.len(), 7, "{left:?}");
    for name in ["lo", "va", "vb", "x0", "y0", "theirs", "theirs1"] {
        assert!(left.contains(&name), "{left:?}");
    }
}
