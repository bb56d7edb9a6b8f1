//! Tun and tap links, which are made through a device.

use homeostat_rtnl::{Link, LinkKind, Tap};
use serde_json::json;

use crate::bench::{AGAIN, Bench, NAME, desired};

fn tap(tap: Tap) -> Link {
    Link::new(LinkKind::Tap(tap))
}

/// A bench on a machine that has the device; none, after the test for one that has not.
fn bench() -> Option<Bench> {
    let mut bench = Bench::new();
    if std::fs::File::options().read(true).write(true).open("/dev/net/tun").is_ok() {
        return Some(bench);
    }
    let report = bench.pass(&desired(&[(NAME, tap(Tap::default()))]));
    let lines = crate::bench::explained(&report);
    assert!(lines[0].contains("/dev/net/tun, which cannot be opened"), "{lines:?}");
    assert!(lines[0].ends_with("c 10 200"), "{lines:?}");
    None
}

#[test]
fn tun_and_tap_are_made_with_their_options() {
    let Some(mut bench) = bench() else { return };
    bench.check(&tap(Tap::default()), &[("type", json!("tap")), ("persist", json!(true))]);
    bench.check(&Link::new(LinkKind::Tun(Tap::default())), &[("type", json!("tun"))]);
    let full = Tap {
        owner: Some(54_321),
        group: Some(54_322),
        multi_queue: Some(true),
        vnet_hdr: Some(true),
    };
    let expected = [
        ("user", json!(54_321)),
        ("group", json!(54_322)),
        ("multi_queue", json!(true)),
        ("vnet_hdr", json!(true)),
    ];
    let link = Link { mtu: Some(1400), up: Some(true), ..tap(full) };
    bench.converge(&desired(&[(NAME, link.clone())]));
    assert_eq!(bench.shown(NAME)["mtu"], 1400);
    assert_eq!(bench.shown(NAME)["group"], "76");
    bench.clear();
    bench.check(&link, &expected);
}

#[test]
fn another_owner_is_another_tap() {
    let Some(mut bench) = bench() else { return };
    let owned = |owner| tap(Tap { owner: Some(owner), ..Tap::default() });
    bench.changes((&owned(54_321), &owned(54_322)), AGAIN);
    bench.changes((&tap(Tap::default()), &Link::new(LinkKind::Tun(Tap::default()))), AGAIN);
}

#[test]
fn a_tap_of_somebody_else_is_not_taken_over() {
    let Some(mut bench) = bench() else { return };
    bench.ip(&format!("tuntap add {NAME} mode tap user 7")).unwrap();
    let report = bench.pass(&desired(&[(NAME, tap(Tap { owner: Some(8), ..Tap::default() }))]));
    assert_eq!(crate::bench::explained(&report), [format!("conflict link {NAME}: another owner")]);
}
