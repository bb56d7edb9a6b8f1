//! What the kernel makes of an address or a route, as rows.

use super::*;
use crate::address::{Address, Lifetime, address_agrees};
use crate::key::Key;
use crate::number::Tos;

fn route_key(text: &str) -> RouteKey {
    match text.parse() {
        Ok(Key::Route(key)) => key,
        other => panic!("{other:?}"),
    }
}

fn address_key(text: &str) -> AddressKey {
    match text.parse() {
        Ok(Key::Address(key)) => key,
        other => panic!("{other:?}"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn normalize(key: &RouteKey, mut desired: Route) -> Result<Route, Impossible> {
    super::normalize(key, &mut desired).map(|()| desired)
}

fn hop(via: &str, dev: Option<&str>, weight: u16) -> Hop {
    let dev = dev.map(|dev| dev.parse().unwrap());
    Hop { via: Some(ip(via)), dev, weight, onlink: None, encap: None }
}

#[test]
fn what_can_never_be_is_refused_before_anything_is_written() {
    let v4 = route_key("route 10.0.0.0/8");
    let v6 = route_key("route 2001:db8::/32");
    let via = |text| Route::via(ip(text));
    let lo = "lo".parse().unwrap();
    for (key, desired, why) in [
        (v4, Route::default(), Impossible::NoNexthop),
        (
            v4,
            Route { dev: Some(lo), ..Route::of_kind(RouteKind::BLACKHOLE) },
            Impossible::GoesNowhere,
        ),
        (
            v4,
            Route { dev: Some(lo), hops: vec![hop("10.0.0.1", None, 1)], ..Route::default() },
            Impossible::ManyWays,
        ),
        (v6, via("10.0.0.1"), Impossible::GatewayFamily),
        (v4, Route { src: Some(ip("::1")), ..via("10.0.0.1") }, Impossible::SourceFamily),
        (v6.with_tos(Tos(8)), via("fe80::1"), Impossible::TosOnIpv6),
        (v4, Route::multipath(vec![hop("10.0.0.1", None, 0)]), Impossible::Weight),
        (v4, Route::multipath(vec![hop("10.0.0.1", None, 257)]), Impossible::Weight),
    ] {
        assert_eq!(normalize(&key, desired), Err(why));
    }
    assert!(normalize(&v4, via("fe80::1")).is_ok(), "IPv4 may go via IPv6");
}

#[test]
fn normalizing_twice_is_normalizing_once() {
    let key = route_key("route 10.0.0.0/8");
    let many = Route::multipath(vec![hop("10.0.0.2", None, 2), hop("10.0.0.1", None, 1)]);
    let single = Route::multipath(vec![hop("10.0.0.2", Some("lo"), 7)]);
    for desired in [many, single, Route::of_kind(RouteKind::THROW)] {
        let once = normalize(&key, desired).unwrap();
        assert_eq!(normalize(&key, once.clone()).unwrap(), once);
        assert!(route_agrees(&once, &once));
    }
    let key = address_key("address 10.0.0.1/24 dev lo");
    let mut once = Address { valid: Some(Lifetime::Seconds(60)), ..Address::default() };
    crate::address::normalize(&key, &mut once).unwrap();
    assert_eq!(once.preferred, Some(Lifetime::Seconds(60)));
    let mut twice = once.clone();
    crate::address::normalize(&key, &mut twice).unwrap();
    assert_eq!(twice, once);
}

#[test]
fn only_declared_attributes_of_a_route_count() {
    let seen = Route {
        dev: Some("eth0".parse().unwrap()),
        src: Some(ip("10.0.0.9")),
        mtu: Some(1400),
        scope: Some(Scope::GLOBAL),
        onlink: Some(false),
        ..Route::via(ip("10.0.0.1"))
    };
    let desired = Route::via(ip("10.0.0.1"));
    assert!(route_agrees(&desired, &seen));
    let eth1 = Some("eth1".parse().unwrap());
    for other in [
        Route::via(ip("10.0.0.2")),
        Route::dev("eth0".parse().unwrap()),
        Route::of_kind(RouteKind::BLACKHOLE),
        Route { dev: eth1, ..desired.clone() },
        Route { src: Some(ip("10.0.0.8")), ..desired.clone() },
        Route { mtu: Some(1500), ..desired.clone() },
        Route { scope: Some(Scope::LINK), ..desired.clone() },
        Route { onlink: Some(true), ..desired.clone() },
        Route::multipath(vec![hop("10.0.0.1", None, 1), hop("10.0.0.2", None, 1)]),
    ] {
        assert!(!route_agrees(&other, &seen), "{other:?}");
    }
}

#[test]
fn ways_may_come_in_another_order_but_each_counts_once() {
    let desired = [hop("10.0.0.1", None, 1), hop("10.0.0.1", Some("b"), 1)];
    let seen = |devs: [&str; 2]| devs.map(|dev| hop("10.0.0.1", Some(dev), 1));
    assert!(hops_agree(&desired, &seen(["a", "b"])));
    assert!(!hops_agree(&desired, &seen(["a", "a"])));
    assert!(!hops_agree(&desired, &desired[..1]));
}

#[test]
fn a_lifetime_that_runs_down_agrees_and_one_that_grew_does_not() {
    let desired =
        |seconds| Address { valid: Some(Lifetime::Seconds(seconds)), ..Address::default() };
    let seen = |valid| Address { valid: Some(valid), ..Address::default() };
    assert!(address_agrees(&desired(60), &seen(Lifetime::Seconds(59))));
    assert!(!address_agrees(&desired(60), &seen(Lifetime::Seconds(61))));
    assert!(!address_agrees(&desired(60), &seen(Lifetime::Forever)));
    assert!(address_agrees(&Address::default(), &seen(Lifetime::Seconds(1))));
}

#[test]
fn a_route_rests_on_its_source_and_on_the_network_of_its_gateway() {
    let key = address_key("address 10.0.0.1/24 dev eth0");
    let via = Route::via(ip("10.0.0.254"));
    let eth1 = Some("eth1".parse().unwrap());
    assert!(route_rests_on(&via, &key));
    assert!(!route_rests_on(&Route { dev: eth1, ..via }, &key));
    assert!(!route_rests_on(&Route::via(ip("10.0.1.254")), &key));
    let src = Route { src: Some(ip("10.0.0.1")), ..Route::dev("eth1".parse().unwrap()) };
    assert!(route_rests_on(&src, &key));
}
