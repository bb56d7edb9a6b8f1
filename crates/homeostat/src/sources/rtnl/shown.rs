//! What is observed of the network, in the words of a document.

use std::collections::{BTreeSet, HashSet};

use homeostat_engine::Owner;
use homeostat_rtnl::{
    AddressKey, Family, Found, Key, Link, LinkKind, LinkName, LinkRef, NeighbourKey, Object, Route,
    RouteKey, RouteKind, Rule, RuleAction, RuleKey, Table, Tos,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The sections of a document.
pub(super) type Sections = Map<String, Value>;

/// The document that everything found would be declared by. What the kernel makes by itself, what
/// routers told it, and what is there twice and can be declared only once, is left out.
pub(super) fn sections(found: &[Found]) -> Sections {
    let mut shown = Shown::default();
    let names = names(found);
    for found in found {
        if let (Key::Link(name), Object::Link(link)) = (&found.key, &found.object) {
            shown.link(*name, link, &names);
        }
    }
    let twins = twins(found);
    for Found { key, object, owner } in found.iter().filter(|found| !twins.contains(&found.key)) {
        let is_told = matches!(owner, Owner::Foreign(who) if who.contains("protocol ra"));
        if is_told || *owner == Owner::Kernel {
            continue;
        }
        match (key, object) {
            // The kernel gives them to a loopback link that comes up.
            (Key::Address(key), _) if key.link().as_str() == "lo" && key.ip().is_loopback() => {}
            (Key::Address(key), Object::Address(address)) => {
                shown.address(key, address.label.as_deref());
            }
            (Key::Route(key), Object::Route(route)) => shown.routes.extend(self::route(key, route)),
            (Key::Rule(key), Object::Rule(rule)) => shown.rules.extend(self::rule(key, rule)),
            (Key::Neighbour(key), Object::Neighbour(neighbour)) => {
                shown.neighbours.push(self::neighbour(key, neighbour.mac));
            }
            (Key::Nexthop(id), object @ Object::Nexthop(_)) => {
                shown.nexthops.extend(nexthop(id.0, object));
            }
            _ => {}
        }
    }
    shown.into_sections()
}

/// Keys that more than one object has, such as routes that were appended to each other.
fn twins(found: &[Found]) -> HashSet<&Key> {
    let mut seen = HashSet::new();
    found.iter().map(|found| &found.key).filter(|key| !seen.insert(*key)).collect()
}

fn names(found: &[Found]) -> BTreeSet<LinkName> {
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
        let link = key.link().to_string();
        let text = format!("{}/{}", key.ip(), key.prefix_len());
        let label = label.filter(|label| *label != link);
        let address = match (key.peer(), label) {
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

    fn into_sections(self) -> Sections {
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
fn plain<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let told = fields.into_iter().filter(|(_, value)| !value.is_null());
    told.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn fields(object: &impl Serialize) -> Map<String, Value> {
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
        LinkKind::Macvlan(_) | LinkKind::Ipvlan(_) | LinkKind::Vlan(_) => {
            stands && link.parent.is_some()
        }
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

fn route(key: &RouteKey, route: &Route) -> Option<Value> {
    if key.table() == Table(255) {
        return None;
    }
    let usual = RouteKey::new(key.dst()).metric();
    let mut shown = plain([("to", key.dst().to_string().into())]);
    let mut way = fields(route);
    way.remove("scope");
    if let Some(hops) = way.remove("hops") {
        way.insert("nexthops".to_owned(), hops.as_array()?.iter().map(hop).collect());
    }
    if way.contains_key("nexthop") {
        way.retain(|name, _| !["via", "dev", "nexthops", "onlink"].contains(&name.as_str()));
    }
    // Quirk `v6-nowhere-dev-lo` (Linux 6.18): an IPv6 route that goes nowhere reads back with the
    // loopback link, which nobody has declared.
    if !goes_somewhere(route.kind) {
        way.remove("dev");
    }
    way.retain(|name, value| *value != json!(false) && (name != "type" || *value != "unicast"));
    shown.extend(way);
    let metric = Some(key.metric()).filter(|metric| *metric != usual).map(|metric| metric.0);
    let table = Some(key.table()).filter(|table| *table != Table::MAIN).map(|table| table.0);
    let tos = Some(key.tos()).filter(|tos| *tos != Tos::default()).map(|tos| tos.0);
    shown.extend(plain([("table", json!(table)), ("metric", json!(metric)), ("tos", json!(tos))]));
    Some(Value::Object(shown))
}

fn goes_somewhere(kind: RouteKind) -> bool {
    use RouteKind::{Blackhole, Prohibit, Throw, Unreachable};
    !matches!(kind, Blackhole | Prohibit | Throw | Unreachable)
}

fn hop(hop: &Value) -> Value {
    let mut hop = hop.clone();
    if let Some(fields) = hop.as_object_mut() {
        fields.retain(|_, value| *value != json!(false));
    }
    hop
}

fn rule(key: &RuleKey, rule: &Rule) -> Option<Value> {
    if key.tos() != Tos::default() {
        return None;
    }
    let mut shown = plain([
        ("family", json!((key.family() == Family::V6).then_some("ipv6"))),
        ("priority", json!(key.priority())),
        ("from", json!(key.from().map(|net| net.to_string()))),
        ("to", json!(key.to().map(|net| net.to_string()))),
        ("iif", json!(key.iif())),
        ("oif", json!(key.oif())),
        ("fwmark", json!(key.fwmark().map(|mark| mark.to_string()))),
        ("ipproto", json!(key.ipproto().map(|protocol| protocol.0))),
        ("sport", json!(key.sport().map(|ports| format!("{}-{}", ports.first, ports.last)))),
        ("dport", json!(key.dport().map(|ports| format!("{}-{}", ports.first, ports.last)))),
    ]);
    shown.extend(match rule.action {
        RuleAction::Table(table) => plain([("table", table.0.into())]),
        RuleAction::L3mdev => plain([("l3mdev", true.into())]),
        RuleAction::Blackhole => plain([("type", "blackhole".into())]),
        RuleAction::Unreachable => plain([("type", "unreachable".into())]),
        RuleAction::Prohibit => plain([("type", "prohibit".into())]),
        RuleAction::Other(_) => return None,
    });
    shown.extend(plain([("suppress-prefixlength", json!(rule.suppress_prefixlength))]));
    Some(Value::Object(shown))
}

fn neighbour(key: &NeighbourKey, mac: Option<homeostat_rtnl::Mac>) -> Value {
    Value::Object(plain([
        ("dev", json!(key.link())),
        ("to", json!(key.ip())),
        ("mac", json!(mac)),
        ("proxy", json!(key.is_proxy().then_some(true))),
    ]))
}

fn nexthop(id: u32, object: &Object) -> Option<Value> {
    let Object::Nexthop(nexthop) = object else { return None };
    if nexthop.unusual.is_some() {
        return None;
    }
    let mut shown = plain([("id", id.into())]);
    let mut way = fields(nexthop);
    way.remove("scope");
    way.retain(|_, value| *value != json!(false));
    if nexthop.is_group() || nexthop.via.is_some() {
        way.remove("family");
    }
    shown.extend(way);
    Some(Value::Object(shown))
}
