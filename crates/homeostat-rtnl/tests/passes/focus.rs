//! Looks at a few keys: what they cost, and what they may believe.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_engine::{Focus, Reader as _, Records, Seen, Source as _, View};
use homeostat_rtnl::{DesiredState, Key, Net, Object, Reader, Route, RouteKey, Rtnl};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, block_on, cable, desired, explained, ip, listed};

const ADDRESS: (&str, &str) = ("address 10.0.0.1/24 dev va", "");
const ROUTE: (&str, &str) = ("route 10.5.0.0/16", "via 10.0.0.2");

/// A declare the address, the route, and so many more.
fn crowded(routes: u32) -> DesiredState {
    let mut builder = DesiredState::builder();
    let key = |text: &str| text.parse::<Key>().unwrap();
    let Key::Address(address) = key(ADDRESS.0) else { panic!() };
    let object = Object::Address(homeostat_rtnl::Address::default());
    builder.add(Key::Address(address), object).unwrap();
    let via = || Route::via("10.0.0.2".parse().unwrap());
    let Key::Route(route) = key(ROUTE.0) else { panic!() };
    builder.route(route, via()).unwrap();
    for number in 0..routes {
        let dst = std::net::Ipv4Addr::from_bits((20 << 24) + number * 256);
        builder.route(RouteKey::new(Net::new(dst.into(), 24).unwrap()), via()).unwrap();
    }
    builder.build().unwrap()
}

/// How many objects a look shows, and how many bytes it made the kernel send.
fn look(reader: &mut Reader, desired: &Arc<DesiredState>, keys: Option<&[&str]>) -> (usize, u64) {
    let focus = match keys {
        None => Focus::All,
        Some(keys) => Focus::Keys(keys.iter().map(|key| key.parse().unwrap()).collect()),
    };
    let (mut seen, before) = (0, reader.received_bytes());
    let records = Records::new();
    let view = View::new(&focus, desired, &records);
    let count = &mut |one: Seen<_, _>| seen += usize::from(matches!(one, Seen::Present { .. }));
    block_on(reader.observe(&view, count)).unwrap();
    (seen, reader.received_bytes() - before)
}

/// A cable whose ends get no addresses by themselves, whenever that would be.
fn plain_cable() -> Namespace {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link add va type veth peer name vb");
    for link in ["va", "vb"] {
        ip(&namespace, &format!("link set {link} addrgenmode none"));
        ip(&namespace, &format!("link set {link} up"));
    }
    namespace
}

#[test]
fn a_look_at_one_key_costs_the_same_among_many_routes_as_among_few() {
    let costs = [10, 20_000].map(|routes| {
        let namespace = plain_cable();
        let desired = Arc::new(crowded(routes));
        Bench::new().pass(&desired);
        let mut reader = Rtnl::here().reader().unwrap();
        let (seen, all) = look(&mut reader, &desired, None);
        assert!(seen > routes as usize, "{seen}");
        let mut costs = BTreeSet::new();
        for (change, keys, expected) in [
            ("route del 10.5.0.0/16", &[ROUTE.0][..], 0),
            ("route add 10.5.0.0/16 via 10.0.0.2 proto 76", &[ROUTE.0], 1),
            ("route replace 10.5.0.0/16 via 10.0.0.2 proto bird", &[ROUTE.0], 1),
            ("route replace 10.5.0.0/16 via 10.0.0.3 proto 76", &[ROUTE.0], 1),
            ("route add 10.9.0.0/16 via 10.0.0.3 proto 76", &["route 10.9.0.0/16"], 1),
            ("route del 10.9.0.0/16", &["route 10.9.0.0/16"], 0),
        ] {
            ip(&namespace, change);
            let (seen, cost) = look(&mut reader, &desired, Some(keys));
            assert_eq!(seen, expected, "{change}");
            assert!(cost < 20_000, "{change}: {cost}");
            costs.insert(cost);
        }
        let (seen, cost) = look(&mut reader, &desired, Some(&[ADDRESS.0]));
        assert_eq!(seen, 1);
        costs.insert(cost);
        assert!(all > u64::from(routes) * 30, "a look at everything shows what that costs");
        costs
    });
    assert_eq!(costs[0], costs[1]);
}

