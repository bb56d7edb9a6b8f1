//! The loop over a real network: what it heals, by what, and what it leaves.

use std::time::Duration;

use homeostat_engine::{ContendedKey, Control as _, EventKind, Hints, Kind, Mode, Pace};
use homeostat_rtnl::{DesiredState, Route, RouteKey, RouteKind, Rtnl};
use homeostat_testkit::namespace::Namespace;

use crate::bench::{addresses, cable, desired, ip, listed};
use crate::hints::settled_cable;
use crate::kept::{Kept, by_hints, has_route};

const ENTRIES: [(&str, &str); 5] = [
    ("address 10.0.0.1/24 dev va", ""),
    ("route 10.5.0.0/16", "via 10.0.0.2"),
    ("route 10.6.0.0/16", "type blackhole"),
    ("rule priority 1000 from 10.0.0.0/8", "table 7"),
    ("nexthop 10", "via 10.0.0.9 dev va"),
];

fn kept(entries: &[(&str, &str)]) -> Kept {
    Kept::converged(Rtnl::here(), desired(entries), by_hints())
}

fn has_rule(namespace: &Namespace) -> bool {
    listed(namespace, "rule show priority 1000").len() == 1
}

fn has_nexthop(namespace: &Namespace) -> bool {
    listed(namespace, "nexthop show").len() == 1
}

fn all_is_there(namespace: &Namespace) -> bool {
    addresses(namespace) == ["10.0.0.1/24"]
        && has_route(namespace, "10.5.0.0/16")
        && has_route(namespace, "10.6.0.0/16")
        && has_rule(namespace)
        && has_nexthop(namespace)
}

/// One way to break each kind.
const SABOTAGE: [&str; 5] = [
    "route del 10.5.0.0/16",
    "route del blackhole 10.6.0.0/16",
    "rule del priority 1000",
    "nexthop del id 10",
    "address del 10.0.0.1/24 dev va",
];

#[test]
fn what_was_lost_is_healed_by_its_hint_alone() {
    let namespace = cable();
    let kept = kept(&ENTRIES);
    for sabotage in SABOTAGE {
        ip(&namespace, sabotage);
        assert!(!all_is_there(&namespace), "{sabotage}");
        kept.until_seen(sabotage, || all_is_there(&namespace));
    }
    let counts = kept.status().counts;
    assert_eq!((counts.full, counts.drift_by_resync, counts.lost), (1, 0, 0));
    assert!(counts.drift_by_hint >= 5, "{counts:?}");
}

#[test]
fn without_hints_the_timer_heals() {
    let namespace = cable();
    let mut pace = Pace::of::<Rtnl>(1).with_resync(Duration::from_millis(100)).unwrap();
    pace.hints = Hints::Ignore;
    let kept = Kept::converged(Rtnl::here(), desired(&ENTRIES), pace);
    for sabotage in SABOTAGE {
        ip(&namespace, sabotage);
        kept.until_seen(sabotage, || all_is_there(&namespace));
    }
    let counts = kept.status().counts;
    assert_eq!((counts.focused, counts.drift_by_hint), (0, 0), "no hint came");
    assert!(counts.drift_by_resync >= 5, "{counts:?}");
}

#[test]
fn what_the_kernel_does_not_tell_of_is_healed_by_the_timer() {
    let namespace = settled_cable();
    let desired = desired(&[("neighbour 10.0.0.8 dev va proxy", "")]);
    let pace = by_hints().with_resync(Duration::from_millis(100)).unwrap();
    let kept = Kept::converged(Rtnl::here(), desired, pace);
    let has_proxy = || listed(&namespace, "neigh show proxy").len() == 1;
    ip(&namespace, "neigh del proxy 10.0.0.8 dev va");
    assert!(!has_proxy());
    kept.until_seen("the proxy entry", has_proxy);
    let counts = kept.status().counts;
    assert_eq!((counts.drift_by_hint, counts.drift_by_resync), (0, 1));
}

