//! netplan: YAML with one table for each kind of interface. Several files are one configuration; a later one adds to, and
//! overrides, what an earlier one says.

use anyhow::Result;
use homeostat_document::{Format, read_data};
use serde_json::{Map, Value, json};

use super::Foreign;
use super::draft::{
    DHCP, Draft, KIND, NO_NAME, RESOLVER, UNKNOWN, WIRELESS, default_for, flag, number, text,
};
use crate::failure::DocumentErrors;

type Table = Map<String, Value>;

/// Makes a document of all files together.
pub(super) fn import(files: &[Foreign]) -> Result<Draft> {
    let mut whole = json!({});
    for file in files {
        let data = read_data(&file.name(), Format::Yaml, &unambiguous(&file.text));
        merge(&mut whole, data.map_err(DocumentErrors::from)?);
    }
    let mut draft = Draft::default();
    let top = whole.as_object().cloned().unwrap_or_default();
    for (name, value) in &top {
        match (name.as_str(), value) {
            ("network", Value::Object(network)) => of_network(network, &mut draft),
            _ => draft.leave(name, UNKNOWN),
        }
    }
    Ok(draft)
}

/// Our reader refuses what readers of YAML take for different things. netplan takes `no` for false and a hardware address
/// of digits for a text: both are put in quotes, which moves nothing to another line.
fn unambiguous(text: &str) -> String {
    let mut all = String::new();
    for line in text.lines() {
        let (before, value) = match line.rsplit_once(": ") {
            Some((name, value)) => (format!("{name}: "), value),
            None => (String::new(), line),
        };
        let plain = value.trim();
        let is_flag =
            matches!(plain.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off" | "y" | "n");
        let is_mac = plain.split(':').count() == 6
            && plain.chars().all(|c| c.is_ascii_hexdigit() || c == ':');
        if !before.is_empty() && (is_flag || is_mac) {
            all.extend([before.as_str(), "\"", plain, "\"\n"]);
        } else {
            all.extend([line, "\n"]);
        }
    }
    all
}

/// Tables are joined, lists are strung together, and of anything else the later one counts.
fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(more)) => {
            for item in more {
                if !into.contains(&item) {
                    into.push(item);
                }
            }
        }
        (into, more) => *into = more,
    }
}

/// The tables of interfaces, and the kind of each.
const KINDS: [(&str, Option<&str>); 7] = [
    ("ethernets", None),
    ("bonds", Some("bond")),
    ("bridges", Some("bridge")),
    ("vlans", Some("vlan")),
    ("vrfs", Some("vrf")),
    ("dummy-devices", Some("dummy")),
    ("virtual-ethernets", Some("veth")),
];

fn of_network(network: &Table, draft: &mut Draft) {
    let names = names(network);
    for (section, value) in network {
        let devices = value.as_object();
        let kind = KINDS.iter().find(|(name, _)| name == section).map(|(_, kind)| *kind);
        let place = format!("network.{section}");
        match (section.as_str(), kind, devices) {
            ("version" | "renderer", ..) => {}
            ("wifis" | "modems", ..) => draft.leave(place, WIRELESS),
            ("tunnels", _, Some(devices)) => {
                for (id, device) in devices {
                    of_tunnel(id, device, &place, &names, draft);
                }
            }
            (_, Some(kind), Some(devices)) => {
                for (id, device) in devices {
                    of_device(id, device, kind, &place, &names, draft);
                }
            }
            _ => draft.leave(place, UNKNOWN),
        }
    }
}

/// What interfaces are called, by their ids. One without a name is left out.
fn names(network: &Table) -> Map<String, Value> {
    let mut names = Map::new();
    for (id, device) in network.values().filter_map(Value::as_object).flatten() {
        let field = |name: &str| device.get(name).and_then(text);
        let matched = device.get("match");
        let matched_name = matched.and_then(|matched| matched.get("name")).and_then(text);
        let is_plain = |name: &String| !name.contains(['*', '?', '[']);
        let name = match (field("set-name"), matched) {
            (Some(name), _) => Some(name),
            (None, None) => Some(id.clone()),
            (None, Some(_)) => matched_name.filter(is_plain),
        };
        names.insert(id.clone(), name.map_or(Value::Null, Value::String));
    }
    names
}

