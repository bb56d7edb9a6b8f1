//! Random rules, nexthops and neighbours among foreign ones, with random drift: one pass puts it
//! right.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_engine::Explain as _;
use homeostat_rtnl::DesiredState;
use homeostat_testkit::namespace::Namespace;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use crate::bench::{Bench, cable, desired, explained, ip, listed};

/// Keys that are near to each other; the last is wherever the kernel puts it.
const RULES: [&str; 7] = [
    "priority 1000",
    "priority 1000 from 10.0.0.0/8",
    "priority 1000 from 10.0.0.0/8 iif va",
    "priority 1001 ipproto tcp dport 80",
    "inet6 priority 1000",
    "priority 1000 from fd00::/8",
    "fwmark 0x5",
];
const ANYWHERE: u8 = 6;
/// The numbers of single nexthops; the one after them is a group.
const SINGLES: u8 = 4;
const HOSTS: u8 = 6;

/// For each kind what is there, by number: a table, a gateway, a hardware address.
#[derive(Clone, Debug)]
struct State {
    rules: BTreeMap<u8, u8>,
    nexthops: BTreeMap<u8, u8>,
    has_group: bool,
    neighbours: BTreeMap<u8, u8>,
}

fn state() -> impl Strategy<Value = State> {
    let few = |keys: u8| proptest::collection::btree_map(0..keys, 1..4_u8, 0..5);
    let parts = (few(7), few(SINGLES), any::<bool>(), few(HOSTS));
    parts.prop_map(|(rules, nexthops, has_group, neighbours)| State {
        rules,
        nexthops,
        has_group,
        neighbours,
    })
}

/// What happens to our own objects behind our back.
#[derive(Clone, Debug)]
enum Drift {
    DeleteRule(u8),
    AddRule(u8, u8),
    DeleteNexthop(u8),
    DeleteGroup,
    DeleteNeighbour(u8),
    ChangeNeighbour(u8, u8),
}

fn drift() -> impl Strategy<Value = Vec<Drift>> {
    let one = prop_oneof![
        (0..7_u8).prop_map(Drift::DeleteRule),
        (0..7_u8, 1..4_u8).prop_map(|(key, table)| Drift::AddRule(key, table)),
        (0..SINGLES).prop_map(Drift::DeleteNexthop),
        Just(Drift::DeleteGroup),
        (0..HOSTS).prop_map(Drift::DeleteNeighbour),
        (0..HOSTS, 1..4_u8).prop_map(|(host, mac)| Drift::ChangeNeighbour(host, mac)),
    ];
    proptest::collection::vec(one, 0..8)
}

fn id(nexthop: u8) -> u8 {
    nexthop + 1
}

fn mac(number: u8) -> String {
    format!("02:00:00:00:00:0{number}")
}

fn rule_args(verb: &str, key: u8, rest: &str) -> String {
    let key = RULES[usize::from(key)];
    let family = if key.contains("inet6") || key.contains("fd00") { "-6" } else { "-4" };
    format!("{family} rule {verb} {} {rest}", key.trim_start_matches("inet6 "))
}

/// What may well be refused, as drift of what is not there.
fn try_ip(namespace: &Namespace, args: &str) {
    let args: Vec<&str> = args.split_whitespace().collect();
    let _ = namespace.ip(&args);
}

fn settle(namespace: &Namespace, foreign: &State) {
    for key in foreign.rules.keys().filter(|key| **key != ANYWHERE) {
        ip(namespace, &rule_args("add", *key, &format!("table 20{key} protocol bird")));
    }
    for (nexthop, host) in &foreign.nexthops {
        let args = format!("id {} via 10.0.0.5{host} dev va proto bird", id(*nexthop));
        ip(namespace, &format!("nexthop add {args}"));
    }
    for (host, number) in &foreign.neighbours {
        let address = format!("neigh add 10.0.0.{} dev va lladdr {}", 20 + host, mac(*number));
        // Some of them are only learned.
        let state = if number % 2 == 0 { "nud stale" } else { "nud permanent protocol bird" };
        ip(namespace, &format!("{address} {state}"));
    }
}

fn wander(namespace: &Namespace, drift: &[Drift], foreign: &State) {
    for drift in drift {
        let args = match drift {
            Drift::DeleteRule(key) => rule_args("del", *key, "protocol 76"),
            Drift::AddRule(key, table) if !foreign.rules.contains_key(key) => {
                rule_args("add", *key, &format!("table 10{table} protocol 76"))
            }
            Drift::DeleteNexthop(nexthop) if !foreign.nexthops.contains_key(nexthop) => {
                format!("nexthop del id {}", id(*nexthop))
            }
            Drift::DeleteGroup => format!("nexthop del id {}", id(SINGLES)),
            Drift::DeleteNeighbour(host) if !foreign.neighbours.contains_key(host) => {
                format!("neigh del 10.0.0.{} dev va", 20 + host)
            }
            Drift::ChangeNeighbour(host, number) if !foreign.neighbours.contains_key(host) => {
                let rest = format!("lladdr {} nud permanent protocol 76", mac(*number));
                format!("neigh replace 10.0.0.{} dev va {rest}", 20 + host)
            }
            _ => continue,
        };
        try_ip(namespace, &args);
    }
}

