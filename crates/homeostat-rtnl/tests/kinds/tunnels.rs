//! VXLANs and GRE tunnels.

use homeostat_rtnl::{Gre, Gretap, Link, LinkKind, LinkRef, Vxlan};
use serde_json::json;

use crate::bench::{AGAIN, Bench, IN_PLACE, name};

fn vxlan(vxlan: Vxlan) -> Link {
    Link::new(LinkKind::Vxlan(vxlan))
}

fn id(id: u32) -> Vxlan {
    Vxlan { id, port: Some(4789), ..Vxlan::default() }
}

fn gre(gre: Gre) -> Link {
    Link::new(LinkKind::Gre(gre))
}

#[test]
fn a_vxlan_is_made_with_its_options() {
    let mut bench = Bench::new();
    if !bench.has("probe type vxlan id 9 dstport 4789") {
        return bench.lacks(&vxlan(id(5)), "vxlan");
    }
    let full = Vxlan {
        local: Some("10.0.0.1".parse().unwrap()),
        remote: Some("10.0.0.2".parse().unwrap()),
        ttl: Some(7),
        tos: Some(8),
        learning: Some(false),
        ageing: Some(99),
        proxy: Some(true),
        port: Some(4790),
        ..id(5)
    };
    let expected = [
        ("id", json!(5)),
        ("local", json!("10.0.0.1")),
        ("remote", json!("10.0.0.2")),
        ("ttl", json!(7)),
        ("tos", json!("0x8")),
        ("learning", json!(false)),
        ("ageing", json!(99)),
        ("proxy", json!(true)),
        ("port", json!(4790)),
    ];
    bench.check(&vxlan(full), &expected);
    bench
        .check(&vxlan(Vxlan { id: 6, ..Vxlan::default() }), &[("id", json!(6)), ("ttl", json!(0))]);
    let v6 = Vxlan {
        local: Some("fd00::1".parse().unwrap()),
        remote: Some("fd00::2".parse().unwrap()),
        ..id(7)
    };
    bench.check(&vxlan(v6), &[("local6", json!("fd00::1")), ("remote6", json!("fd00::2"))]);
    let inherited = Vxlan { ttl: Some(0), ..id(8) };
    // `ip` has no word for it but the absence of the usual `"ttl": 0`.
    bench.check(&vxlan(inherited), &[("ttl", json!(null))]);
    let grouped = Vxlan { group: Some("239.1.1.1".parse().unwrap()), ..id(9) };
    let grouped = Link { parent: Some(LinkRef::here(name("low0"))), ..vxlan(grouped) };
    bench.check(&grouped, &[("group", json!("239.1.1.1")), ("link", json!("low0"))]);
}

/// Quirk: id, port, proxy, the family of the ends and an inherited TTL are for good.
#[test]
fn vxlan_fixed_options() {
    let mut bench = Bench::new();
    if !bench.has("probe type vxlan id 9 dstport 4789") {
        return bench.lacks(&vxlan(id(5)), "vxlan");
    }
    let ip = |text: &str| Some(text.parse().unwrap());
    for (from, to, sign) in [
        (id(5), id(6), AGAIN),
        (id(5), Vxlan { port: Some(4790), ..id(5) }, AGAIN),
        (id(5), Vxlan { proxy: Some(true), ..id(5) }, AGAIN),
        (id(0), Vxlan { external: Some(true), ..id(0) }, AGAIN),
        (Vxlan { ttl: Some(0), ..id(5) }, Vxlan { ttl: Some(9), ..id(5) }, AGAIN),
        (Vxlan { local: ip("10.0.0.1"), ..id(5) }, Vxlan { local: ip("fd00::1"), ..id(5) }, AGAIN),
        (Vxlan { ttl: Some(8), ..id(5) }, Vxlan { ttl: Some(9), ..id(5) }, IN_PLACE),
        (id(5), Vxlan { tos: Some(8), ..id(5) }, IN_PLACE),
        (id(5), Vxlan { ageing: Some(8), ..id(5) }, IN_PLACE),
        (id(5), Vxlan { learning: Some(false), ..id(5) }, IN_PLACE),
        (id(5), Vxlan { remote: ip("10.0.0.2"), ..id(5) }, IN_PLACE),
        (
            Vxlan { local: ip("10.0.0.1"), ..id(5) },
            Vxlan { local: ip("10.0.0.3"), ..id(5) },
            IN_PLACE,
        ),
    ] {
        bench.changes((&vxlan(from), &vxlan(to)), sign);
    }
    let on = |low| Link { parent: Some(LinkRef::here(name(low))), ..vxlan(id(5)) };
    bench.changes((&on("low0"), &on("low1")), IN_PLACE);
}