#[test]
fn healing_one_route_is_one_write_and_no_hint() {
    let namespace = cable();
    let desired = desired(&[ADDRESS, ROUTE]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    for _ in 0..3 {
        ip(&namespace, "route del 10.5.0.0/16");
        let report = bench.focused(&desired, &[ROUTE.0]);
        assert_eq!(explained(&report), ["+ route 10.5.0.0/16"]);
        assert!(explained(&bench.focused(&desired, &[ROUTE.0])).is_empty());
    }
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16").len(), 1);
}

#[test]
fn a_theft_is_a_conflict_and_its_end_is_healed() {
    let namespace = cable();
    let desired = desired(&[ADDRESS, ROUTE]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    ip(&namespace, "route replace 10.5.0.0/16 via 10.0.0.9 proto bird");
    assert_eq!(
        explained(&bench.focused(&desired, &[ROUTE.0])),
        ["conflict route 10.5.0.0/16: protocol bird"]
    );
    ip(&namespace, "route replace 10.5.0.0/16 via 10.0.0.9 proto 76");
    assert_eq!(explained(&bench.focused(&desired, &[ROUTE.0])), ["~ route 10.5.0.0/16"]);
    bench.assert_quiet(&desired);
}

#[test]
fn what_took_our_place_unheard_is_unknown_until_it_is_seen() {
    let namespace = cable();
    let desired = desired(&[ADDRESS, ROUTE]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    ip(&namespace, "route del 10.5.0.0/16");
    // The filter keeps this out: it is no replace, and not ours.
    ip(&namespace, "route add 10.5.0.0/16 via 10.0.0.9 proto bird");
    let [unknown] = explained(&bench.focused(&desired, &[ROUTE.0])).try_into().unwrap();
    assert!(unknown.contains("finding: Unknown"), "{unknown}");
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16")[0]["gateway"], "10.0.0.9");
    assert_eq!(explained(&bench.pass(&desired)), ["conflict route 10.5.0.0/16: protocol bird"]);
}

#[test]
fn an_undeclared_route_with_our_mark_goes_in_a_focused_pass() {
    let namespace = cable();
    let desired = desired(&[ADDRESS, ROUTE]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    ip(&namespace, "route add 10.9.0.0/16 via 10.0.0.2 proto 76");
    let report = bench.focused(&desired, &["route 10.9.0.0/16"]);
    assert_eq!(explained(&report), ["- route 10.9.0.0/16"]);
    assert!(listed(&namespace, "route show 10.9.0.0/16").is_empty());
    assert!(explained(&bench.focused(&desired, &["route 10.9.0.0/16"])).is_empty());
}

#[test]
fn another_desired_state_is_not_judged_by_the_shadow_of_the_former() {
    let _namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[ADDRESS, ROUTE]));
    let moved = desired(&[ADDRESS, (ROUTE.0, "via 10.0.0.3")]);
    assert_eq!(explained(&bench.focused(&moved, &[ROUTE.0])), ["~ route 10.5.0.0/16"]);
}

#[test]
fn an_address_made_anew_in_a_focused_pass_takes_no_foreign_route_along() {
    let namespace = cable();
    let label = ("address 10.0.0.1/24 dev va", "label va:1");
    let mut bench = Bench::new();
    bench.converge(&desired(&[label]));
    ip(&namespace, "route add 10.9.0.0/16 via 10.0.0.9");
    let other = desired(&[("address 10.0.0.1/24 dev va", "label va:2")]);
    let [held] = explained(&bench.focused(&other, &[label.0])).try_into().unwrap();
    assert!(held.starts_with("held address 10.0.0.1/24 dev va"), "{held}");
    assert_eq!(listed(&namespace, "route show 10.9.0.0/16").len(), 1);
}

#[test]
fn a_look_at_one_route_or_address_costs_the_same_among_many_links_as_among_few() {
    let costs = [0, 50].map(|links| {
        let namespace = plain_cable();
        for number in 0..links {
            ip(&namespace, &format!("link add d{number} type bridge"));
        }
        let desired = Arc::new(crowded(10));
        Bench::new().pass(&desired);
        let mut reader = Rtnl::here().reader().unwrap();
        look(&mut reader, &desired, None);
        ip(&namespace, "route del 10.5.0.0/16");
        let (seen, route) = look(&mut reader, &desired, Some(&[ROUTE.0]));
        assert_eq!(seen, 0);
        let (seen, address) = look(&mut reader, &desired, Some(&[ADDRESS.0]));
        assert_eq!(seen, 1);
        (route, address)
    });
    assert_eq!(costs[0], costs[1]);
}

#[test]
fn a_link_that_was_made_anew_is_known_without_a_dump() {
    let namespace = cable();
    let desired = desired(&[ADDRESS, ROUTE]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    ip(&namespace, "link del va");
    ip(&namespace, "link add vc type veth peer name vd");
    ip(&namespace, "link set vc name va");
    ip(&namespace, "link set va up");
    ip(&namespace, "link set vd up");
    assert_eq!(bench.heal(&desired), ["+ address 10.0.0.1/24 dev va", "+ route 10.5.0.0/16"]);
    assert_eq!(listed(&namespace, "route show 10.5.0.0/16")[0]["dev"], "va");
}

/// A key, its attributes, and how it is deleted, or a link changed, behind our back.
fn numbered(kind: &str, number: u32) -> (String, &'static str, String) {
    let [_, _, high, low] = number.to_be_bytes();
    match kind {
        "rule" => {
            let from = format!("from 10.{high}.{low}.0/24");
            let (priority, table) = (1000 + number, "table 100");
            let key = format!("rule priority {priority} {from}");
            (key, table, format!("rule del priority {priority}"))
        }
        "address" => {
            let address = format!("10.{high}.{low}.1/32 dev va");
            (format!("address {address}"), "", format!("address del {address}"))
        }
        "nexthop" => {
            let id = number + 1;
            (format!("nexthop {id}"), "dev va", format!("nexthop del id {id}"))
        }
        "link" => {
            let name = format!("d{number}");
            (format!("link {name}"), "bridge mtu 1400", format!("link set {name} mtu 1300"))
        }
        _ => {
            let (to, mac) = (format!("10.{high}.{low}.2 dev va"), "02:00:00:00:00:09");
            (format!("neighbour {to}"), mac, format!("neighbour del {to}"))
        }
    }
}

#[test]
fn a_look_at_one_object_of_any_kind_costs_the_same_among_many_as_among_few() {
    for (kind, stays) in
        [("rule", 0), ("address", 0), ("neighbour", 0), ("nexthop", 0), ("link", 1)]
    {
        let costs = [10, 1000].map(|count| {
            let namespace = plain_cable();
            let all: Vec<_> = (0..count).map(|number| numbered(kind, number)).collect();
            let entries: Vec<_> =
                all.iter().map(|(key, attrs, _)| (key.as_str(), *attrs)).collect();
            let declared = Arc::new(desired(&entries));
            Bench::new().pass(&declared);
            let mut reader = Rtnl::here().reader().unwrap();
            let (seen, whole) = look(&mut reader, &declared, None);
            assert!(seen >= count as usize, "{kind}: {seen}");
            let (key, _, delete) = &all[7];
            let (there, before) = look(&mut reader, &declared, Some(&[key]));
            ip(&namespace, delete);
            let (left, after) = look(&mut reader, &declared, Some(&[key]));
            assert_eq!((there, left), (1, stays), "{kind}");
            assert!(count < 1000 || whole > 20 * before, "{kind}: {whole} and {before}");
            (before, after)
        });
        assert_eq!(costs[0], costs[1], "{kind}");
    }
}

#[test]
fn rules_and_addresses_that_others_add_and_take_are_known_without_a_dump() {
    let namespace = plain_cable();
    let mut bench = Bench::new();
    let declared = desired(&[
        ("rule priority 1000 from 10.1.0.0/16", "table 100"),
        ("rule from 10.2.0.0/16", "table 100"),
        ("address 10.0.0.1/24 dev va", ""),
        ("address 10.0.0.2/24 dev va", ""),
    ]);
    bench.converge(&declared);
    bench.hinted();
    for (change, expected) in [
        ("rule del priority 1000", vec!["+ rule priority 1000 from 10.1.0.0/16"]),
        (
            "rule add priority 1000 from 10.1.0.0/16 table 200 protocol 76",
            vec!["~ rule priority 1000 from 10.1.0.0/16"],
        ),
        ("rule add priority 1000 from 10.1.0.0/16 table 200 protocol bird", vec![]),
        ("rule del priority 1000 protocol bird", vec![]),
        ("rule del from 10.2.0.0/16", vec!["+ rule from 10.2.0.0/16"]),
        ("address del 10.0.0.2/24 dev va", vec!["+ address 10.0.0.2/24 dev va"]),
        ("address change 10.0.0.1/24 dev va valid_lft 100 preferred_lft 100", vec![]),
    ] {
        ip(&namespace, change);
        let mut done = bench.heal(&declared);
        done.retain(|line| !line.starts_with("matched"));
        assert_eq!(done, expected, "{change}");
    }
    // With the first address of a network the others go, too.
    ip(&namespace, "address del 10.0.0.1/24 dev va");
    bench.heal(&declared);
    bench.assert_quiet(&declared);
}

#[test]
fn a_burst_of_deleted_routes_heals_without_a_look_at_everything() {
    let namespace = cable();
    let desired = crowded(1500);
    let mut bench = Bench::new();
    bench.converge(&desired);
    bench.hinted();
    ip(&namespace, "route flush proto 76");
    assert_eq!(bench.heal(&desired).len(), 1501);
    assert_eq!(listed(&namespace, "route show proto 76").len(), 1501);
}
