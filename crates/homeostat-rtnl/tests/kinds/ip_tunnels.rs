//! Tunnels for bare IP packets, Geneve tunnels, IPsec links and macvtaps.

use homeostat_rtnl::{
    Geneve, Ip6Tunnel, Ip6TunnelMode, IpTunnel, Link, LinkKind, LinkRef, Macvlan, MacvlanMode, Xfrm,
};
use serde_json::json;

use crate::bench::{AGAIN, Bench, IN_PLACE, name, on_low};

fn link(kind: LinkKind) -> Link {
    Link::new(kind)
}

fn ip(text: &str) -> std::net::IpAddr {
    text.parse().unwrap()
}

fn ends() -> IpTunnel {
    IpTunnel { local: Some(ip("10.0.0.1")), remote: Some(ip("10.0.0.2")), ..IpTunnel::default() }
}

/// Quirk `ip-tunnels-forget`: a change resets every option that it does not name, so all are named.
#[test]
fn tunnels_over_ipv4_are_made_with_their_options_and_forget_none_in_a_change() {
    for (word, of) in [
        ("ipip", LinkKind::Ipip as fn(IpTunnel) -> LinkKind),
        ("sit", LinkKind::Sit as fn(IpTunnel) -> LinkKind),
    ] {
        let mut bench = Bench::new();
        if !bench.has(&format!("probe type {word} local 10.0.0.1 remote 10.0.0.9")) {
            bench.lacks(&link(of(ends())), word);
            continue;
        }
        let full = IpTunnel { ttl: Some(9), tos: Some(8), pmtudisc: Some(true), ..ends() };
        let expected = [
            ("local", json!("10.0.0.1")),
            ("remote", json!("10.0.0.2")),
            ("ttl", json!(9)),
            ("tos", json!("0x8")),
            ("pmtudisc", json!(true)),
        ];
        bench.check(&link(of(full.clone())), &expected);
        let open = IpTunnel { pmtudisc: Some(false), ..ends() };
        bench.check(&link(of(open)), &[("pmtudisc", json!(false))]);
        for to in [
            IpTunnel { ttl: Some(10), ..full.clone() },
            IpTunnel { remote: Some(ip("10.0.0.3")), ..full.clone() },
            IpTunnel { tos: Some(16), ..full.clone() },
        ] {
            bench.changes((&link(of(full.clone())), &link(of(to))), IN_PLACE);
        }
        bench.converge(&crate::bench::desired(&[(crate::bench::NAME, link(of(full.clone())))]));
        let less = IpTunnel { ttl: Some(11), ..ends() };
        bench.converge(&crate::bench::desired(&[(crate::bench::NAME, link(of(less)))]));
        let options = bench.options();
        assert_eq!((&options["ttl"], &options["tos"]), (&json!(11), &json!("0x8")), "{word}");
        bench.clear();
        let on = |low| Link { parent: Some(LinkRef::here(name(low))), ..link(of(ends())) };
        bench.changes((&on("low0"), &on("low1")), IN_PLACE);
    }
}

#[test]
fn a_tunnel_over_ipv6_is_made_with_its_options_and_changes_in_place() {
    let mut bench = Bench::new();
    let of = |tunnel| link(LinkKind::Ip6tnl(tunnel));
    let ends = || Ip6Tunnel {
        local: Some(ip("fd00::1")),
        remote: Some(ip("fd00::2")),
        ..Ip6Tunnel::default()
    };
    if !bench.has("probe type ip6tnl local fd00::1 remote fd00::9") {
        return bench.lacks(&of(ends()), "ip6_tunnel");
    }
    let full = || Ip6Tunnel { ttl: Some(9), mode: Some(Ip6TunnelMode::Ip6ip6), ..ends() };
    let expected = [
        ("local", json!("fd00::1")),
        ("remote", json!("fd00::2")),
        ("ttl", json!(9)),
        ("proto", json!("ip6ip6")),
    ];
    bench.check(&of(full()), &expected);
    for mode in Ip6TunnelMode::ALL {
        bench.check(&of(Ip6Tunnel { mode: Some(*mode), ..ends() }), &[]);
    }
    let to = Ip6Tunnel { remote: Some(ip("fd00::3")), ..full() };
    bench.changes((&of(full()), &of(to)), IN_PLACE);
    bench.changes((&of(full()), &of(Ip6Tunnel { ttl: Some(8), ..full() })), IN_PLACE);
}

/// Quirk: id, port and the family of the other end are for good.
#[test]
fn geneve_fixed_options() {
    let mut bench = Bench::new();
    let of = |geneve| link(LinkKind::Geneve(geneve));
    let plain =
        || Geneve { id: 7, remote: Some(ip("10.0.0.2")), port: Some(6081), ..Geneve::default() };
    if !bench.has("probe type geneve id 9 remote 10.0.0.9") {
        return bench.lacks(&of(plain()), "geneve");
    }
    let full = || Geneve { ttl: Some(9), tos: Some(8), ..plain() };
    let expected = [
        ("id", json!(7)),
        ("remote", json!("10.0.0.2")),
        ("port", json!(6081)),
        ("ttl", json!(9)),
        ("tos", json!("0x8")),
    ];
    bench.check(&of(full()), &expected);
    let far = Geneve { remote: Some(ip("fd00::2")), ..plain() };
    bench.check(&of(far.clone()), &[("remote6", json!("fd00::2"))]);
    for (to, sign) in [
        (Geneve { id: 8, ..full() }, AGAIN),
        (Geneve { port: Some(6082), ..full() }, AGAIN),
        (far, AGAIN),
        (Geneve { remote: Some(ip("10.0.0.3")), ..full() }, IN_PLACE),
        (Geneve { ttl: Some(10), ..full() }, IN_PLACE),
    ] {
        bench.changes((&of(full()), &of(to)), sign);
    }
}

#[test]
fn an_ipsec_link_is_made_on_its_parent_and_made_again_for_another_number() {
    let mut bench = Bench::new();
    let of = |if_id| on_low(LinkKind::Xfrm(Xfrm { if_id }));
    if !bench.has("probe type xfrm dev low0 if_id 9") {
        return bench.lacks(&of(7), "xfrm_interface");
    }
    bench.check(&of(7), &[("if_id", json!("0x7"))]);
    bench.changes((&of(7), &of(8)), AGAIN);
}

#[test]
fn a_macvtap_is_made_in_every_mode() {
    let mut bench = Bench::new();
    let of = |mode| on_low(LinkKind::Macvtap(Macvlan { mode: Some(mode) }));
    if !bench.has("probe link low0 type macvtap") {
        return bench.lacks(&of(MacvlanMode::Bridge), "macvtap");
    }
    for mode in MacvlanMode::ALL {
        bench.check(&of(*mode), &[("mode", serde_json::to_value(mode).unwrap())]);
    }
    bench.changes((&of(MacvlanMode::Bridge), &of(MacvlanMode::Vepa)), IN_PLACE);
}