/// The name of the interface that is called by an id.
fn name_of(id: &str, names: &Table) -> Option<String> {
    match names.get(id) {
        Some(name) => text(name),
        None => Some(id.to_owned()),
    }
}

fn of_device(
    id: &str,
    device: &Value,
    kind: Option<&str>,
    section: &str,
    names: &Table,
    draft: &mut Draft,
) {
    let place = format!("{section}.{id}");
    let Some(name) = name_of(id, names) else {
        return draft.leave(place, NO_NAME);
    };
    // An empty table is written as nothing.
    let fields = device.as_object().cloned().unwrap_or_default();
    draft.link(&name);
    if let Some(kind) = kind {
        let peer = fields.get("peer").and_then(text);
        let is_other_end = peer.as_ref().is_some_and(|peer| draft.has_kind(peer));
        if !is_other_end {
            draft.set(&name, "kind", kind);
        }
        if let Some(peer) = peer.filter(|_| !is_other_end) {
            draft.set(&name, "peer", json!({ "name": peer }));
        }
    }
    if kind == Some("bridge") {
        // As netplan has it where nothing is said.
        draft.set(&name, "stp", true);
    }
    let is_off = fields.get("activation-mode").and_then(text).is_some();
    if !is_off {
        draft.set(&name, "up", true);
    }
    let table = fields.get("table").and_then(number).filter(|_| kind == Some("vrf"));
    for (field, value) in &fields {
        let at = format!("{place}.{field}");
        match (field.as_str(), kind) {
            ("match" | "set-name" | "peer", _) => {}
            ("interfaces", Some("bond" | "bridge" | "vrf")) => {
                for port in value.as_array().into_iter().flatten().filter_map(text) {
                    match name_of(&port, names) {
                        Some(port) => draft.set(&port, "master", name.as_str()),
                        None => draft.leave(format!("{at}: {port}"), NO_NAME),
                    }
                }
            }
            ("id", Some("vlan")) => set_number(&name, "id", value, &at, draft),
            ("table", Some("vrf")) => set_number(&name, "table", value, &at, draft),
            ("link", Some("vlan")) => {
                match text(value).and_then(|parent| name_of(&parent, names)) {
                    Some(parent) => draft.set(&name, "parent", parent),
                    None => draft.leave(at, NO_NAME),
                }
            }
            ("parameters", Some(kind @ ("bond" | "bridge"))) => {
                for (parameter, value) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}.{parameter}");
                    of_parameter(&name, kind, parameter, value, &at, draft);
                }
            }
            _ => of_common(&name, field, value, table, &at, draft),
        }
    }
}

fn set_number(link: &str, field: &str, value: &Value, at: &str, draft: &mut Draft) {
    match number(value) {
        Some(value) => draft.set(link, field, value),
        None => draft.leave(at, "this is no number"),
    }
}

/// What every interface can have. Routes of a VRF are in its table.
fn of_common(
    link: &str,
    field: &str,
    value: &Value,
    table: Option<i64>,
    at: &str,
    draft: &mut Draft,
) {
    match field {
        "addresses" => {
            for address in value.as_array().into_iter().flatten() {
                of_address(link, address, at, draft);
            }
        }
        "gateway4" | "gateway6" => match text(value) {
            Some(via) => draft.gateway(&via, link, None, table),
            None => draft.leave(at, "this is no address"),
        },
        "routes" => {
            for route in value.as_array().into_iter().flatten() {
                of_route(link, route, table, at, draft);
            }
        }
        "routing-policy" => {
            for rule in value.as_array().into_iter().flatten() {
                of_rule(rule, at, draft);
            }
        }
        "mtu" => set_number(link, "mtu", value, at, draft),
        "macaddress" => match text(value).filter(|mac| mac.contains(':')) {
            Some(mac) => draft.set(link, "mac", mac),
            None => draft.leave(at, "only a hardware address can be set"),
        },
        "accept-ra" => match flag(value) {
            Some(accepts) => {
                draft.set_in(link, "sysctl", "ipv6/accept_ra", json!(i64::from(accepts) * 2));
            }
            None => draft.leave(at, UNKNOWN),
        },
        "dhcp4" | "dhcp6" if flag(value) == Some(false) => {}
        "dhcp4" | "dhcp6" | "dhcp4-overrides" | "dhcp6-overrides" | "dhcp-identifier" => {
            draft.leave(at, DHCP);
        }
        "nameservers" => draft.leave(at, RESOLVER),
        "renderer" => {}
        "activation-mode" => draft.leave(at, "it is left to others whether the link is up"),
        _ => draft.leave(at, UNKNOWN),
    }
}

