//! Everything that the namespace holds, ours and foreign, without what may differ when all is well.

use std::collections::BTreeSet;

use serde_json::Value;

use super::beside::nft;
use crate::world::World;

/// What `ip` is asked for.
const QUESTIONS: [&str; 9] = [
    "-d link show",
    "address show",
    "-4 -d route show table all",
    "-6 -d route show table all",
    "-4 -d rule show",
    "-6 -d rule show",
    "neighbour show nud permanent",
    "-4 nexthop show",
    "-6 nexthop show",
];

/// What another number, port or moment gives another value to.
const VOLATILE: [&str; 6] = ["ifindex", "handle", "index", "no", "id", "designated_port"];

/// One line an object, whatever the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picture(BTreeSet<String>);

impl Picture {
    /// How the world looks.
    pub(super) fn of(world: &World) -> Self {
        let mut lines = BTreeSet::new();
        for question in QUESTIONS {
            for object in world.listed(question) {
                lines.insert(format!("{question}: {}", steady(object)));
            }
        }
        let ruleset: Value = serde_json::from_str(&nft(world, "-j list ruleset")).unwrap();
        let order = |(at, object): (usize, Value)| format!("nft {at}: {}", steady(object));
        // The order of rules is part of what they are.
        lines.extend(ordered(ruleset).into_iter().enumerate().map(order));
        for (path, value) in world.knobs() {
            let path = path.display().to_string();
            if path.contains("/net/ipv4/") || path.contains("/net/ipv6/") {
                lines.insert(format!("{path} = {value}"));
            }
        }
        Picture(lines)
    }

    /// Whether every link that can be is operational.
    pub(super) fn is_operational(&self) -> bool {
        let signs = ["\"operstate\":\"DOWN\"", "\"linkdown\""];
        !self.0.iter().any(|line| signs.iter().any(|sign| line.contains(sign)))
    }

    /// What is here and not there, and the other way round.
    pub(super) fn differences(&self, expected: &Picture) -> Vec<String> {
        let missing = expected.0.difference(&self.0).map(|line| format!("missing: {line}"));
        let surplus = self.0.difference(&expected.0).map(|line| format!("surplus: {line}"));
        missing.chain(surplus).collect()
    }
}

/// Tables in the order of their names, and what is in each in its own order.
fn ordered(mut ruleset: Value) -> Vec<Value> {
    let mut all = ruleset["nftables"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let place = |object: &Value| {
        let (kind, body) = object.as_object().unwrap().iter().next().unwrap();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let table = if kind == "table" { text("name") } else { text("table") };
        let chain = if kind == "chain" { text("name") } else { text("chain") };
        (text("family"), table, kind.clone(), chain)
    };
    all.sort_by_key(place);
    all
}

fn steady(object: Value) -> Value {
    match object {
        Value::Object(fields) => {
            let lasting = fields.into_iter().filter(|(name, _)| !is_volatile(name));
            Value::Object(lasting.map(|(name, value)| (name, steady(value))).collect())
        }
        Value::Array(all) => {
            let mut all: Vec<Value> = all.into_iter().map(steady).collect();
            // Addresses and elements come in any order; expressions of a rule are objects of one key.
            if all.iter().all(|one| one.is_string() || one.get("local").is_some()) {
                all.sort_by_key(Value::to_string);
            }
            Value::Array(all)
        }
        other => other,
    }
}

fn is_volatile(name: &str) -> bool {
    VOLATILE.contains(&name) || name.ends_with("_timer")
}
