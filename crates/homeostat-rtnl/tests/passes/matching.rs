//! Links that are known by what they are: the one that matches gets the declared name, and gives it back.

use homeostat_engine::{Explain as _, OnRelease};
use homeostat_rtnl::{Builder, DesiredState, LinkMatch};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, add, cable, explained, ip, listed};

const MAC: &str = "02:00:00:00:00:0a";

/// `mac`, `path` or `altname`, with its value.
fn known_by(words: &str) -> LinkMatch {
    let (word, value) = words.split_once(' ').unwrap();
    let mut by = LinkMatch::default();
    match word {
        "mac" => by.mac = Some(value.parse().unwrap()),
        "altname" => by.altname = Some(value.to_owned()),
        "path" => by.path = Some(value.to_owned()),
        other => panic!("{other}"),
    }
    by
}

fn desired(matches: &[(&str, &str)], others: &[(&str, &str)]) -> DesiredState {
    let mut builder = Builder::default();
    for (name, by) in matches {
        builder.match_link(name.parse().unwrap(), known_by(by)).unwrap();
    }
    for (key, attrs) in others {
        add(&mut builder, key.parse().unwrap(), attrs).unwrap();
    }
    builder.build().unwrap()
}

fn with_mac() -> Namespace {
    let namespace = cable();
    ip(&namespace, &format!("link set va address {MAC}"));
    namespace
}

