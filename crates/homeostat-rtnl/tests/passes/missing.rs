//! Sections of a document that are missing: what they declared stays in the kernel.

use homeostat_engine::{Guards, MissingSections, OnRelease};
use homeostat_rtnl::Key;

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

/// One of each kind, and a link that is only configured.
const ALL: [Declared<'_>; 8] = [
    ("link br0", "bridge up on"),
    ("link va mtu", "1400"),
    ("address 10.0.0.1/24 dev va", ""),
    ("nexthop 7", "dev va"),
    ("route 10.1.0.0/16", "via 10.0.0.9"),
    ("route 10.2.0.0/16", "type blackhole"),
    ("rule priority 100 from 10.0.0.0/8", "table 100"),
    ("neighbour 10.0.0.9 dev va", "02:00:00:00:00:09"),
];

/// A bench that owns all of it, with the guards that a program has by default.
fn owning() -> Bench {
    let mut bench = Bench::new();
    bench.converge(&desired(&ALL));
    bench.config.guards = Guards::default();
    bench.config.on_release = OnRelease::Restore;
    bench
}

fn missing(is_lost: fn(&Key) -> bool) -> MissingSections<Key> {
    MissingSections::new(is_lost, |is_lost, key| is_lost(key).then(|| "missing".to_owned()))
}

#[test]
fn removals_of_every_kind_are_held() {
    let namespace = cable();
    let mut bench = owning();
    let links = || listed(&namespace, "-d link show");
    let shown = || {
        // What is of IPv6 comes and goes with carriers.
        let lists = ["-4 route show table all", "rule show", "nexthop show"];
        let mut all: Vec<_> = lists.iter().flat_map(|list| listed(&namespace, list)).collect();
        all.extend(
            listed(&namespace, "-4 address show").iter().map(|link| link["addr_info"].clone()),
        );
        all.extend(listed(&namespace, "neighbour show nud permanent"));
        all
    };
    let before = (links().len(), shown());
    bench.config.missing = missing(|_| true);
    let report = explained(&bench.pass(&desired(&[])));
    let held = report.iter().filter(|line| line.starts_with("held ")).count();
    assert_eq!(held, ALL.len(), "{report:?}");
    assert_eq!((links().len(), shown()), before);
    bench.config.missing = MissingSections::default();
    bench.converge(&desired(&[]));
    assert_eq!(links().len(), before.0 - 1);
    assert_eq!(listed(&namespace, "link show va")[0]["mtu"], 1500);
}

#[test]
fn only_the_missing_kind_is_held_and_focused_passes_hold_it_too() {
    let namespace = cable();
    let mut bench = owning();
    bench.config.missing = missing(|key| matches!(key, Key::Rule(_) | Key::Neighbour(_)));
    let rest = [ALL[0], ALL[1], ALL[2], ("route 10.1.0.0/16", "via 10.0.0.8")];
    bench.pass(&desired(&rest));
    assert!(listed(&namespace, "nexthop show").is_empty());
    assert!(listed(&namespace, "route show 10.2.0.0/16").is_empty());
    assert_eq!(listed(&namespace, "route show 10.1.0.0/16")[0]["gateway"], "10.0.0.8");
    let has_both = || {
        listed(&namespace, "rule show priority 100").len() == 1
            && listed(&namespace, "neighbour show 10.0.0.9").len() == 1
    };
    assert!(has_both());
    ip(&namespace, "neighbour change 10.0.0.9 dev va lladdr 02:00:00:00:00:0a protocol 76");
    for key in ["neighbour 10.0.0.9 dev va", "rule priority 100 from 10.0.0.0/8"] {
        let report = explained(&bench.focused(&desired(&rest), &[key]));
        assert!(report.iter().any(|line| line.starts_with("held ")), "{report:?}");
    }
    assert!(has_both());
}