#[test]
fn when_the_queue_overflows_everything_is_looked_at_once() {
    let namespace = cable();
    let source = Rtnl::here().with_event_buffer(4096);
    let mut kept = Kept::converged(source, desired(&ENTRIES), by_hints());
    let before = kept.status().counts;
    kept.received();
    // More than fits, and what matters comes last.
    for _ in 0..20 {
        ip(&namespace, "address add 10.9.0.1/24 dev va");
        ip(&namespace, "address del 10.9.0.1/24 dev va");
    }
    for sabotage in SABOTAGE {
        ip(&namespace, sabotage);
    }
    kept.until_seen("everything", || all_is_there(&namespace));
    let counts = kept.until("calm", |status| status.is_converged).counts;
    assert_eq!((counts.lost, counts.full), (before.lost + 1, before.full + 1));
    assert!(kept.received().contains(&EventKind::Lost));
}

#[test]
fn a_link_that_flaps_is_healed_at_once_after_each_flap_and_is_no_fight() {
    let namespace = cable();
    // A pass that waited for this interval would never be seen.
    let pace = by_hints().with_min_interval(Duration::from_mins(10));
    let mut kept = Kept::converged(Rtnl::here(), desired(&ENTRIES), pace);
    for _ in 0..3 {
        ip(&namespace, "link set va down");
        ip(&namespace, "link set va up");
        assert!(!all_is_there(&namespace), "a flap takes the routes along");
        kept.until_seen("everything after a flap", || all_is_there(&namespace));
    }
    let status = kept.status();
    assert_eq!((status.counts.full, status.contended.len()), (1, 0));
    let fights = |what: &EventKind| matches!(what, EventKind::Contention { .. });
    assert!(!kept.received().iter().any(fights));
}

#[test]
fn own_writes_cause_no_further_pass() {
    // The loopback link does nothing by itself.
    let namespace = Namespace::enter().unwrap();
    ip(&namespace, "link set lo up");
    let kept = kept(&[("address 10.0.0.1/24 dev lo", ""), ENTRIES[2], ENTRIES[3]]);
    for nth in 1..=3 {
        ip(&namespace, "route del blackhole 10.6.0.0/16");
        // The echo of the last heal would have been a pass before this one.
        kept.until("healed", |status| status.counts.drift_by_hint == nth && status.is_converged);
        let counts = kept.status().counts;
        assert_eq!((counts.full, counts.focused), (1, nth), "one pass a loss");
    }
}

#[test]
fn a_secondary_address_that_went_with_its_primary_is_healed_at_once() {
    let namespace = cable();
    let kept = kept(&[("address 10.0.0.1/24 dev va", ""), ("address 10.0.0.2/24 dev va", "")]);
    ip(&namespace, "address del 10.0.0.1/24 dev va");
    assert!(addresses(&namespace).is_empty(), "it took the other along");
    kept.until_seen("both addresses", || addresses(&namespace).len() == 2);
    let counts = kept.status().counts;
    assert_eq!((counts.full, counts.drift_by_resync), (1, 0));
}

#[test]
fn two_who_fight_over_a_route_are_slowed_down_and_the_other_is_named() {
    let namespace = cable();
    let mut kept = Kept::converged(Rtnl::here(), desired(&ENTRIES), fast());
    let mut heals = 0;
    while kept.status().contended.is_empty() {
        kept.until_seen("the route", || has_route(&namespace, "10.6.0.0/16"));
        ip(&namespace, "route del blackhole 10.6.0.0/16");
        heals += 1;
        kept.until("healed or left alone", |status| {
            status.counts.drift_by_hint == heals
                && (status.is_converged || status.open.count(Kind::Held) == 1)
        });
    }
    assert!(heals >= 5, "it takes five losses within ten seconds, not {heals}");
    let ContendedKey { key, culprit, pause, .. } = kept.status().contended[0].clone();
    assert_eq!((key.as_str(), pause), ("route 10.6.0.0/16", Duration::from_millis(200)));
    assert!(culprit.starts_with("process "), "{culprit}");
    let named = kept.received().into_iter().find_map(|what| match what {
        EventKind::Contention { culprit, .. } => Some(culprit),
        _ => None,
    });
    assert_eq!(named, Some(culprit));
    kept.until_seen("the route, after a pause", || has_route(&namespace, "10.6.0.0/16"));
}

/// A pace at which a fight takes no time.
fn fast() -> Pace {
    by_hints().with_min_interval(Duration::from_millis(1))
}

