//! What a change of one link costs on other links, and in values that others have set: nothing foreign without leave.

use homeostat_engine::Cascades;
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, cable, desired, explained, ip, listed, until};

/// What `ip` lists, without what the kernel makes by itself and later.
fn everything(namespace: &Namespace) -> Vec<String> {
    let lists = [
        "link",
        "-6 route show table all",
        "route show table all",
        "neighbour show nud permanent",
        "nexthop",
    ];
    let mut lines = Vec::new();
    for list in lists {
        for mut one in listed(namespace, list) {
            let parts = ["operstate", "flags", "group", "ifalias", "link_index", "master", "qdisc"];
            for part in parts {
                one.as_object_mut().unwrap().remove(part);
            }
            lines.push(one.to_string());
        }
    }
    lines.retain(|line| !line.contains("fe80") && !line.contains("ff00::/8"));
    lines.sort();
    lines
}

/// The step of the last entry is held, in a look at everything and in one at its key.
fn holds(bench: &mut Bench, entries: &[(&str, &str)], taken: &str) {
    let (key, _) = entries.last().unwrap();
    holds_key(bench, entries, key, taken);
}

fn holds_key(bench: &mut Bench, entries: &[(&str, &str)], key: &str, taken: &str) {
    let declared = desired(entries);
    for report in [bench.pass(&declared), bench.focused(&declared, &[key])] {
        let lines = explained(&report);
        let expected = format!("it would take `{taken}` along");
        let is_held = |line: &String| line.starts_with("held ") && line.contains(&expected);
        assert!(lines.iter().any(is_held), "{taken}: {lines:#?}");
        assert!(!lines.iter().any(|line| line.starts_with("pending ")), "{lines:#?}");
    }
}

/// Quirk: the MTU of IPv6 routes follows that of their link.
#[test]
fn an_mtu_rewrites_routes() {
    const ROUTE: &str = "2001:db8:5::/48";
    for (route, mtu, is_lost) in [
        ("via 2001:db8::9 mtu 1400 proto bird", "1300", true),
        ("via 2001:db8::9 mtu 1300 proto bird", "1300", true),
        ("via 2001:db8::9 mtu 1500 proto bird", "1600", true),
        ("nhid 7 mtu 1400 proto bird", "1300", true),
        ("mtu 1400 proto bird nexthop via 2001:db8::9 nexthop via 2001:db8::8", "1300", true),
        ("via 2001:db8::9 mtu 1299 proto bird", "1300", false),
        ("via 2001:db8::9 mtu 1400 proto bird", "1600", false),
        ("via 2001:db8::9 proto bird", "1300", false),
    ] {
        let namespace = cable();
        ip(&namespace, "-6 address add 2001:db8::1/64 dev va nodad");
        ip(&namespace, "-6 nexthop add id 7 via 2001:db8::9 dev va");
        ip(&namespace, &format!("-6 route add {ROUTE} {route}"));
        let shown = || listed(&namespace, "-6 route show proto bird");
        let before = shown();
        let entry = [("link va mtu", mtu)];
        let mut bench = Bench::new();
        bench.pass(&desired(&[]));
        if is_lost {
            holds(&mut bench, &entry, &format!("mtu of route {ROUTE}"));
            assert_eq!(shown(), before, "{route}");
            bench.config.guards.cascades = Cascades::Allow;
        }
        bench.converge(&desired(&entry));
        // 1300 is set to 1300, which cannot be distinguished from a route that was left alone.
        let differs = is_lost && !route.contains("mtu 1300");
        assert_eq!(shown() != before, differs, "{route}");
    }
    // IPv4 routes keep theirs.
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.9 mtu 1400 proto bird");
    Bench::new().converge(&desired(&[("link va mtu", "1300")]));
    assert_eq!(listed(&namespace, "route show proto bird")[0]["metrics"][0]["mtu"], 1400);
}

