//! Links that may be absent: what waits for them alone is converged, and everything else is as ever.

use homeostat_engine::{Explain, Kind};
use homeostat_rtnl::DesiredState;

use crate::bench::{Bench, Declared, add, cable, ip, listed};

/// The same with links that may be absent.
fn with_optional(entries: &[Declared<'_>], optional: &[&str]) -> DesiredState {
    let mut builder = DesiredState::builder();
    for (key, attrs) in entries {
        add(&mut builder, key.parse().unwrap(), attrs).unwrap();
    }
    for link in optional {
        builder.optional_link(link.parse().unwrap());
    }
    builder.build().unwrap()
}

/// The keys of one list of a report.
fn keys_of(report: &dyn Explain, kind: Kind) -> Vec<String> {
    let mut keys = Vec::new();
    report.explain(kind, &mut |entry| keys.push(entry.key().to_owned()));
    keys
}

const ON_PPP: [Declared<'_>; 4] = [
    ("link ppp0 mtu", "1492"),
    ("address 10.7.0.1/24 dev ppp0", ""),
    ("neighbour 10.7.0.9 dev ppp0", "02:00:00:00:00:09"),
    ("route 10.8.0.0/16", "via 10.7.0.9"),
];

#[test]
fn what_waits_for_an_optional_link_is_converged_and_listed() {
    let namespace = cable();
    let mut bench = Bench::new();
    let wanted = with_optional(&ON_PPP, &["ppp0"]);
    let report = bench.pass(&wanted);
    assert!(report.is_converged());
    let mut waiting = keys_of(&report, Kind::Optional);
    waiting.sort();
    let mut expected = ON_PPP.map(|(key, _)| key.to_owned());
    expected.sort();
    assert_eq!(waiting, expected);
    assert!(keys_of(&report, Kind::Pending).is_empty());
    // It comes, and goes.
    ip(&namespace, "link add ppp0 type veth peer name far");
    ip(&namespace, "link set far up");
    ip(&namespace, "link set ppp0 up");
    let done = bench.heal(&wanted);
    assert!(done.contains(&"+ address 10.7.0.1/24 dev ppp0".to_owned()), "{done:?}");
    assert_eq!(listed(&namespace, "link show ppp0")[0]["mtu"], 1492);
    assert_eq!(listed(&namespace, "route show 10.8.0.0/16").len(), 1);
    bench.assert_quiet(&wanted);
    ip(&namespace, "link del ppp0");
    assert!(bench.pass(&wanted).is_converged());
    // The same document without the word is not converged.
    let report = bench.pass(&with_optional(&ON_PPP, &[]));
    assert!(!report.is_converged());
    assert_eq!(keys_of(&report, Kind::Pending).len(), 4);
}

/// A link that stands on an optional one is as optional, and so is what is on it.
#[test]
fn links_on_top_of_an_optional_link_are_optional_too() {
    let _namespace = cable();
    let mut bench = Bench::new();
    let stacked: [Declared<'_>; 3] = [
        ("link mv0", "macvlan parent ppp0"),
        ("link mv1", "macvlan parent mv0"),
        ("address 10.7.0.1/24 dev mv1", ""),
    ];
    let report = bench.pass(&with_optional(&stacked, &["ppp0"]));
    assert!(report.is_converged(), "{:?}", keys_of(&report, Kind::Pending));
    assert_eq!(keys_of(&report, Kind::Optional).len(), 3);
    let report = bench.pass(&with_optional(&stacked, &["mv1"]));
    assert_eq!(keys_of(&report, Kind::Pending), ["link mv0"]);
    assert!(!report.is_converged());
}

#[test]
fn what_waits_for_another_link_as_well_is_not_converged() {
    let _namespace = cable();
    let mut bench = Bench::new();
    let others: [Declared<'_>; 2] =
        [("address 10.7.0.1/24 dev ppp0", ""), ("address 10.9.0.1/24 dev eth9", "")];
    let report = bench.pass(&with_optional(&others, &["ppp0"]));
    assert!(!report.is_converged());
    assert_eq!(keys_of(&report, Kind::Pending), ["address 10.9.0.1/24 dev eth9"]);
    assert_eq!(keys_of(&report, Kind::Optional), ["address 10.7.0.1/24 dev ppp0"]);
}