fn adopting() -> DesiredState {
    let mut builder = DesiredState::builder();
    let route = Route { kind: RouteKind::BLACKHOLE, ..Route::default() };
    let key = RouteKey::new("10.6.0.0/16".parse().unwrap());
    builder.adopting_route(key, route).unwrap();
    builder.build().unwrap()
}

const THEFT: &str = "route replace unreachable 10.6.0.0/16 proto bird";

fn kind_of(namespace: &Namespace) -> String {
    let routes = listed(namespace, "route show 10.6.0.0/16");
    routes.iter().map(|route| route["type"].to_string()).collect()
}

#[test]
fn a_foreign_replacement_is_a_conflict_and_no_fight() {
    let namespace = cable();
    let kept = Kept::converged(Rtnl::here(), desired(&[ENTRIES[2]]), fast());
    for nth in 1..=6 {
        ip(&namespace, THEFT);
        kept.until("in conflict", |status| status.open.count(Kind::Conflict) == 1);
        assert_eq!(kind_of(&namespace), "\"unreachable\"", "it is left as it is");
        ip(&namespace, "route del unreachable 10.6.0.0/16");
        // No event says that the foreign route was deleted.
        kept.handle.resume().unwrap();
        kept.until("converged again", |status| status.is_converged);
        assert_eq!(kept.status().contended, [], "after {nth}");
    }
}

#[test]
fn a_foreign_replacement_on_a_key_that_may_be_adopted_is_healed_and_its_protocol_named() {
    let namespace = cable();
    let kept = Kept::converged(Rtnl::here(), adopting(), fast());
    let mut thefts = 0;
    let status = loop {
        ip(&namespace, THEFT);
        thefts += 1;
        let status = kept.until("healed or contended", |status| {
            let is_healed = status.counts.drift_by_hint == thefts && status.is_converged;
            is_healed || !status.contended.is_empty()
        });
        if !status.contended.is_empty() {
            break status;
        }
        assert_eq!(kind_of(&namespace), "\"blackhole\"");
    };
    assert!(thefts >= 5, "it takes five losses within ten seconds, not {thefts}");
    let culprit = &status.contended[0].culprit;
    assert!(culprit.starts_with("protocol bird, process "), "{culprit}");
    kept.until_seen("ours", || kind_of(&namespace) == "\"blackhole\"");
}

#[test]
fn a_loop_that_observes_writes_nothing() {
    let namespace = cable();
    let pace = by_hints().with_mode(Mode::Observe);
    let kept = Kept::start(Rtnl::here(), desired(&ENTRIES), pace.clone());
    let status = kept.until("ready", |status| status.is_ready);
    assert_eq!((status.open.count(Kind::Change), status.is_converged), (ENTRIES.len(), false));
    assert!(addresses(&namespace).is_empty() && !has_rule(&namespace));
    drop(kept);
    let healed = Kept::converged(Rtnl::here(), desired(&ENTRIES), by_hints());
    drop(healed);
    let kept = Kept::converged(Rtnl::here(), desired(&ENTRIES), pace);
    ip(&namespace, "route del blackhole 10.6.0.0/16");
    let status = kept.until("drifted", |status| status.open.count(Kind::Change) == 1);
    assert_eq!((status.counts.applied, status.counts.full), (0, 1));
    assert!(!has_route(&namespace, "10.6.0.0/16"));
}

#[test]
fn a_cold_start_with_many_routes_is_one_full_pass_however_small_the_queue() {
    let namespace = cable();
    let keys: Vec<String> =
        (0..6000).map(|n| format!("route 20.{}.{}.0/24", n / 250, n % 250)).collect();
    let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), "type blackhole")).collect();
    // Some hundred events, at most.
    let source = Rtnl::here().with_event_buffer(64 << 10);
    let kept = Kept::converged(source, desired(&entries), by_hints());
    for (nth, to) in (1..).zip(["20.0.0.0/24", "20.23.249.0/24"]) {
        ip(&namespace, &format!("route del blackhole {to}"));
        kept.until("healed", |status| status.counts.drift_by_hint == nth && status.is_converged);
        assert!(has_route(&namespace, to));
    }
    let counts = kept.status().counts;
    assert_eq!((counts.full, counts.lost), (1, 0));
}
