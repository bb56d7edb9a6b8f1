//! What is observed, in the words of a document.

use std::collections::{BTreeSet, HashSet};

use homeostat_core::Owner;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::address::AddressKey;
use crate::key::Key;
use crate::link::LinkName;
use crate::link::kinds::{LinkKind, NEEDS_PARENT};
use crate::link::model::{Link, LinkRef};
use crate::number::Protocol;
use crate::object::Object;
use crate::observe::{ListedObject, foreign};
use crate::{neighbour, nexthop, route, rule};

/// The document that everything found would be declared by. What the kernel makes by itself, what
/// router advertisements made it add, and objects that share a key, are left out.
#[must_use]
pub fn show(found: &[ListedObject]) -> Map<String, Value> {
    let mut shown = Shown::default();
    let names = names(found);
    for found in found {
        if let (Key::Link(name), Object::Link(link)) = (&found.key, &found.object) {
            shown.link(*name, link, &names);
        }
    }
    let twins = twins(found);
    for ListedObject { key, object, owner } in
        found.iter().filter(|found| !twins.contains(&found.key))
    {
        if *owner == Owner::Kernel || *owner == foreign(Protocol::ROUTER_ADVERTISEMENT) {
            continue;
        }
        match (key, object) {
            // The kernel gives them to a loopback link that comes up.
            (Key::Address(key), _) if key.link.as_str() == "lo" && key.ip.is_loopback() => {}
            (Key::Address(key), Object::Address(address)) => {
                shown.address(key, address.label.as_deref());
            }
            (Key::Route(key), Object::Route(route)) => {
                shown.routes.extend(route::section::show(key, route));
            }
            (Key::Rule(key), Object::Rule(rule)) => {
                shown.rules.extend(rule::section::show(key, rule));
            }
            (Key::Neighbour(key), Object::Neighbour(neighbour)) => {
                shown.neighbours.push(neighbour::section::show(key, *neighbour));
            }
            (Key::Nexthop(id), Object::Nexthop(nexthop)) => {
                shown.nexthops.extend(nexthop::section::show(*id, nexthop));
            }
            _ => {}
        }
    }
    shown.into_sections()
}

/// Keys that more than one object has, such as routes that were appended to each other.
fn twins(found: &[ListedObject]) -> HashSet<&Key> {
    let mut seen = HashSet::new();
    found.iter().map(|found| &found.key).filter(|key| !seen.insert(*key)).collect()
}

fn names(found: &[ListedObject]) -> BTreeSet<LinkName> {
    let links = found.iter().filter_map(|found| match found.key {
        Key::Link(name) => Some(name),
        _ => None,
    });
    links.collect()
}

#[derive(Default)]
struct Shown {
    links: Map<String, Value>,
    routes: Vec<Value>,
    rules: Vec<Value>,
    neighbours: Vec<Value>,
    nexthops: Vec<Value>,
}

impl Shown {
    fn link(&mut self, name: LinkName, link: &Link, names: &BTreeSet<LinkName>) {
        let mut fields = if is_whole(name, link, names) { made(link) } else { Map::new() };
        fields.extend(plain([
            ("up", json!(link.up)),
            ("mtu", json!(link.mtu)),
            ("master", json!(link.master)),
            ("alias", json!(link.alias.as_deref().filter(|alias| !alias.is_empty()))),
        ]));
        self.links.insert(name.to_string(), Value::Object(fields));
    }

    fn address(&mut self, key: &AddressKey, label: Option<&str>) {
        let link = key.link.to_string();
        let text = format!("{}/{}", key.ip, key.prefix_len);
        let label = label.filter(|label| *label != link);
        let address = match (key.peer, label) {
            (None, None) => Value::String(text),
            (peer, label) => Value::Object(plain([
                ("ip", text.into()),
                ("peer", json!(peer)),
                ("label", json!(label)),
            ])),
        };
        let Some(fields) = self.links.get_mut(&link).and_then(Value::as_object_mut) else { return };
        let list = fields.entry("addresses").or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().into_iter().for_each(|list| list.push(address.clone()));
    }

    fn into_sections(self) -> Map<String, Value> {
        let lists = [
            ("routes", self.routes),
            ("rules", self.rules),
            ("neighbours", self.neighbours),
            ("nexthops", self.nexthops),
        ];
        let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let lists = lists.map(|(name, list)| (name.to_owned(), Value::Array(list)));
        std::iter::once(("links".to_owned(), Value::Object(self.links))).chain(lists).collect()
    }
}

/// Fields that have a value.
pub(crate) fn plain<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    fields.map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(crate) fn fields(object: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(object) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Whether a document could make the link: its kind is known, and what it stands on is here. Of a
/// pair that is here with both ends, the first makes the other.
fn is_whole(name: LinkName, link: &Link, names: &BTreeSet<LinkName>) -> bool {
    let is_here = |other: &LinkRef| other.namespace.is_none() && names.contains(&other.name);
    let stands = link.parent.as_ref().is_none_or(is_here);
    match &link.kind {
        LinkKind::Other { .. } => false,
        LinkKind::Veth(veth) => is_here(&veth.peer) && name < veth.peer.name,
        kind if NEEDS_PARENT.contains(&kind.name()) => stands && link.parent.is_some(),
        _ => stands,
    }
}

/// The kind of a link with its options.
fn made(link: &Link) -> Map<String, Value> {
    let mut fields = fields(&link.kind);
    if let Some(seconds) = fields.get("ageing").and_then(Value::as_u64) {
        fields.insert("ageing".to_owned(), format!("{seconds}s").into());
    }
    if let Some(peer) = fields.get_mut("peer") {
        *peer = peer["name"].clone();
    }
    let parent = link.parent.as_ref().map(|parent| parent.name);
    fields.extend(plain([("parent", json!(parent))]));
    fields
}
