//! Kinds without options, and what every link has.

use homeostat_rtnl::{Bridge, Link, LinkKind, LinkRef, Veth};

use crate::bench::{AGAIN, Bench, IN_PLACE, NAME, desired, name};

fn veth(peer: &str) -> Link {
    Link::new(LinkKind::Veth(Veth { peer: LinkRef::here(name(peer)) }))
}

#[test]
fn a_dummy_is_made() {
    let mut bench = Bench::new();
    let link = Link::new(LinkKind::Dummy);
    if !bench.has("probe type dummy") {
        return bench.lacks(&link, "dummy");
    }
    bench.check(&link, &[]);
}

/// Quirk: an ifb gets its hardware address when it is made, and keeps it.
#[test]
fn ifb_mac_fixed() {
    let mut bench = Bench::new();
    let mac = |last| Link {
        mac: Some(homeostat_rtnl::Mac([2, 0, 0, 0, 0, last])),
        ..Link::new(LinkKind::Ifb)
    };
    if !bench.has("probe type ifb") {
        return bench.lacks(&mac(1), "ifb");
    }
    bench.check(&mac(1), &[]);
    bench.changes((&mac(1), &mac(2)), AGAIN);
}

#[test]
fn a_pair_is_made_and_another_other_end_is_another_pair() {
    let mut bench = Bench::new();
    bench.converge(&desired(&[(NAME, veth("x1"))]));
    assert_eq!(bench.shown("x1")["link"], NAME);
    bench.converge(&desired(&[(NAME, veth("x2"))]));
    assert!(bench.ip("link show dev x1").is_err());
    bench.ip("link set x2 name x3").unwrap();
    assert_eq!(bench.converge(&desired(&[(NAME, veth("x2"))])), [format!("{AGAIN} link {NAME}")]);
    bench.clear();
    assert!(bench.ip("link show dev x2").is_err());
}

#[test]
fn what_every_link_has_is_set_and_changed_in_place() {
    let mut bench = Bench::new();
    let plain = veth("x1");
    let mac = |last| Some(homeostat_rtnl::Mac([2, 0, 0, 0, 0, last]));
    let from = Link {
        up: Some(true),
        mtu: Some(1400),
        mac: mac(1),
        alias: Some("one".into()),
        ..plain.clone()
    };
    let to =
        Link { up: Some(false), mtu: Some(1300), mac: mac(2), alias: Some("two".into()), ..plain };
    for (one, other) in [(&from, &to), (&to, &from)] {
        bench.changes((one, other), IN_PLACE);
    }
    bench.converge(&desired(&[(NAME, from)]));
    let shown = bench.shown(NAME);
    assert_eq!(shown["mtu"], 1400);
    assert_eq!(shown["address"], "02:00:00:00:00:01");
    assert_eq!(shown["ifalias"], "one homeostat:default");
    assert_eq!(shown["group"], "76");
    assert!(shown["flags"].as_array().unwrap().contains(&"UP".into()));
}

#[test]
fn an_mtu_out_of_range_is_refused_in_the_kernels_words() {
    let mut bench = Bench::new();
    let link = Link { mtu: Some(70_000), ..Link::new(LinkKind::Bridge(Bridge::default())) };
    let report = bench.pass(&desired(&[(NAME, link)]));
    let lines = crate::bench::explained(&report);
    assert!(lines[0].contains("mtu greater than device maximum"), "{lines:?}");
    assert!(bench.ip(&format!("link show dev {NAME}")).is_err(), "half a link is none");
}