#[test]
fn a_gre_tunnel_is_made_with_its_options() {
    let mut bench = Bench::new();
    let ip = |text: &str| Some(text.parse().unwrap());
    let full = Gre {
        local: ip("10.0.0.1"),
        remote: ip("10.0.0.2"),
        key: Some(7),
        ttl: Some(9),
        tos: Some(8),
        pmtudisc: Some(true),
    };
    if !bench.has("probe type gre local 10.0.0.1 remote 10.0.0.9") {
        return bench.lacks(&gre(full), "ip_gre");
    }
    let expected = [
        ("local", json!("10.0.0.1")),
        ("remote", json!("10.0.0.2")),
        ("ikey", json!("0.0.0.7")),
        ("okey", json!("0.0.0.7")),
        ("ttl", json!(9)),
        ("pmtudisc", json!(true)),
    ];
    bench.check(&gre(full), &expected);
    let fragmenting = Gre { remote: ip("10.0.0.2"), pmtudisc: Some(false), ..Gre::default() };
    bench.check(&gre(fragmenting), &[("pmtudisc", json!(false))]);
    let on = Gre { remote: ip("10.0.0.2"), ..Gre::default() };
    let on = Link { parent: Some(LinkRef::here(name("low0"))), ..gre(on) };
    bench.check(&on, &[]);
}

/// Quirk: a change resets every option that it does not name, so all are named.
#[test]
fn gre_forgets() {
    let mut bench = Bench::new();
    let ip = |text: &str| Some(text.parse().unwrap());
    let of = |ttl| Gre { local: ip("10.0.0.1"), remote: ip("10.0.0.2"), ttl, ..Gre::default() };
    if !bench.has("probe type gre local 10.0.0.1 remote 10.0.0.9") {
        return bench.lacks(&gre(of(None)), "ip_gre");
    }
    bench.changes((&gre(of(Some(8))), &gre(of(Some(9)))), IN_PLACE);
    let keyed = |key| Gre { key: Some(key), ..of(Some(8)) };
    bench.changes((&gre(keyed(1)), &gre(keyed(2))), IN_PLACE);
    let full = Gre { tos: Some(8), ..keyed(1) };
    bench.converge(&crate::bench::desired(&[(crate::bench::NAME, gre(full))]));
    let less = Gre { remote: ip("10.0.0.3"), ..Gre::default() };
    bench.converge(&crate::bench::desired(&[(crate::bench::NAME, gre(less))]));
    let options = bench.options();
    assert_eq!((&options["local"], &options["ttl"]), (&json!("10.0.0.1"), &json!(8)));
    assert_eq!(options["ikey"], "0.0.0.1");
}

#[test]
fn a_gre_tunnel_goes_over_ipv6_too() {
    let mut bench = Bench::new();
    let ip = |text: &str| Some(text.parse().unwrap());
    let of = |ttl| Gre { local: ip("fd00::1"), remote: ip("fd00::2"), ttl, ..Gre::default() };
    if !bench.has("probe type ip6gre local fd00::1 remote fd00::9") {
        return bench.lacks(&gre(of(None)), "ip6_gre");
    }
    bench.check(&gre(of(Some(9))), &[("remote", json!("fd00::2")), ("ttl", json!(9))]);
    bench.changes((&gre(of(Some(8))), &gre(of(Some(9)))), IN_PLACE);
}

#[test]
fn a_gre_tunnel_for_frames_goes_over_ipv4_and_ipv6_and_forgets_nothing() {
    let mut bench = Bench::new();
    let ip = |text: &str| Some(text.parse().unwrap());
    let of = |gre| Link::new(LinkKind::Gretap(Gretap(gre)));
    let v4 =
        || Gre { local: ip("10.0.0.1"), remote: ip("10.0.0.2"), ttl: Some(9), ..Gre::default() };
    let v6 = || Gre { local: ip("fd00::1"), remote: ip("fd00::2"), ttl: Some(9), ..Gre::default() };
    let kinds = [("gretap", "ip_gre", v4()), ("ip6gretap", "ip6_gre", v6())];
    for (kind, module, gre) in kinds {
        let (local, remote) = (gre.local.unwrap(), gre.remote.unwrap());
        if !bench.has(&format!("probe type {kind} local {local} remote {remote}")) {
            bench.lacks(&of(gre), module);
            bench = Bench::new();
            continue;
        }
        let full = || Gre { key: Some(7), ..gre.clone() };
        let expected =
            [("remote", json!(remote.to_string())), ("ttl", json!(9)), ("ikey", json!("0.0.0.7"))];
        let mac = "02:00:00:00:00:07";
        let link = Link { mac: Some(mac.parse().unwrap()), ..of(full()) };
        bench.check(&link, &expected);
        bench.converge(&crate::bench::desired(&[(crate::bench::NAME, link)]));
        let shown = bench.shown(crate::bench::NAME);
        assert_eq!(
            (&shown["linkinfo"]["info_kind"], &shown["address"]),
            (&json!(kind), &json!(mac))
        );
        bench.clear();
        bench.changes((&of(full()), &of(Gre { ttl: Some(10), ..full() })), IN_PLACE);
        bench.changes((&of(full()), &of(Gre { key: Some(8), ..full() })), IN_PLACE);
    }
    if bench.has("probe type gretap remote 10.0.0.2")
        && bench.has("probe type ip6gretap remote fd00::2")
    {
        bench.changes((&of(v4()), &of(v6())), AGAIN);
    }
}