/// The members of the group: all nexthops that are declared.
fn declared(state: &State) -> DesiredState {
    let mut entries = vec![("address 10.0.0.1/24 dev va".to_owned(), String::new())];
    let rules = state.rules.iter();
    entries.extend(rules.map(|(key, table)| {
        (format!("rule {}", RULES[usize::from(*key)]), format!("table 10{table}"))
    }));
    let nexthops = state.nexthops.iter();
    entries.extend(nexthops.map(|(nexthop, host)| {
        (format!("nexthop {}", id(*nexthop)), format!("via 10.0.0.{host} dev va"))
    }));
    if state.has_group && !state.nexthops.is_empty() {
        let members =
            state.nexthops.iter().map(|(one, host)| format!("member {}*{host}", id(*one)));
        let members = members.collect::<Vec<_>>().join(" ");
        entries.push((format!("nexthop {}", id(SINGLES)), members));
    }
    let neighbours = state.neighbours.iter();
    entries
        .extend(neighbours.map(|(host, number)| {
            (format!("neighbour 10.0.0.{} dev va", 20 + host), mac(*number))
        }));
    let entries: Vec<_> = entries.iter().map(|(key, way)| (key.as_str(), way.as_str())).collect();
    desired(&entries)
}

/// Everything of an owner, as `ip` shows it.
fn of(namespace: &Namespace, owner: &str) -> Vec<Value> {
    let lists =
        ["-4 -d rule show", "-6 -d rule show", "-d nexthop show", "-d neigh show nud permanent"];
    let all = lists.iter().flat_map(|args| listed(namespace, args));
    all.filter(|one| one["protocol"] == owner).collect()
}

/// Rules, nexthops and neighbours that should be ours, in few words.
fn expected(state: &State, foreign: &State) -> BTreeSet<String> {
    let rules =
        state.rules.iter().filter(|(key, _)| **key == ANYWHERE || !foreign.rules.contains_key(key));
    let rules = rules.map(|(key, table)| {
        let key = RULES[usize::from(*key)];
        let place = key.trim_start_matches("inet6 ").strip_prefix("priority ");
        format!("rule {} table 10{table}", place.map_or("*", |rest| &rest[..4]))
    });
    let free = |(nexthop, _): &(&u8, &u8)| !foreign.nexthops.contains_key(nexthop);
    let singles = state.nexthops.iter().filter(free);
    let singles = singles.map(|(nexthop, host)| format!("nexthop {} 10.0.0.{host}", id(*nexthop)));
    let has_group = state.has_group && !state.nexthops.is_empty();
    let members = state.nexthops.len();
    let group = has_group.then(|| format!("nexthop {} of {members}", id(SINGLES)));
    let permanent =
        |(host, _): &(&u8, &u8)| foreign.neighbours.get(host).is_none_or(|number| number % 2 == 0);
    let neighbours = state.neighbours.iter().filter(permanent);
    let neighbours = neighbours.map(|(host, n)| format!("10.0.0.{} {}", 20 + host, mac(*n)));
    rules.chain(singles).chain(group).chain(neighbours).collect()
}

fn brief(one: &Value) -> String {
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    if one.get("src").is_some() {
        let is_placed = one.get("fwmark").is_none();
        let place = if is_placed { one["priority"].to_string() } else { "*".to_owned() };
        return format!("rule {place} table {}", text("table"));
    }
    match (one.get("id"), one["group"].as_array()) {
        (Some(id), Some(group)) => format!("nexthop {id} of {}", group.len()),
        (Some(id), None) => format!("nexthop {id} {}", text("gateway")),
        (None, _) => format!("{} {}", text("dst"), text("lladdr")),
    }
}

fn check(foreign: &State, [first, second]: [&State; 2], drift: &[Drift]) {
    let namespace = cable();
    let mut bench = Bench::new();
    bench.pass(&desired(&[("address 10.0.0.1/24 dev va", "")]));
    settle(&namespace, foreign);
    bench.pass(&declared(first));
    wander(&namespace, drift, foreign);
    let before = of(&namespace, "bird");
    let report = bench.pass(&declared(second));
    assert_eq!(of(&namespace, "bird"), before, "what is foreign is as it was");
    let ours: BTreeSet<String> = of(&namespace, "76").iter().map(brief).collect();
    assert_eq!(ours, expected(second, foreign), "{:#?}", explained(&report));
    let again = bench.pass(&declared(second));
    assert_eq!(again.plan().steps.len(), 0, "{:#?}", explained(&again));
    assert_eq!(again.is_converged(), report.is_converged());
}

#[test]
fn one_pass_puts_any_drift_right_and_leaves_what_is_foreign_alone() {
    let cases = if std::env::var_os("HOMEOSTAT_SOAK").is_some() { 1000 } else { 32 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let inputs = (state(), state(), state(), drift());
    let result = TestRunner::new(config).run(&inputs, |(foreign, first, second, drift)| {
        check(&foreign, [&first, &second], &drift);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