fn names(namespace: &Namespace) -> Vec<String> {
    let links = listed(namespace, "link show");
    links.iter().map(|link| link["ifname"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_link_that_matches_gets_the_name_and_what_is_declared_for_it() {
    let namespace = with_mac();
    let mut bench = Bench::new();
    bench.config.on_release = OnRelease::Restore;
    ip(&namespace, "address add 10.9.0.1/24 dev va");
    ip(&namespace, "route add 10.8.0.0/16 via 10.9.0.9 proto static");
    let others = [
        ("address 10.0.0.1/24 dev wan0", ""),
        ("link wan0 mtu", "1400"),
        ("route 10.5.0.0/16", "via 10.0.0.2 dev wan0"),
    ];
    let desired = desired(&[("wan0", &format!("mac {MAC}"))], &others);
    let index = listed(&namespace, "link show va")[0]["ifindex"].clone();
    let done = explained(&bench.pass(&desired));
    assert!(done.contains(&"~ link wan0 name".to_owned()), "{done:#?}");
    assert!(names(&namespace).contains(&"wan0".to_owned()));
    let done = bench.converge(&desired);
    assert!(done.contains(&"+ address 10.0.0.1/24 dev wan0".to_owned()), "{done:#?}");
    let link = &listed(&namespace, "link show wan0")[0];
    assert_eq!((&link["ifindex"], &link["mtu"]), (&index, &1400.into()));
    assert_eq!(listed(&namespace, "route show 10.8.0.0/16 dev wan0").len(), 1, "that of another");
    // All of it is given back, the name last.
    let nothing = DesiredState::default();
    let report = bench.pass(&nothing);
    assert!(report.is_converged(), "{:#?}", explained(&report));
    let link = &listed(&namespace, "link show va")[0];
    assert_eq!((&link["ifindex"], &link["mtu"]), (&index, &1500.into()));
    bench.assert_quiet(&nothing);
}

/// Quirk: Linux 6.1 renames a link only while it is down.
#[test]
fn a_link_that_is_up_keeps_its_name() {
    let namespace = with_mac();
    let mut bench = Bench::new();
    ip(&namespace, "address add 10.9.0.1/24 dev va");
    ip(&namespace, "-6 address add 2001:db8::1/64 dev va nodad");
    ip(&namespace, "route add 10.8.0.0/16 via 10.9.0.9 proto static");
    ip(&namespace, "-6 route add 2001:db8:8::/48 via 2001:db8::9 proto static metric 7");
    ip(&namespace, "nexthop add id 7 via 10.9.0.9 dev va");
    ip(&namespace, "route add 10.7.0.0/16 nhid 7 proto static");
    let count = |args: &str| listed(&namespace, args).len();
    bench.converge(&desired(&[("wan0", &format!("mac {MAC}"))], &[]));
    for args in [
        "route show 10.8.0.0/16 dev wan0",
        "-6 route show 2001:db8:8::/48 dev wan0",
        "route show 10.7.0.0/16",
        "nexthop show id 7",
    ] {
        assert_eq!(count(args), 1, "{args}");
    }
    let link = &listed(&namespace, "address show dev wan0")[0];
    let shown = link["addr_info"].to_string();
    assert!(shown.contains("2001:db8::1") && shown.contains("10.9.0.1"), "{shown}");
    assert!(link["flags"].to_string().contains("\"UP\""), "{link}");
}

#[test]
fn an_event_is_enough_to_find_a_link_that_comes_or_is_renamed() {
    let namespace = cable();
    let mut bench = Bench::new();
    let others = [("address 10.0.0.1/24 dev wan0", "")];
    let desired = desired(&[("wan0", &format!("mac {MAC}"))], &others);
    let waits =
        ["pending address 10.0.0.1/24 dev wan0: link wan0", "pending link wan0 name: link wan0"];
    assert_eq!(explained(&bench.pass(&desired)), waits);
    while bench.hint().is_some() {}
    ip(&namespace, &format!("link add eth7 address {MAC} type veth peer name peer7"));
    let done = bench.heal(&desired);
    assert!(done.contains(&"~ link wan0 name".to_owned()), "{done:#?}");
    assert!(done.contains(&"+ address 10.0.0.1/24 dev wan0".to_owned()), "{done:#?}");
    ip(&namespace, "link set wan0 down");
    ip(&namespace, "link set wan0 name other");
    let done = bench.heal(&desired);
    assert!(done.contains(&"~ link wan0 name".to_owned()), "{done:#?}");
    bench.pass(&desired);
    bench.assert_quiet(&desired);
}

#[test]
fn an_alternative_name_is_something_to_be_known_by() {
    let namespace = cable();
    let mut bench = Bench::new();
    ip(&namespace, "link property add dev va altname enp3s0-of-the-provider");
    let desired = desired(&[("wan0", "altname enp3s0-of-the-provider")], &[]);
    bench.converge(&desired);
    assert!(names(&namespace).contains(&"wan0".to_owned()));
}

#[test]
fn without_a_match_or_with_several_nothing_is_touched() {
    let namespace = with_mac();
    let mut bench = Bench::new();
    ip(&namespace, &format!("link set vb address {MAC}"));
    let by = format!("mac {MAC}");
    let others = [("link va mtu", "1400"), ("link wan0 mtu", "1300")];
    let several = desired(&[("va", &by), ("wan0", &by)], &others);
    let done = explained(&bench.pass(&several));
    let why = |name| done.iter().any(|line| line.contains(&format!("link {name} name")));
    assert!(why("va") && why("wan0"), "{done:#?}");
    assert!(done.iter().any(|line| line.contains("`va`, `vb`")), "{done:#?}");
    // The one that has the name may be the wrong one.
    assert_eq!(listed(&namespace, "link show va")[0]["mtu"], 1500);
    let nobody = desired(&[("va", "path pci-0000:03:00.0")], &others[..1]);
    let done = explained(&bench.pass(&nobody));
    assert_eq!(done, ["pending link va mtu: link va", "pending link va name: link va"]);
    assert_eq!(listed(&namespace, "link show va")[0]["mtu"], 1500);
}

#[test]
fn a_name_that_another_link_has_is_refused_with_the_way_out() {
    let namespace = with_mac();
    let mut bench = Bench::new();
    let desired = desired(&[("vb", &format!("mac {MAC}"))], &[("link vb mtu", "1400")]);
    let done = explained(&bench.pass(&desired));
    assert!(done.iter().any(|line| line.contains("another link has the name `vb`")), "{done:#?}");
    for name in ["va", "vb"] {
        assert_eq!(listed(&namespace, &format!("link show {name}"))[0]["mtu"], 1500);
    }
    ip(&namespace, "link set vb down");
    ip(&namespace, "link set vb name vc");
    bench.pass(&desired);
    bench.pass(&desired);
    assert_eq!(listed(&namespace, "link show vb")[0]["address"], MAC);
    assert_eq!(listed(&namespace, "link show vb")[0]["mtu"], 1400);
    bench.assert_quiet(&desired);
}

#[test]
fn two_links_exchange_their_names_and_get_them_back() {
    let namespace = with_mac();
    let mut bench = Bench::new();
    bench.config.on_release = OnRelease::Restore;
    let other = "02:00:00:00:00:0b";
    ip(&namespace, &format!("link set vb address {other}"));
    let desired = desired(&[("vb", &format!("mac {MAC}")), ("va", &format!("mac {other}"))], &[]);
    let address =
        |name: &str| listed(&namespace, &format!("link show {name}"))[0]["address"].clone();
    bench.pass(&desired);
    bench.assert_quiet(&desired);
    assert_eq!((address("vb"), address("va")), (MAC.into(), other.into()));
    let nothing = DesiredState::default();
    bench.pass(&nothing);
    bench.assert_quiet(&nothing);
    assert_eq!((address("va"), address("vb")), (MAC.into(), other.into()));
}
