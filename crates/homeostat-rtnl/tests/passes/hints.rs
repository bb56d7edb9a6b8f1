//! What the kernel announces, as hints.

use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::{Config, Focus, Hint, Holdings, Observer, Order, Ownership, pass};
use homeostat_rtnl::{Key, Rtnl, Wish};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{Bench, block_on, cable, ip, told, wish};

/// The next hint; long patience, since it costs nothing when the hint comes.
async fn next(observer: &mut Observer<Rtnl>) -> Hint<Key> {
    let hint = tokio::time::timeout(Duration::from_secs(20), observer.hint()).await;
    hint.expect("no hint came").unwrap()
}

/// The next hint that names keys: links may still be coming up.
async fn next_keys(observer: &mut Observer<Rtnl>) -> Vec<Key> {
    loop {
        if let Hint::Keys(keys) = next(observer).await {
            return keys;
        }
    }
}

#[test]
fn a_lost_route_of_ours_is_named_and_foreign_churn_is_not() {
    let namespace = cable();
    let wish = wish(&[
        ("address 10.0.0.1/24 dev va", ""),
        ("route 10.5.0.0/16", "via 10.0.0.2"),
        ("route 10.6.0.0/16", "via 10.0.0.2"),
    ]);
    Bench::new().converge(&wish);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        ip(&namespace, "route add 10.9.0.0/16 via 10.0.0.2");
        ip(&namespace, "route del 10.9.0.0/16 via 10.0.0.2");
        ip(&namespace, "route del 10.5.0.0/16");
        let named = |key: &str| vec![key.parse::<Key>().unwrap()];
        assert_eq!(next_keys(&mut observer).await, named("route 10.5.0.0/16"));
        ip(&namespace, "route replace 10.6.0.0/16 via 10.0.0.3 proto bird");
        assert_eq!(next_keys(&mut observer).await, named("route 10.6.0.0/16"), "a theft");
    });
}

#[test]
fn a_link_or_an_address_that_changed_asks_for_a_look_at_everything() {
    // The loopback link changes only when it is told to.
    let namespace = Namespace::enter().unwrap();
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        for args in ["link set lo mtu 60000", "address add 10.0.0.1/24 dev lo"] {
            ip(&namespace, args);
            assert_eq!(next(&mut observer).await, Hint::Lost, "{args}");
        }
    });
}

#[test]
fn a_rule_is_named_by_its_place_and_by_any() {
    let namespace = cable();
    let wish = wish(&[("rule priority 1000 from 10.0.0.0/8", "table 7"), ("rule fwmark 0x5", "")]);
    let mut bench = Bench::new();
    bench.converge(&wish);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        ip(&namespace, "rule del priority 1000");
        let named = ["rule priority 1000 from 10.0.0.0/8", "rule from 10.0.0.0/8"];
        let named: Vec<Key> = named.iter().map(|key| key.parse().unwrap()).collect();
        assert_eq!(next_keys(&mut observer).await, named);
        ip(&namespace, "rule del fwmark 5");
        let keys = next_keys(&mut observer).await;
        assert!(keys.contains(&"rule fwmark 0x5".parse().unwrap()), "{keys:?}");
    });
    let healed = told(&bench.focused(&wish, &["rule fwmark 0x5"]));
    assert_eq!(healed, ["+ rule fwmark 0x5"]);
}

#[test]
fn a_nexthop_may_have_taken_routes_along_in_silence() {
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link set lo up");
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        for args in ["nexthop add id 10 blackhole", "nexthop del id 10"] {
            ip(&namespace, args);
            assert_eq!(next(&mut observer).await, Hint::Lost, "{args}");
        }
    });
}

/// Looks at everything on behalf of a wish.
async fn observe(observer: &mut Observer<Rtnl>, wish: &Wish) {
    let (source, config, wish) = (Rtnl::here(), Config::default(), Arc::new(wish.clone()));
    let ownership = &Ownership::Marked;
    let order = Order { source: &source, wish, ownership, focus: Focus::All, config: &config };
    pass::plan(&order, observer, &Holdings::default()).await.unwrap();
}

/// The next hint that names neighbours.
async fn next_neighbours(observer: &mut Observer<Rtnl>) -> Vec<String> {
    loop {
        let keys = next_keys(observer).await;
        let keys: Vec<String> = keys.iter().map(Key::to_string).collect();
        if keys.iter().any(|key| key.starts_with("neighbour")) {
            return keys;
        }
    }
}

#[test]
fn only_who_wishes_neighbours_hears_of_them() {
    let namespace = cable();
    let nine = wish(&[("neighbour 10.0.0.9 dev va", "02:00:00:00:00:09")]);
    Bench::new().converge(&nine);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        observe(&mut observer, &wish(&[])).await;
        ip(&namespace, "neigh del 10.0.0.9 dev va");
        ip(&namespace, "rule add priority 7 table 7");
        let first = next_keys(&mut observer).await;
        assert_eq!(first[0].to_string(), "rule priority 7", "nothing of the neighbour");
        observe(&mut observer, &nine).await;
        // One that nobody wishes comes first, and is not told.
        ip(&namespace, "neigh add 10.0.0.7 dev va lladdr 02:00:00:00:00:07 nud stale");
        ip(&namespace, "neigh add 10.0.0.9 dev va lladdr 02:00:00:00:00:77 nud stale");
        assert_eq!(next_neighbours(&mut observer).await, ["neighbour 10.0.0.9 dev va"]);
    });
}

#[test]
fn proxy_neighbours_are_silent() {
    let namespace = cable();
    let wish = wish(&[("neighbour 10.0.0.8 dev va proxy", "")]);
    Bench::new().converge(&wish);
    block_on(async {
        let mut observer = Observer::open(&Rtnl::here(), "test").unwrap();
        observe(&mut observer, &wish).await;
        ip(&namespace, "neigh del proxy 10.0.0.8 dev va");
        ip(&namespace, "rule add priority 7 table 7");
        let first = next_keys(&mut observer).await;
        assert_eq!(first[0].to_string(), "rule priority 7", "nothing of the proxy entry");
    });
}
