//! What is observed, in the words of a document.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use homeostat_core::Owner;
use homeostat_document::Section as _;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::address::{Address, AddressKey};
use crate::key::Key;
use crate::link::LinkName;
use crate::link::kinds::LinkKind;
use crate::link::kinds::behaviour::Parent;
use crate::link::model::{Configured, Field, Link, LinkRef};
use crate::object::Object;
use crate::observe::ListedObject;
use crate::section::{FdbEntries, Neighbours, Nexthops, Routes, Rules};
use crate::{fdb, neighbour, nexthop, route, rule};

/// The document that everything found would be declared by. What the kernel makes by itself, and objects that share a
/// key, are left out.
#[must_use]
pub fn show(found: &[ListedObject]) -> Map<String, Value> {
    let twins = twins(found);
    let is_declarable =
        |one: &&ListedObject| one.owner != Owner::Kernel && !twins.contains(&one.key);
    let declarable: Vec<&ListedObject> = found.iter().filter(is_declarable).collect();
    let mut sections =
        Map::from_iter([("links".to_owned(), Value::Object(links(found, &declarable)))]);
    let mut lists = [
        (Routes::NAME, Vec::new()),
        (Rules::NAME, Vec::new()),
        (Neighbours::NAME, Vec::new()),
        (Nexthops::NAME, Vec::new()),
        (FdbEntries::NAME, Vec::new()),
    ];
    for one in &declarable {
        let [routes, rules, neighbours, nexthops, entries] = &mut lists;
        match (&one.key, &one.object) {
            (Key::Route(key), Object::Route(one)) => {
                routes.1.extend(route::section::show(key, one));
            }
            (Key::Rule(key), Object::Rule(one)) => {
                rules.1.extend(rule::section::show(key, one));
            }
            (Key::Neighbour(key), Object::Neighbour(one)) => {
                neighbours.1.push(neighbour::section::show(key, *one));
            }
            (Key::Fdb(key), Object::Fdb(one)) => entries.1.push(fdb::section::show(key, one)),
            (Key::Nexthop(id), Object::Nexthop(one)) => {
                nexthops.1.extend(nexthop::section::show(*id, one));
            }
            _ => {}
        }
    }
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        sections.insert(name.to_owned(), Value::Array(list));
    }
    sections
}

/// All links by name, with their addresses.
fn links(found: &[ListedObject], declarable: &[&ListedObject]) -> Map<String, Value> {
    let links = || {
        found.iter().filter_map(|one| match (&one.key, &one.object) {
            (Key::Link(name), Object::Link(link)) => Some((*name, &**link)),
            _ => None,
        })
    };
    let names: BTreeSet<LinkName> = links().map(|(name, _)| name).collect();
    let mut addresses: BTreeMap<LinkName, Vec<Value>> = BTreeMap::new();
    for one in declarable {
        if let (Key::Address(key), Object::Address(address)) = (&one.key, &one.object) {
            addresses.entry(key.link).or_default().extend(address_of(key, address));
        }
    }
    addresses.retain(|_, list| !list.is_empty());
    let vlans: BTreeMap<LinkName, &Configured> = found
        .iter()
        .filter_map(|one| match (&one.key, &one.object) {
            (Key::LinkField(name, Field::Vlans), Object::Setting(vlans)) => Some((*name, vlans)),
            _ => None,
        })
        .collect();
    // What a new port has goes without saying, and the cost depends on the speed of the link.
    let mut ports: BTreeMap<LinkName, Map<String, Value>> = BTreeMap::new();
    for one in found {
        if let (Key::LinkField(name, Field::Port(option)), Object::Setting(value)) =
            (&one.key, &one.object)
            && option.usual().is_some_and(|usual| option.setting(usual) != value.setting)
        {
            ports.entry(*name).or_default().insert(option.word().to_owned(), json!(value));
        }
    }
    let mut shown = Map::new();
    for (name, link) in links() {
        let mut fields = if is_whole(name, link, &names) { made(link) } else { Map::new() };
        fields.extend(plain([
            ("up", json!(link.up)),
            ("mtu", json!(link.mtu)),
            // As many as a new link has go without saying.
            ("txqueuelen", json!(link.txqueuelen.filter(|len| *len != 1000))),
            ("master", json!(link.master)),
            ("alias", json!(link.alias.as_deref().filter(|alias| !alias.is_empty()))),
        ]));
        if let Some(vlans) = vlans.get(&name) {
            fields.insert("vlans".to_owned(), json!(vlans));
        }
        if let Some(port) = ports.remove(&name) {
            fields.insert("bridge-port".to_owned(), Value::Object(port));
        }
        if let Some(addresses) = addresses.remove(&name) {
            fields.insert("addresses".to_owned(), Value::Array(addresses));
        }
        shown.insert(name.to_string(), Value::Object(fields));
    }
    shown
}

/// An entry of a link's `addresses`.
fn address_of(key: &AddressKey, address: &Address) -> Option<Value> {
    // The kernel gives it to a loopback link that comes up.
    if key.link.as_str() == "lo" && key.ip.is_loopback() {
        return None;
    }
    let text = format!("{}/{}", key.ip, key.prefix_len);
    let label = address.label.as_deref().filter(|label| *label != key.link.as_str());
    Some(match (key.peer, label) {
        (None, None) => Value::String(text),
        (peer, label) => Value::Object(plain([
            ("ip", text.into()),
            ("peer", json!(peer)),
            ("label", json!(label)),
        ])),
    })
}

/// Keys that more than one object has, such as routes that were appended to each other.
fn twins(found: &[ListedObject]) -> HashSet<&Key> {
    let mut seen = HashSet::new();
    found.iter().map(|found| &found.key).filter(|key| !seen.insert(*key)).collect()
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
    if matches!(link.kind, LinkKind::Other { .. }) {
        return false;
    }
    if let Some(peer) = link.kind.peer() {
        return is_here(peer) && name < peer.name;
    }
    stands && (link.parent.is_some() || link.kind.behaviour().parent != Parent::Required)
}

/// The kind of a link with its options.
fn made(link: &Link) -> Map<String, Value> {
    let mut fields = fields(&link.kind);
    if let Some(seconds) = fields.get("ageing").and_then(Value::as_u64) {
        fields.insert("ageing".to_owned(), format!("{seconds}s").into());
    }
    for peer in fields.get_mut("peers").and_then(Value::as_object_mut).into_iter().flatten() {
        let Some(peer) = peer.1.as_object_mut() else { continue };
        match peer.remove("keepalive").and_then(|seconds| seconds.as_u64()) {
            None | Some(0) => {}
            Some(seconds) => {
                _ = peer.insert("keepalive".to_owned(), format!("{seconds}s").into());
            }
        }
    }
    fields.retain(|name, value| name != "fwmark" || *value != 0);
    if let Some(peer) = fields.get_mut("peer") {
        *peer = peer["name"].clone();
    }
    let parent = link.parent.as_ref().map(|parent| parent.name);
    fields.extend(plain([("parent", json!(parent))]));
    fields
}