fn of_address(link: &str, address: &Value, at: &str, draft: &mut Draft) {
    match address {
        Value::String(text) => draft.push(link, "addresses", json!(text)),
        // `{ "192.0.2.1/24": { label: ..., lifetime: ... } }`
        Value::Object(one) => {
            for (ip, options) in one {
                let mut entry = Map::from_iter([("ip".to_owned(), json!(ip))]);
                for (option, value) in options.as_object().into_iter().flatten() {
                    match (option.as_str(), text(value).as_deref()) {
                        ("label", Some(label)) => {
                            entry.insert("label".to_owned(), json!(label));
                        }
                        ("lifetime", Some("forever")) => {}
                        ("lifetime", Some("0")) => {
                            entry.insert("preferred-lifetime".to_owned(), json!("0s"));
                        }
                        _ => draft.leave(format!("{at}: {ip}: {option}"), UNKNOWN),
                    }
                }
                draft.push(link, "addresses", Value::Object(entry));
            }
        }
        _ => draft.leave(at, "this is no address"),
    }
}

fn of_route(link: &str, route: &Value, table: Option<i64>, at: &str, draft: &mut Draft) {
    let Some(fields) = route.as_object() else { return draft.leave(at, "this is no route") };
    let via = fields.get("via").and_then(text);
    let Some(to) = fields.get("to").and_then(text) else {
        return draft.leave(at, "this route has no destination");
    };
    let is_default = ["default", "0.0.0.0/0", "::/0"].contains(&to.as_str());
    let to = match &via {
        Some(via) if is_default => default_for(via).to_owned(),
        _ => to,
    };
    let place = format!("{at}: {to}");
    let kind = fields.get("type").and_then(text).filter(|kind| kind != "unicast");
    let mut made = Map::from_iter([("to".to_owned(), json!(to))]);
    let has_way = kind.as_deref().is_none_or(|kind| kind == "local" || kind == "multicast");
    // A route of a VRF leaves by one of its ports, not by the VRF.
    if has_way && table.is_none() {
        made.insert("dev".to_owned(), json!(link));
    }
    made.extend(table.map(|table| ("table".to_owned(), json!(table))));
    for (field, value) in fields {
        let our_word = match field.as_str() {
            "to" => continue,
            "type" if kind.is_none() => continue,
            "via" | "metric" | "table" | "type" | "scope" | "mtu" => field,
            "from" => "src",
            "on-link" => "onlink",
            _ => {
                draft.leave(format!("{place}: {field}"), UNKNOWN);
                continue;
            }
        };
        let value = match our_word {
            "onlink" => flag(value).map(Value::Bool),
            "metric" | "mtu" | "table" => number(value).map(Value::from),
            _ => text(value).map(Value::String),
        };
        match value {
            Some(value) => _ = made.insert(our_word.to_owned(), value),
            None => draft.leave(format!("{place}: {field}"), UNKNOWN),
        }
    }
    draft.route(made);
}