/// Quirk: macvlans and bridges follow; the links of others are theirs.
#[test]
fn the_mtu_of_foreign_links_is_not_lowered() {
    for (foreign, entry, taken) in [
        (
            "link add mv0 link va up type macvlan mode private",
            ("link va mtu", "1400"),
            "mtu of link mv0",
        ),
        ("link set va master br0", ("link va mtu", "1400"), "mtu of link br0"),
        ("link set va mtu 1400", ("link va master", "br0"), "mtu of link br0"),
        ("link set lo up", ("link x0", "veth peer x1 mtu 1400 master br0"), "mtu of link br0"),
    ] {
        let namespace = cable();
        ip(&namespace, "link add br0 up type bridge");
        ip(&namespace, foreign);
        let before = everything(&namespace);
        let mut bench = Bench::new();
        bench.pass(&desired(&[]));
        holds(&mut bench, &[entry], taken);
        assert_eq!(everything(&namespace), before, "{foreign}");
        bench.config.guards.cascades = Cascades::Allow;
        bench.converge(&desired(&[entry]));
        assert_ne!(everything(&namespace), before, "{foreign}");
    }
    // One that is declared is ours to lower.
    let namespace = cable();
    ip(&namespace, "link add mv0 link va up type macvlan mode private");
    Bench::new().converge(&desired(&[("link va mtu", "1400"), ("link mv0 mtu", "1400")]));
}

const NEIGHBOUR: &str = "neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev br0";

/// Quirk: ports change the hardware address of their bridge, which then forgets its neighbours.
#[test]
fn a_bridge_has_the_mac_of_a_port() {
    for (world, entry, is_lost) in [
        // A lower one joins, by hand or made by us, or one whose address nobody knows yet.
        ("link set va address 02:00:00:00:00:01", ("link va master", "br0"), true),
        ("link set va address 02:00:00:00:00:ff", ("link va master", "br0"), false),
        ("link set lo up", ("link x0", "veth peer x1 master br0"), true),
        ("link set br0 address 02:00:00:00:00:aa", ("link x0", "veth peer x1 master br0"), false),
        // A port gets another one.
        ("link set lo up", ("link y0 mac", "02:00:00:00:00:06"), true),
    ] {
        let namespace = cable();
        ip(&namespace, "link add br0 up type bridge");
        ip(&namespace, "link add y0 address 02:00:00:00:00:05 up type veth peer name y1");
        ip(&namespace, "link set y0 master br0");
        ip(&namespace, "link set y1 up");
        ip(&namespace, world);
        ip(&namespace, NEIGHBOUR);
        let neighbours = || listed(&namespace, "neighbour show nud permanent");
        let mut bench = Bench::new();
        bench.pass(&desired(&[]));
        if is_lost {
            holds(&mut bench, &[entry], "neighbour 10.0.0.9 dev br0");
        } else {
            bench.converge(&desired(&[entry]));
        }
        assert_eq!(neighbours().len(), 1, "{entry:?}");
    }
}

#[test]
fn a_port_joins_with_the_mac_that_it_gets_in_the_same_pass() {
    let namespace = cable();
    ip(&namespace, "link add br0 up type bridge");
    ip(&namespace, "link add y0 address 02:00:00:00:00:05 up type veth peer name y1");
    ip(&namespace, "link set y0 master br0");
    ip(&namespace, "link set va address 02:00:00:00:00:ff");
    ip(&namespace, NEIGHBOUR);
    let entries = [("link va mac", "02:00:00:00:00:01"), ("link va master", "br0")];
    holds(&mut Bench::new(), &entries, "neighbour 10.0.0.9 dev br0");
    assert_eq!(listed(&namespace, "neighbour show nud permanent").len(), 1);
}

#[test]
fn a_port_that_leaves_a_foreign_bridge_or_goes_takes_neighbours() {
    let namespace = cable();
    ip(&namespace, "link add br0 up type bridge");
    let mut bench = Bench::new();
    let port = ("link x0", "veth peer x1 master br0");
    bench.converge(&desired(&[port]));
    ip(&namespace, NEIGHBOUR);
    holds_key(&mut bench, &[], port.0, "neighbour 10.0.0.9 dev br0");
    assert_eq!(listed(&namespace, "neighbour show nud permanent").len(), 1);
    bench.config.guards.cascades = Cascades::Allow;
    bench.converge(&desired(&[]));
    assert!(listed(&namespace, "neighbour show nud permanent").is_empty());
}

