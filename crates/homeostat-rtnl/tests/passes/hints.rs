//! What the kernel announces, as hints.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Config, Focus, Hint, Holdings, Observer, Ownership, PassInput, pass};
use homeostat_netlink::uapi::{RTA_DST, RTM_DELROUTE};
use homeostat_netlink::{Batch, Connection, Family};
use homeostat_rtnl::{DesiredState, Key, Rtnl};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, addresses, block_on, cable, desired, explained, ip, listed, until};

/// A namespace in which nothing changes by itself: the loopback link changes only when it is changed.
fn loopback() -> Namespace {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link set lo up");
    namespace
}

const ROUTES: [(&str, &str); 3] = [
    ("address 10.0.0.1/24 dev lo", ""),
    ("route 10.5.0.0/16", "dev lo"),
    ("route 10.6.0.0/16", "type blackhole"),
];

/// A bench that has received everything up to now.
fn listening(entries: &[(&str, &str)]) -> (Bench, homeostat_rtnl::DesiredState) {
    let (mut bench, desired) = (Bench::new(), desired(entries));
    bench.converge(&desired);
    bench.hint();
    (bench, desired)
}

#[test]
fn a_lost_route_of_ours_is_named_and_foreign_churn_is_not() {
    let namespace = loopback();
    let (mut bench, _desired) = listening(&ROUTES);
    ip(&namespace, "route add 10.9.0.0/16 dev lo");
    ip(&namespace, "route del 10.9.0.0/16 dev lo");
    ip(&namespace, "route replace 10.9.0.0/16 dev lo proto bird");
    ip(&namespace, "route replace 10.9.0.0/16 dev lo proto bird mtu 1400");
    assert!(bench.hinted().is_empty());
    ip(&namespace, "route del 10.5.0.0/16");
    assert_eq!(bench.hinted(), ["route 10.5.0.0/16"]);
    ip(&namespace, "route replace blackhole 10.6.0.0/16 proto bird");
    assert_eq!(bench.hinted(), ["route 10.6.0.0/16"], "a theft");
    ip(&namespace, "route add 10.7.0.0/16 dev lo proto 76");
    assert_eq!(bench.hinted(), ["route 10.7.0.0/16"], "it carries our mark");
}

