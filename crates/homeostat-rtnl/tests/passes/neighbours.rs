//! Permanent neighbours and proxy entries, among those that the kernel learns by itself.

use homeostat_engine::Explain as _;
use homeostat_rtnl::Key;
use homeostat_testkit::namespace::Namespace;
use serde_json::Value;

use crate::bench::{Bench, Declared, cable, desired, explained, ip, listed};

const NINE: Declared<'_> = ("neighbour 10.0.0.9 dev va", "02:00:00:00:00:09");
const PROXY: Declared<'_> = ("neighbour 10.0.0.8 dev va proxy", "");

/// What any owner configured; what it derives by itself comes when it likes.
fn told_ones(namespace: &Namespace) -> Vec<Value> {
    let all = listed(namespace, "-d neigh show nud permanent");
    [all, listed(namespace, "-d neigh show proxy")].concat()
}

#[test]
fn neighbours_and_proxy_entries_of_both_families() {
    let namespace = cable();
    let mut bench = Bench::new();
    let six = ("neighbour 2001:db8::9 dev vb", "02:00:00:00:00:19");
    let proxy6 = ("neighbour 2001:db8::8 dev vb proxy", "");
    let all = desired(&[NINE, PROXY, six, proxy6]);
    assert_eq!(bench.converge(&all).len(), 4);
    let seen = told_ones(&namespace);
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.iter().all(|one| one["protocol"] == "76"), "{seen:?}");
    let nine = seen.iter().find(|one| one["dst"] == "10.0.0.9").unwrap();
    assert_eq!((&nine["lladdr"], &nine["dev"]), (&NINE.1.into(), &"va".into()));
    assert_eq!(bench.converge(&desired(&[])).len(), 4);
    assert!(told_ones(&namespace).is_empty());
}

#[test]
fn a_changed_hardware_address_is_one_update_in_place() {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.converge(&desired(&[NINE]));
    let moved = desired(&[(NINE.0, "02:00:00:00:00:0a")]);
    assert_eq!(bench.converge(&moved), [format!("~ {}", NINE.0)]);
    assert_eq!(told_ones(&namespace)[0]["lladdr"], "02:00:00:00:00:0a");
}

#[test]
fn a_hand_deleted_neighbour_returns_as_exactly_one_create() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[NINE, PROXY]);
    bench.converge(&desired);
    ip(&namespace, "neigh del 10.0.0.9 dev va");
    assert_eq!(bench.converge(&desired), [format!("+ {}", NINE.0)]);
    ip(&namespace, "neigh del proxy 10.0.0.8 dev va");
    assert_eq!(explained(&bench.focused(&desired, &[PROXY.0])), [format!("+ {}", PROXY.0)]);
    bench.assert_quiet(&desired);
}

#[test]
fn our_neighbours_that_go_with_the_last_address_of_their_link_are_made_again_in_the_same_pass() {
    let namespace = cable();
    let mut bench = Bench::new();
    let six = ("neighbour 2001:db8::9 dev va", "02:00:00:00:00:19");
    let [first, second] = [("address 10.0.0.1/24 dev va", ""), ("address 10.1.0.1/24 dev va", "")];
    bench.converge(&desired(&[first, second, NINE, PROXY, six]));
    let again = [format!("-/+ {}", PROXY.0), format!("-/+ {}", NINE.0)];
    let mut done = bench.converge(&desired(&[NINE, PROXY, six]));
    let put_again = done.split_off(2);
    assert_eq!((done.len(), put_again), (2, again.to_vec()));
    assert_eq!(told_ones(&namespace).len(), 3);
    // A new one is created after the address is gone, not before.
    bench.converge(&desired(&[first, NINE]));
    let new = ("neighbour 10.0.0.7 dev va", "02:00:00:00:00:07");
    bench.converge(&desired(&[NINE, new]));
    assert_eq!(told_ones(&namespace).len(), 2);
}

#[test]
fn what_the_kernel_learned_counts_as_absent_and_is_replaced() {
    for state in ["stale", "reachable", "delay", "failed"] {
        let namespace = cable();
        let mac = if state == "failed" { "" } else { "lladdr 02:00:00:00:00:77" };
        ip(&namespace, &format!("neigh add 10.0.0.9 dev va {mac} nud {state}"));
        let mut bench = Bench::new();
        bench.assert_quiet(&desired(&[]));
        assert_eq!(bench.converge(&desired(&[NINE])), [format!("+ {}", NINE.0)], "{state}");
        assert_eq!(told_ones(&namespace)[0]["lladdr"], NINE.1);
    }
}