/// Quirk: what stands on a link, and the bridge that it is in, lose their carrier with it.
#[test]
fn nexthops_go_with_the_carrier() {
    let down = ("link vb up", "off");
    for (world, dev, entry, is_lost) in [
        ("link add mv0 link va up type macvlan mode private", "mv0", ("link va up", "off"), true),
        ("link add mv0 link va up type macvlan mode private", "mv0", down, true),
        ("link set va master br0", "br0", down, true),
        ("link set va master br0", "br0", ("link va up", "off"), true),
        ("link set va master br0", "br0", ("link va master", ""), true),
        ("link set y0 master br0", "br0", down, false),
    ] {
        let namespace = cable();
        ip(&namespace, "link add br0 up type bridge");
        ip(&namespace, "link add y0 up type veth peer name y1");
        ip(&namespace, "link set y1 up");
        ip(&namespace, world);
        let carries = |link: &str| {
            let shown = listed(&namespace, &format!("link show dev {link}"));
            shown[0]["flags"].as_array().unwrap().iter().any(|flag| flag == "LOWER_UP")
        };
        until("the carrier", || carries(dev) && carries("va"));
        ip(&namespace, &format!("nexthop add id 7 dev {dev}"));
        let mut bench = Bench::new();
        bench.pass(&desired(&[]));
        if is_lost {
            holds(&mut bench, &[entry], "nexthop 7");
            assert_eq!(listed(&namespace, "nexthop").len(), 1, "{world}, {entry:?}");
            bench.config.guards.cascades = Cascades::Allow;
            bench.converge(&desired(&[entry]));
            until("the loss of the carrier", || listed(&namespace, "nexthop").is_empty());
        } else {
            bench.converge(&desired(&[entry]));
            until("the loss of the carrier", || !carries("va"));
            assert_eq!(listed(&namespace, "nexthop").len(), 1, "{world}, {entry:?}");
        }
    }
}

#[test]
fn a_foreign_route_through_a_nexthop_of_ours_is_not_lost_with_the_link() {
    for (foreign, taken) in [
        ("route add 10.5.0.0/16 nhid 7 proto bird", "route 10.5.0.0/16"),
        ("nexthop add id 8 group 7 proto bird", "nexthop 8"),
    ] {
        let namespace = cable();
        let mut bench = Bench::new();
        let nexthop = ("nexthop 7", "dev va");
        bench.converge(&desired(&[nexthop]));
        ip(&namespace, foreign);
        holds(&mut bench, &[nexthop, ("link va up", "off")], taken);
        holds(&mut bench, &[nexthop, ("link vb up", "off")], taken);
    }
}

#[test]
fn an_other_end_that_is_made_again_takes_no_neighbours_of_the_bridge_that_it_joins() {
    let namespace = cable();
    for command in [
        "link add fbr type bridge",
        "link add fc address 02:00:00:00:0f:03 type veth peer name fd",
        "link set fc master fbr",
        "link set fbr up",
        "neighbour add 10.2.0.8 lladdr 02:00:00:00:00:01 dev fbr nud permanent protocol bird",
    ] {
        ip(&namespace, command);
    }
    let declared = desired(&[
        ("link o0", "veth peer p0"),
        ("link p0 mac", "02:00:00:00:00:40"),
        ("link p0 master", "fbr"),
    ]);
    let mut bench = Bench::new();
    let is_held =
        |lines: &[String]| lines.iter().any(|line| line.starts_with("held link p0 master"));
    assert!(is_held(&explained(&bench.pass(&declared))));
    bench.hinted();
    ip(&namespace, "link del o0");
    let done = bench.heal(&declared);
    assert!(done.contains(&"+ link o0".to_owned()) && is_held(&done), "{done:?}");
    assert_eq!(listed(&namespace, "neighbour show dev fbr nud permanent").len(), 1);
}

#[test]
fn a_link_that_is_made_again_for_a_foreign_bridge_takes_no_neighbours_of_it() {
    let namespace = cable();
    ip(&namespace, "link set va address 02:00:00:00:00:0f");
    ip(&namespace, "link add br0 type bridge");
    ip(&namespace, "link set va master br0");
    ip(&namespace, "neighbour add 10.0.0.9 lladdr 02:00:00:00:00:09 dev br0 nud permanent");
    let mut bench = Bench::new();
    bench.converge(&desired(&[("link x0", "vxlan id 40")]));
    let declared = [("link x0", "vxlan id 41 mac 02:00:00:00:00:01 master br0")];
    holds_key(&mut bench, &declared, "link x0", "neighbour 10.0.0.9 dev br0");
    let neighbours = listed(&namespace, "neighbour show nud permanent");
    assert_eq!(neighbours.len(), 1, "{neighbours:?}");
}
