//! Random desired states among random foreign routes, with random drift: one pass puts it right.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_engine::Explain as _;
use homeostat_testkit::namespace::Namespace;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::bench::{Bench, cable, desired, explained, ip, listed};

/// Destinations by number, of both families.
const KEYS: u8 = 8;

fn dst(key: u8) -> String {
    if key.is_multiple_of(2) {
        format!("10.{}.0.0/16", 10 + key)
    } else {
        format!("2001:db8:{key}::/48")
    }
}

fn via(key: u8, host: u8) -> String {
    if key.is_multiple_of(2) { format!("10.0.0.{host}") } else { format!("2001:db8::{host}") }
}

/// What happens to the network behind our back.
#[derive(Clone, Debug)]
enum Drift {
    Delete(u8),
    Put { key: u8, host: u8 },
}

type Routes = BTreeMap<u8, u8>;

fn routes() -> impl Strategy<Value = Routes> {
    proptest::collection::btree_map(0..KEYS, 2..9_u8, 0..6)
}

fn drift() -> impl Strategy<Value = Vec<Drift>> {
    let put = (0..KEYS, 2..9_u8).prop_map(|(key, host)| Drift::Put { key, host });
    proptest::collection::vec(prop_oneof![(0..KEYS).prop_map(Drift::Delete), put], 0..6)
}

fn put(namespace: &Namespace, (key, host): (u8, u8), rest: &str) {
    ip(namespace, &format!("route replace {} via {} {rest}", dst(key), via(key, host)));
}

/// The routes of an owner, as `ip` shows them.
fn of(namespace: &Namespace, owner: &str) -> Vec<serde_json::Value> {
    let both = ["-4", "-6"]
        .map(|family| listed(namespace, &format!("{family} -d route show proto {owner}")));
    both.concat()
}

fn declared(routes: &Routes) -> homeostat_rtnl::DesiredState {
    let texts: Vec<(String, String)> = routes
        .iter()
        .map(|(key, host)| (format!("route {}", dst(*key)), format!("via {}", via(*key, *host))))
        .collect();
    let entries: Vec<_> = texts.iter().map(|(key, way)| (key.as_str(), way.as_str())).collect();
    desired(&entries)
}

fn check(foreign: &Routes, [first, second]: [&Routes; 2], drift: &[Drift]) {
    let namespace = cable();
    ip(&namespace, "address add 10.0.0.1/24 dev va");
    ip(&namespace, "address add 2001:db8::1/64 dev va nodad");
    for (key, host) in foreign {
        put(&namespace, (*key, *host), "proto bird");
    }
    let mut bench = Bench::new();
    bench.pass(&declared(first));
    for drift in drift {
        match drift {
            // What is not ours is not there to be taken away.
            Drift::Delete(key) => {
                let family = if key.is_multiple_of(2) { "-4" } else { "-6" };
                let _ = namespace.ip(&[family, "route", "del", &dst(*key), "proto", "76"]);
            }
            Drift::Put { key, host } if !foreign.contains_key(key) => {
                put(&namespace, (*key, *host), "proto 76");
            }
            Drift::Put { .. } => {}
        }
    }
    let before = of(&namespace, "bird");
    let report = bench.pass(&declared(second));
    assert_eq!(of(&namespace, "bird"), before, "foreign routes are as they were");
    let expected: BTreeSet<(String, String)> = second
        .iter()
        .filter(|(key, _)| !foreign.contains_key(key))
        .map(|(key, host)| (dst(*key), via(*key, *host)))
        .collect();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let ours = of(&namespace, "76");
    let ours = ours.iter().map(|route| (text(&route["dst"]), text(&route["gateway"])));
    assert_eq!(ours.collect::<BTreeSet<_>>(), expected, "{:#?}", explained(&report));
    let again = bench.pass(&declared(second));
    assert_eq!(again.plan().steps.len(), 0, "{:#?}", explained(&again));
    assert_eq!(again.is_converged(), report.is_converged());
}

#[test]
fn one_pass_puts_any_drift_right_and_leaves_foreign_routes_alone() {
    let cases = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 1000 } else { 24 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let inputs = (routes(), routes(), routes(), drift());
    let result = TestRunner::new(config).run(&inputs, |(foreign, first, second, drift)| {
        check(&foreign, [&first, &second], &drift);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
