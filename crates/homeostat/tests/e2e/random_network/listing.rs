//! What `ip` lists of a network namespace, one line an object, and how two listings differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::document::Document;
use crate::program::{command, output};

const QUESTIONS: [&str; 9] = [
    "-d link show",
    "-d address show",
    "-4 -d route show table all",
    "-6 -d route show table all",
    "-4 -d rule show",
    "-6 -d rule show",
    "-d neighbour show nud permanent",
    "-d neighbour show proxy",
    "-d nexthop show",
];

/// How much of what `ip` says is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// All but counters and timers: the same namespace, a moment later.
    All,
    /// The same without what follows the carriers of links.
    Kept,
    /// Only what was configured: another namespace, whose links have other numbers, whose links came
    /// up at other moments, and in which the addresses were added in another order.
    Configured,
}

/// What `ip` says of the links of the namespace that this thread is in, by name.
pub(super) fn links() -> BTreeMap<String, Value> {
    let mut ip = command("ip");
    ip.args(["-j", "-d", "link", "show"]);
    let listed: Vec<Value> = serde_json::from_str(&output(ip)).unwrap();
    let name = |link: &Value| link["ifname"].as_str().unwrap().to_owned();
    listed.into_iter().map(|link| (name(&link), link)).collect()
}

/// One line an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listing(BTreeSet<String>);

/// What changes by itself, or with what is put on top of a link or into a bridge.
const VOLATILE: [&str; 14] = [
    "iif_detached",
    "oif_detached",
    "qdisc",
    "promiscuity",
    "allmulti",
    "bridge_id",
    "root_id",
    "designated_bridge",
    "designated_root",
    "permaddr",
    "gso_max_size",
    "gro_max_size",
    "tso_max_size",
    "tso_max_segs",
];
/// What depends on history or on other links.
const DERIVED: [&str; 8] =
    ["ifindex", "operstate", "group", "tentative", "nodad", "secondary", "state", "cost"];
const DERIVED_FLAGS: [&str; 6] =
    ["LOWER_UP", "NO-CARRIER", "M-DOWN", "linkdown", "dead", "RUNNING"];

impl Listing {
    /// Of the namespace that this thread is in. The document says which fields of its links count.
    pub(super) fn here(detail: Detail, document: &Document) -> Self {
        let mut lines = BTreeSet::new();
        for question in QUESTIONS {
            let mut ip = command("ip");
            ip.arg("-j").args(question.split_whitespace());
            let text = output(ip);
            // Nothing at all is an empty list.
            let listed: Value = serde_json::from_str(&text).unwrap_or_default();
            let objects = listed.as_array().cloned().unwrap_or_default();
            if question == "-d address show" {
                lines.extend(objects.iter().flat_map(|link| addresses_of(link, detail)));
                continue;
            }
            for mut object in objects {
                // The kernel adds it with the first IPv6 address of a link without carrier, and leaves it.
                if object["dst"] == "ff00::/8" && object["protocol"] == "kernel" {
                    continue;
                }
                // Which of several addresses comes first is a matter of history.
                if object["protocol"] == "kernel" && detail == Detail::Configured {
                    object.as_object_mut().unwrap().remove("prefsrc");
                }
                if question == "-d link show" {
                    reduce_own_link(&mut object, detail, document);
                }
                lines.insert(format!("{question}: {}", steady(object, detail)));
            }
        }
        Listing(lines)
    }

    /// What the kernel has not finished: links that are up but not operational, addresses that are
    /// tentative.
    pub(super) fn unfinished(&self) -> Vec<String> {
        let signs = ["\"linkdown\"", "\"tentative\"", "\"NO-CARRIER\""];
        let is_late = |line: &&String| {
            let is_up = line.contains("\"UP\"") && line.contains("\"operstate\":\"DOWN\"");
            is_up || signs.iter().any(|sign| line.contains(sign))
        };
        self.0.iter().filter(is_late).cloned().collect()
    }

    /// The lines without those of the links that a document configures.
    pub(super) fn without_links_of(&self, document: &Document) -> Self {
        let is_named = |line: &String| {
            line.starts_with("-d link show")
                && document
                    .links
                    .keys()
                    .any(|name| line.contains(&format!("\"ifname\":\"{name}\"")))
        };
        Listing(self.0.iter().filter(|line| !is_named(line)).cloned().collect())
    }