fn of_rule(rule: &Value, at: &str, draft: &mut Draft) {
    let mut made = Map::new();
    for (field, value) in rule.as_object().into_iter().flatten() {
        let translated = match field.as_str() {
            "from" | "to" => text(value).map(|net| (field.as_str(), json!(net))),
            "table" | "priority" => number(value).map(|number| (field.as_str(), json!(number))),
            "mark" => number(value).map(|mark| ("fwmark", json!(mark))),
            _ => None,
        };
        match translated {
            Some((field, value)) => _ = made.insert(field.to_owned(), value),
            // Without one of its selectors it would be for more packets.
            None => return draft.leave(format!("{at}: a rule with `{field}`"), UNKNOWN),
        }
    }
    if made.is_empty() {
        return draft.leave(at, "this is no rule");
    }
    made.entry("table").or_insert_with(|| json!(254));
    draft.rule(made);
}

fn of_parameter(
    link: &str,
    kind: &str,
    parameter: &str,
    value: &Value,
    at: &str,
    draft: &mut Draft,
) {
    let our_word = match (kind, parameter) {
        ("bond", "mode" | "primary" | "min-links" | "lacp-rate")
        | ("bridge", "stp" | "priority" | "forward-delay" | "hello-time" | "max-age") => parameter,
        ("bond", "mii-monitor-interval") => "miimon",
        ("bond", "up-delay") => "updelay",
        ("bond", "down-delay") => "downdelay",
        ("bond", "transmit-hash-policy") => "xmit-hash-policy",
        ("bridge", "ageing-time" | "aging-time") => "ageing-time",
        ("bridge", "path-cost" | "port-priority") => {
            let option = if parameter == "path-cost" { "cost" } else { "priority" };
            for (port, value) in value.as_object().into_iter().flatten() {
                match number(value) {
                    Some(value) => draft.set_in(port, "bridge-port", option, json!(value)),
                    None => draft.leave(format!("{at}.{port}"), "this is no number"),
                }
            }
            return;
        }
        _ => return draft.leave(at, UNKNOWN),
    };
    let value = match our_word {
        "stp" => flag(value).map(Value::Bool),
        "forward-delay" | "hello-time" | "max-age" | "ageing-time" => {
            number(value).map(|seconds| json!(format!("{seconds}s")))
        }
        "miimon" | "updelay" | "downdelay" => {
            let millis = text(value).map(|text| text.trim_end_matches("ms").to_owned());
            millis.and_then(|millis| millis.parse::<i64>().ok()).map(Value::from)
        }
        "min-links" | "priority" => number(value).map(Value::from),
        _ => text(value).map(Value::String),
    };
    match value {
        Some(value) => draft.set(link, our_word, value),
        None => draft.leave(at, UNKNOWN),
    }
}

fn of_tunnel(id: &str, device: &Value, section: &str, names: &Table, draft: &mut Draft) {
    let place = format!("{section}.{id}");
    let fields = device.as_object().cloned().unwrap_or_default();
    let mode = fields.get("mode").and_then(text).unwrap_or_default();
    let is_known = matches!(mode.as_str(), "gre" | "vxlan");
    if !is_known {
        return draft.leave(format!("{place} (mode {mode})"), KIND);
    }
    draft.set(id, "kind", mode.as_str());
    draft.set(id, "up", true);
    for (field, value) in &fields {
        let at = format!("{place}.{field}");
        match (field.as_str(), text(value)) {
            ("mode", _) => {}
            ("local", Some(address)) => draft.set(id, "local", address),
            ("remote", Some(address)) => {
                let is_group = address.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_multicast());
                draft.set(id, if is_group { "group" } else { "remote" }, address);
            }
            ("ttl" | "id" | "port", _) => set_number(id, field, value, &at, draft),
            ("key", _) if mode == "gre" => set_number(id, field, value, &at, draft),
            ("link", Some(parent)) if mode == "vxlan" => match name_of(&parent, names) {
                Some(parent) => draft.set(id, "parent", parent),
                None => draft.leave(at, NO_NAME),
            },
            ("mac-learning", _) if mode == "vxlan" => match flag(value) {
                Some(learns) => draft.set(id, "learning", learns),
                None => draft.leave(at, UNKNOWN),
            },
            _ => of_common(id, field, value, None, &at, draft),
        }
    }
}