#[test]
fn a_foreign_neighbour_survives_and_one_on_a_wanted_key_is_a_conflict_or_matched() {
    let namespace = cable();
    for args in [
        "10.0.0.9 dev va lladdr 02:00:00:00:00:77 nud permanent",
        "10.0.0.7 dev va lladdr 02:00:00:00:00:07 nud permanent protocol bird",
        "10.0.0.6 dev va lladdr 02:00:00:00:00:06 nud reachable extern_learn",
        "proxy 10.0.0.8 dev va",
        "10.0.0.5 dev va lladdr 02:00:00:00:00:05 nud permanent",
    ] {
        ip(&namespace, &format!("neigh add {args}"));
    }
    let before = told_ones(&namespace);
    let mut bench = Bench::new();
    let report = bench.pass(&desired(&[
        NINE,
        ("neighbour 10.0.0.7 dev va", "02:00:00:00:00:07"),
        ("neighbour 10.0.0.6 dev va", "02:00:00:00:00:66"),
        PROXY,
    ]));
    let expected = [
        "conflict neighbour 10.0.0.6 dev va: a program that learns neighbours",
        "conflict neighbour 10.0.0.9 dev va: no protocol",
        "matched neighbour 10.0.0.7 dev va: protocol bird",
        "matched neighbour 10.0.0.8 dev va proxy: no protocol",
    ];
    assert_eq!(explained(&report), expected);
    bench.assert_quiet(&desired(&[]));
    assert_eq!(told_ones(&namespace), before);
}

#[test]
fn standing_leave_takes_a_neighbour_from_anybody() {
    let namespace = cable();
    ip(&namespace, "neigh add 10.0.0.9 dev va lladdr 02:00:00:00:00:77 nud permanent");
    ip(&namespace, "neigh add proxy 10.0.0.8 dev va protocol bird");
    let mut bench = Bench::new();
    bench.config.adopt.extend([NINE, PROXY].map(|(key, _)| key.parse::<Key>().unwrap()));
    assert!(bench.pass(&desired(&[NINE, PROXY])).is_converged());
    bench.config.adopt.clear();
    bench.assert_quiet(&desired(&[NINE, PROXY]));
    let ours = told_ones(&namespace);
    bench.converge(&desired(&[]));
    assert_ne!(told_ones(&namespace), ours);
    assert_eq!(listed(&namespace, "neigh show nud permanent").len(), 1, "it is given back");
    assert_eq!(listed(&namespace, "neigh show proxy").len(), 1, "it is given back");
}

#[test]
fn a_neighbour_on_an_absent_link_waits_for_it() {
    let namespace = cable();
    let mut bench = Bench::new();
    let desired = desired(&[("neighbour 10.0.0.9 dev later", NINE.1)]);
    let pending = ["pending neighbour 10.0.0.9 dev later: link later"];
    assert_eq!(explained(&bench.pass(&desired)), pending);
    ip(&namespace, "link add later type bridge");
    ip(&namespace, "link set later up");
    assert_eq!(bench.converge(&desired), ["+ neighbour 10.0.0.9 dev later"]);
    ip(&namespace, "link del later");
    assert_eq!(explained(&bench.pass(&desired)), pending);
}

#[test]
fn a_foreign_neighbour_outlives_a_stray_address_that_a_look_or_a_hint_shows() {
    const ADDRESS: &str = "address 10.0.0.1/24 dev va";
    let (namespace, nothing) = (cable(), desired(&[]));
    let mut bench = Bench::new();
    bench.assert_quiet(&nothing);
    Bench::new().converge(&desired(&[(ADDRESS, "")]));
    ip(&namespace, "neigh add 10.0.0.9 dev va lladdr 02:00:00:00:00:09 nud permanent");
    for report in [bench.focused(&nothing, &[ADDRESS]), bench.pass(&nothing)] {
        let lines = explained(&report);
        assert!(lines.iter().any(|line| line.starts_with("held")), "{lines:?}");
    }
    assert_eq!(listed(&namespace, "neigh show nud permanent").len(), 1);
}