/// Whom the next hint names, with the keys.
fn named(bench: &mut Bench) -> (String, Vec<String>) {
    match bench.hint() {
        Some(Hint::Keys(hinted)) => {
            let by = hinted.values().next().unwrap().clone().unwrap();
            assert!(hinted.values().all(|other| other.as_ref() == Some(&by)), "{hinted:?}");
            (by.to_string(), hinted.keys().map(Key::to_string).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_replaced_or_deleted_what_is_ours_is_told() {
    let namespace = loopback();
    let (mut bench, _desired) = listening(&ROUTES);
    ip(&namespace, "route replace blackhole 10.6.0.0/16 proto bird");
    let (who, keys) = named(&mut bench);
    assert!(who.starts_with("protocol bird, process "), "{who}");
    assert_eq!(keys, ["route 10.6.0.0/16"]);
    ip(&namespace, "route del 10.5.0.0/16");
    let (who, keys) = named(&mut bench);
    assert!(who.starts_with("process "), "{who}");
    assert_eq!(keys, ["route 10.5.0.0/16"]);
    ip(&namespace, "address del 10.0.0.1/24 dev lo");
    assert!(named(&mut bench).0.starts_with("process "));
}

#[test]
fn a_port_is_a_process() {
    let _namespace = loopback();
    // The first socket of this process in this namespace.
    let mut saboteur = Connection::open(Family::Route).unwrap();
    let (mut bench, _desired) = listening(&ROUTES);
    let mut batch = Batch::new();
    let mut message = batch.message(RTM_DELROUTE, 0);
    message.fixed(&[2, 16, 0, 0, 254, 76, 255, 0, 0, 0, 0, 0]);
    message.attr(RTA_DST, &[10, 5, 0, 0]);
    message.finish().unwrap();
    saboteur.run(&mut batch, &mut |_, _| {}).unwrap();
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    let who = format!("process {} ({})", std::process::id(), name.trim_end());
    assert_eq!(named(&mut bench), (who, vec!["route 10.5.0.0/16".to_owned()]));
}

#[test]
fn without_a_look_every_route_of_ours_is_worth_a_hint() {
    let namespace = loopback();
    let mut bench = Bench::new();
    ip(&namespace, "route add 10.7.0.0/16 dev lo");
    ip(&namespace, "route add 10.8.0.0/16 dev lo proto 76");
    assert_eq!(bench.hinted(), ["route 10.8.0.0/16"]);
}

#[test]
fn our_own_writes_are_no_hints() {
    let namespace = loopback();
    let (mut bench, desired) = (Bench::new(), desired(&ROUTES));
    bench.pass(&desired);
    assert!(bench.hinted().is_empty(), "creates");
    ip(&namespace, "route replace 10.5.0.0/16 dev lo proto 76 mtu 1400");
    ip(&namespace, "route del 10.6.0.0/16");
    bench.hint();
    let moved = crate::bench::desired(&[
        ("address 10.0.0.1/24 dev lo", "valid 1000"),
        ("route 10.5.0.0/16", "dev lo mtu 1500"),
        ("route 10.6.0.0/16", "type blackhole"),
    ]);
    assert_eq!(bench.pass(&moved).plan().steps.len(), 3);
    assert!(bench.hinted().is_empty(), "updates");
    bench.pass(&crate::bench::desired(&[]));
    assert!(bench.hinted().is_empty(), "removals");
}

#[test]
fn what_the_kernel_took_along_is_a_hint_although_it_carries_our_port() {
    let namespace = loopback();
    let (one, two) = (("address 10.0.0.1/24 dev lo", ""), ("address 10.0.0.2/24 dev lo", ""));
    let (mut bench, _desired) = listening(&[one, two]);
    bench.pass(&desired(&[two]));
    assert_eq!(bench.hinted(), [two.0], "it went along and was made again");
    drop(namespace);
}

#[test]
fn an_address_is_named_if_it_matters() {
    let namespace = loopback();
    let (mut bench, desired) = listening(&ROUTES);
    ip(&namespace, "address del 10.0.0.1/24 dev lo");
    assert_eq!(bench.hinted(), ["address 10.0.0.1/24 dev lo"]);
    ip(&namespace, "address add 10.9.0.1/24 dev lo");
    assert_eq!(bench.hinted(), ["address 10.9.0.1/24 dev lo"], "its link carries a route");
    bench.focused(&desired, &["address 10.0.0.1/24 dev lo"]);
    let (mut bench, _desired) = listening(&[ROUTES[0], ROUTES[2]]);
    ip(&namespace, "address add 10.8.0.1/24 dev lo");
    assert!(bench.hinted().is_empty(), "nothing of ours hangs on it");
}

#[test]
fn an_address_on_a_link_that_nobody_saw_asks_for_a_look_at_everything() {
    let namespace = loopback();
    let mut bench = Bench::new();
    ip(&namespace, "address add 10.0.0.1/24 dev lo");
    assert_eq!(bench.hinted(), ["lost"]);
}

#[test]
fn what_a_look_hears_is_the_next_hint() {
    let namespace = loopback();
    let (mut bench, desired) = listening(&ROUTES);
    ip(&namespace, "route del 10.5.0.0/16");
    ip(&namespace, "route del blackhole 10.6.0.0/16");
    let report = bench.focused(&desired, &["route 10.5.0.0/16"]);
    assert_eq!(explained(&report), ["+ route 10.5.0.0/16"]);
    assert!(bench.hinted().contains(&"route 10.6.0.0/16".to_owned()));
}

#[test]
fn an_address_of_ours_that_went_is_back_with_the_routes_that_went_in_silence() {
    let namespace = cable();
    let entries = [
        ("address 10.0.0.1/24 dev va", ""),
        ("route 10.5.0.0/16", "via 10.0.0.2"),
        ("route 10.6.0.0/16", "dev va"),
        ("route 10.7.0.0/16", "type blackhole"),
    ];
    let (mut bench, desired) = (Bench::new(), desired(&entries));
    bench.converge(&desired);
    ip(&namespace, "address del 10.0.0.1/24 dev va");
    let report = bench.focused(&desired, &["address 10.0.0.1/24 dev va"]);
    let expected = ["+ address 10.0.0.1/24 dev va", "+ route 10.5.0.0/16", "+ route 10.6.0.0/16"];
    assert_eq!(explained(&report), expected);
    bench.assert_quiet(&desired);
    assert_eq!(addresses(&namespace), ["10.0.0.1/24"]);
}

/// The next hint; long patience, since it costs nothing when the hint comes.
async fn next(observer: &mut Observer<Rtnl>) -> Hint<Key> {
    let hint = tokio::time::timeout(Duration::from_secs(20), observer.hint()).await;
    hint.unwrap().unwrap()
}

/// The next hint that names keys but for links and addresses: links may still be coming up, and get
/// addresses of their own.
async fn next_keys(observer: &mut Observer<Rtnl>) -> Vec<Key> {
    loop {
        let Hint::Keys(keys) = next(observer).await else { continue };
        let other = |key: &&Key| !matches!(key, Key::Address(_) | Key::Link(_));
        let keys: Vec<Key> = keys.keys().filter(other).cloned().collect();
        if !keys.is_empty() {
            return keys;
        }
    }
}

#[test]
fn a_rule_is_named_by_its_place_and_by_any() {
    let namespace = loopback();
    let desired =
        desired(&[("rule priority 1000 from 10.0.0.0/8", "table 7"), ("rule fwmark 0x5", "")]);
    let mut bench = Bench::new();
    bench.converge(&desired);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        observe(&mut observer, &desired).await;
        ip(&namespace, "rule del priority 1000");
        let named = ["rule from 10.0.0.0/8", "rule priority 1000 from 10.0.0.0/8"];
        let named: Vec<Key> = named.iter().map(|key| key.parse().unwrap()).collect();
        assert_eq!(next_keys(&mut observer).await, named);
        ip(&namespace, "rule del fwmark 5");
        let keys = next_keys(&mut observer).await;
        assert!(keys.contains(&"rule fwmark 0x5".parse().unwrap()), "{keys:?}");
    });
    let healed = explained(&bench.focused(&desired, &["rule fwmark 0x5"]));
    assert_eq!(healed, ["+ rule fwmark 0x5"]);
}

#[test]
fn a_nexthop_is_named_and_the_routes_that_went_with_it_in_silence_are_back() {
    let namespace = loopback();
    let entries = [("nexthop 10", "blackhole on"), ("route 10.5.0.0/16", "nhid 10")];
    let (mut bench, desired) = listening(&entries);
    ip(&namespace, "nexthop del id 10");
    assert_eq!(bench.hinted(), ["nexthop 10"]);
    let report = bench.focused(&desired, &["nexthop 10"]);
    assert_eq!(explained(&report), ["+ nexthop 10", "+ route 10.5.0.0/16"]);
    assert!(bench.hinted().is_empty(), "our own doing");
    bench.assert_quiet(&desired);
}

/// Looks at everything on behalf of a desired state.
async fn observe(observer: &mut Observer<Rtnl>, desired: &DesiredState) {
    let (source, config, desired) = (Rtnl::here(), Config::default(), Arc::new(desired.clone()));
    let ownership = &Ownership::Marked;
    let order =
        PassInput { source: &source, desired, ownership, focus: Focus::All, config: &config };
    pass::plan(&order, observer, &Holdings::default()).await.unwrap();
}

/// A cable both ends of which have come up: nothing more is announced about them.
pub(crate) fn settled_cable() -> Namespace {
    let namespace = cable();
    let is_up =
        |link: &str| listed(&namespace, &format!("link show dev {link}"))[0]["operstate"] == "UP";
    until("the cable", || is_up("va") && is_up("vb"));
    namespace
}

fn texts(keys: &[Key]) -> Vec<String> {
    keys.iter().map(Key::to_string).collect()
}

/// The next hint that names neighbours.
async fn next_neighbours(observer: &mut Observer<Rtnl>) -> Vec<String> {
    loop {
        let keys = next_keys(observer).await;
        let keys = texts(&keys);
        if keys.iter().any(|key| key.starts_with("neighbour")) {
            return keys;
        }
    }
}

#[test]
fn only_who_declares_neighbours_hears_of_them() {
    let namespace = settled_cable();
    let nine = desired(&[("neighbour 10.0.0.9 dev va", "02:00:00:00:00:09")]);
    Bench::new().converge(&nine);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        observe(&mut observer, &desired(&[])).await;
        ip(&namespace, "neigh del 10.0.0.9 dev va");
        ip(&namespace, "rule add priority 7 table 7");
        let first = next_keys(&mut observer).await;
        assert_eq!(texts(&first), ["rule", "rule priority 7"], "nothing of the neighbour");
        observe(&mut observer, &nine).await;
        // One that is not declared comes first, and causes no hint.
        ip(&namespace, "neigh add 10.0.0.7 dev va lladdr 02:00:00:00:00:07 nud stale");
        ip(&namespace, "neigh add 10.0.0.9 dev va lladdr 02:00:00:00:00:77 nud stale");
        assert_eq!(next_neighbours(&mut observer).await, ["neighbour 10.0.0.9 dev va"]);
    });
}

#[test]
fn proxy_neighbours_are_silent() {
    let namespace = settled_cable();
    let desired = desired(&[("neighbour 10.0.0.8 dev va proxy", "")]);
    Bench::new().converge(&desired);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        observe(&mut observer, &desired).await;
        ip(&namespace, "neigh del proxy 10.0.0.8 dev va");
        ip(&namespace, "rule add priority 7 table 7");
        let first = next_keys(&mut observer).await;
        assert_eq!(texts(&first), ["rule", "rule priority 7"], "nothing of the proxy entry");
    });
}