    /// What the other one has and this one lacks.
    pub(super) fn lacks(&self, other: &Listing) -> Vec<String> {
        let missing = other.0.difference(&self.0);
        missing.map(|line| format!("missing: {}", self.changed_part(line))).collect()
    }

    /// Of a long line only what no line about the same link has.
    fn changed_part(&self, line: &str) -> String {
        let name = line.split(',').find(|part| part.contains("\"ifname\":"));
        let same = |other: &&String| name.is_some_and(|name| other.contains(name));
        let Some(other) = self.0.iter().find(same) else { return line.to_owned() };
        let parts = line.split(',').filter(|part| !other.contains(*part));
        let others = other.split(',').filter(|part| !line.contains(*part));
        let (parts, others): (Vec<_>, Vec<_>) = (parts.collect(), others.collect());
        format!("{}: {} and not {}", name.unwrap_or_default(), parts.join(","), others.join(","))
    }

    /// What is here and not there, and the other way round.
    pub(super) fn differences(&self, expected: &Listing) -> Vec<String> {
        let surplus = self.0.difference(&expected.0).map(|line| format!("surplus: {line}"));
        self.lacks(expected).into_iter().chain(surplus).collect()
    }
}

fn addresses_of(link: &Value, detail: Detail) -> Vec<String> {
    let (name, all) = (&link["ifname"], link["addr_info"].as_array().unwrap());
    all.iter().map(|one| format!("address of {name}: {}", steady(one.clone(), detail))).collect()
}

/// A link that documents create has what they declare of it; the rest is the kernel's choice, or what
/// an earlier document has left. Links of the world are compared whole.
fn reduce_own_link(link: &mut Value, detail: Detail, document: &Document) {
    let name = link["ifname"].as_str().unwrap().to_owned();
    if detail != Detail::Configured || name.starts_with('f') || name == "lo" {
        return;
    }
    let declared = document.links.get(&name).cloned().unwrap_or_default();
    let has_flag = |flag: &str| link["flags"].as_array().unwrap().iter().any(|one| one == flag);
    let alias = link["ifalias"].as_str().unwrap_or_default();
    let alias = alias.replace("homeostat:default", "").trim().to_owned();
    let mut own = json!({
        "ifname": name,
        "link": link["link"],
        "kind": link["linkinfo"]["info_kind"],
        "options": link["linkinfo"]["info_data"],
    });
    let fields = [
        ("up", declared.up.is_some(), has_flag("UP").into()),
        ("mtu", declared.mtu.is_some(), link["mtu"].clone()),
        ("address", declared.mac.is_some(), link["address"].clone()),
        ("alias", declared.alias.is_some(), alias.into()),
        ("master", declared.master.is_some(), link["master"].clone()),
    ];
    for (name, is_declared, value) in fields {
        if is_declared {
            own[name] = value;
        }
    }
    *link = own;
}

fn steady(object: Value, detail: Detail) -> Value {
    match object {
        Value::Object(fields) => {
            let lasting = fields.into_iter().filter(|(name, _)| !is_dropped(name, detail));
            let lasting = lasting.map(|(name, value)| (name, steady(value, detail)));
            // In the order of their names.
            Value::Object(lasting.collect::<BTreeMap<_, _>>().into_iter().collect())
        }
        Value::Array(all) => {
            let is_derived =
                |one: &Value| one.as_str().is_some_and(|word| DERIVED_FLAGS.contains(&word));
            let kept = all.into_iter().filter(|one| detail == Detail::All || !is_derived(one));
            let mut kept: Vec<Value> = kept.map(|one| steady(one, detail)).collect();
            // The ways of a route have no order.
            kept.sort_by_key(Value::to_string);
            Value::Array(kept)
        }
        other => other,
    }
}

fn is_dropped(name: &str, detail: Detail) -> bool {
    let is_derived = match detail {
        Detail::All => false,
        Detail::Kept => name == "operstate",
        Detail::Configured => DERIVED.contains(&name),
    };
    VOLATILE.contains(&name) || name.ends_with("_timer") || is_derived
}
