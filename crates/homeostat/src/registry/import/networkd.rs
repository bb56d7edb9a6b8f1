//! systemd-networkd: `.netdev` files create links, `.network` files configure those that they match.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Foreign;
use super::draft::{DHCP, Draft, KIND, NO_NAME, RESOLVER, UNKNOWN, default_for, flag, number};
use super::ini::{Entry, Section, parse};
use crate::failure::helped;

/// Makes a document of all files together.
pub(super) fn import(files: &[Foreign]) -> Result<Draft> {
    let mut draft = Draft::default();
    for file in files {
        let sections = parse(file)?;
        match file.extension() {
            "netdev" => of_netdev(file, &sections, &mut draft),
            "network" => of_network(file, &sections, &mut draft),
            "link" => {
                draft.leave(file.name(), "names of links are udev's; keep this file as a file");
            }
            _ => {
                return Err(helped(
                    format!("{} is no file of networkd", file.name()),
                    "their names end in .network or .netdev",
                ));
            }
        }
    }
    Ok(draft)
}

fn at(file: &Foreign, section: &Section, entry: &Entry) -> String {
    format!("{}:{}: [{}] {}", file.name(), entry.line, section.name, entry.name)
}

/// The kinds that a document has under the same name.
const KINDS: [&str; 11] =
    ["bridge", "bond", "vlan", "vxlan", "vrf", "dummy", "veth", "macvlan", "ipvlan", "gre", "ifb"];

fn of_netdev(file: &Foreign, sections: &[Section], draft: &mut Draft) {
    let netdev = sections.iter().find(|section| section.name == "NetDev");
    let named = netdev.and_then(|netdev| Some((netdev.get("Name")?, netdev.get("Kind")?)));
    let Some((name, kind)) = named else { return draft.leave(file.name(), NO_NAME) };
    if !KINDS.contains(&kind) {
        return draft.leave(format!("{} (kind {kind})", file.name()), KIND);
    }
    draft.set(name, "kind", kind);
    for section in sections {
        for entry in &section.entries {
            let value = entry.value.as_str();
            let set = match (section.name.as_str(), entry.name.as_str()) {
                ("NetDev", "Name" | "Kind") => continue,
                ("NetDev", "Description") => Some(("alias", json!(value))),
                ("NetDev", "MTUBytes") => whole(value).map(|mtu| ("mtu", mtu)),
                ("NetDev", "MACAddress") if value.contains(':') => Some(("mac", json!(value))),
                ("Peer", "Name") => Some(("peer", json!({ "name": value }))),
                ("VLAN", "Id") => whole(value).map(|id| ("id", id)),
                ("VLAN", "Protocol") => Some(("protocol", json!(value.to_ascii_lowercase()))),
                ("VRF", "Table") => whole(value).map(|table| ("table", table)),
                ("MACVLAN" | "IPVLAN", "Mode") => Some(("mode", json!(value.to_ascii_lowercase()))),
                ("VXLAN", word) => of_vxlan(word, value),
                ("Tunnel", word) => of_tunnel(word, value),
                ("Bond", word) => of_bond(word, value),
                ("Bridge", word) => of_bridge(word, value),
                _ => None,
            };
            match set {
                Some((field, value)) => draft.set(name, field, value),
                None => draft.leave(at(file, section, entry), UNKNOWN),
            }
        }
    }
}

type Field = Option<(&'static str, Value)>;

fn of_vxlan(word: &str, value: &str) -> Field {
    match word {
        "VNI" => whole(value).map(|id| ("id", id)),
        "Local" => Some(("local", json!(value))),
        "Remote" => Some(("remote", json!(value))),
        "Group" => Some(("group", json!(value))),
        "DestinationPort" => whole(value).map(|port| ("port", port)),
        "MacLearning" => yes(value).map(|learns| ("learning", learns)),
        "TTL" => whole(value).map(|ttl| ("ttl", ttl)),
        _ => None,
    }
}

fn of_tunnel(word: &str, value: &str) -> Field {
    match word {
        "Local" if value != "any" => Some(("local", json!(value))),
        "Remote" if value != "any" => Some(("remote", json!(value))),
        "TTL" => whole(value).map(|ttl| ("ttl", ttl)),
        "Key" => whole(value).map(|key| ("key", key)),
        _ => None,
    }
}

fn of_bond(word: &str, value: &str) -> Field {
    match word {
        "Mode" => Some(("mode", json!(value))),
        "MIIMonitorSec" => millis(value).map(|time| ("miimon", json!(time))),
        "UpDelaySec" => millis(value).map(|time| ("updelay", json!(time))),
        "DownDelaySec" => millis(value).map(|time| ("downdelay", json!(time))),
        "LACPTransmitRate" => Some(("lacp-rate", json!(value))),
        "TransmitHashPolicy" => Some(("xmit-hash-policy", json!(value))),
        "MinLinks" => whole(value).map(|links| ("min-links", links)),
        _ => None,
    }
}

fn of_bridge(word: &str, value: &str) -> Field {
    let time = |field| millis(value).map(|time| (field, json!(format!("{time}ms"))));
    match word {
        "STP" => yes(value).map(|value| ("stp", value)),
        "VLANFiltering" => yes(value).map(|value| ("vlan-filtering", value)),
        "MulticastSnooping" => yes(value).map(|value| ("mcast-snooping", value)),
        "DefaultPVID" if value == "none" => Some(("vlan-default-pvid", json!(0))),
        "DefaultPVID" => whole(value).map(|id| ("vlan-default-pvid", id)),
        "Priority" => whole(value).map(|priority| ("priority", priority)),
        "ForwardDelaySec" => time("forward-delay"),
        "HelloTimeSec" => time("hello-time"),
        "MaxAgeSec" => time("max-age"),
        "AgeingTimeSec" => time("ageing-time"),
        _ => None,
    }
}

fn whole(text: &str) -> Option<Value> {
    number(&json!(text)).map(Value::from)
}

fn yes(text: &str) -> Option<Value> {
    flag(&json!(text)).map(Value::Bool)
}

/// A time of systemd in milliseconds; a plain number is seconds.
fn millis(text: &str) -> Option<i64> {
    let units = [("ms", 1), ("msec", 1), ("s", 1000), ("sec", 1000), ("min", 60_000), ("", 1000)];
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = text.get(digits.len()..)?.trim();
    let (_, factor) = units.into_iter().find(|(name, _)| *name == unit)?;
    digits.parse::<i64>().ok()?.checked_mul(factor)
}

fn of_network(file: &Foreign, sections: &[Section], draft: &mut Draft) {
    let matched = sections.iter().find(|section| section.name == "Match");
    let is_plain = |name: &str| !name.contains(['*', '?', '[', '!']);
    let names: Vec<&str> =
        matched.and_then(|it| it.get("Name")).unwrap_or_default().split_whitespace().collect();
    let is_by_name = matched.is_some_and(|it| it.entries.iter().all(|entry| entry.name == "Name"));
    if names.is_empty() || !is_by_name || !names.iter().all(|name| is_plain(name)) {
        return draft.leave(file.name(), NO_NAME);
    }
    for name in names {
        draft.set(name, "up", true);
        of_link(name, file, sections, draft);
    }
}

fn of_link(name: &str, file: &Foreign, sections: &[Section], draft: &mut Draft) {
    let mut vlans = BridgeVlans::default();
    for section in sections {
        match section.name.as_str() {
            "Match" => {}
            "Address" => of_address(name, file, section, draft),
            "Route" => of_route(name, file, section, draft),
            "RoutingPolicyRule" => of_rule(file, section, draft),
            "BridgeVLAN" => vlans.add(file, section, draft),
            _ => {
                for entry in &section.entries {
                    let place = at(file, section, entry);
                    match section.name.as_str() {
                        "Network" => of_network_entry(name, entry, place, draft),
                        "Link" => of_link_entry(name, entry, place, draft),
                        "Bridge" => of_port_entry(name, entry, place, draft),
                        "DHCPv4" | "DHCPv6" | "DHCP" | "DHCPServer" => draft.leave(place, DHCP),
                        _ => draft.leave(place, UNKNOWN),
                    }
                }
            }
        }
    }
    if !vlans.0.is_empty() {
        draft.set(name, "vlans", vlans.declared());
    }
}

fn of_network_entry(name: &str, entry: &Entry, place: String, draft: &mut Draft) {
    let value = entry.value.as_str();
    match entry.name.as_str() {
        "Description" => draft.set(name, "alias", value),
        "Address" => draft.push(name, "addresses", json!(value)),
        "Gateway" if !value.starts_with('_') => draft.gateway(value, name, None, None),
        "Bridge" | "Bond" | "VRF" => draft.set(name, "master", value),
        "VLAN" | "VXLAN" | "MACVLAN" | "IPVLAN" => draft.set(value, "parent", name),
        "DHCP" | "DHCPServer" if flag(&json!(value)) == Some(false) => {}
        "DHCP" | "DHCPServer" => draft.leave(place, DHCP),
        "DNS" | "Domains" | "DNSSEC" | "DNSOverTLS" | "LLMNR" | "MulticastDNS" => {
            draft.leave(place, RESOLVER);
        }
        "IPv6AcceptRA" => match flag(&json!(value)) {
            Some(accepts) => {
                draft.set_in(name, "sysctl", "ipv6/accept_ra", json!(i64::from(accepts) * 2));
            }
            None => draft.leave(place, UNKNOWN),
        },
        "IPForward" | "IPv4Forwarding" | "IPv6Forwarding" => {
            let families: &[&str] = match (entry.name.as_str(), flag(&json!(value)), value) {
                (_, Some(false), _) => &[],
                ("IPForward", Some(true), _) => &["v4", "v6"],
                ("IPForward", _, "ipv4") | ("IPv4Forwarding", Some(true), _) => &["v4"],
                ("IPForward", _, "ipv6") | ("IPv6Forwarding", Some(true), _) => &["v6"],
                _ => return draft.leave(place, UNKNOWN),
            };
            for family in families {
                let key = match *family {
                    "v4" => "net.ipv4.ip_forward",
                    _ => "net.ipv6.conf.all.forwarding",
                };
                draft.sysctl(key, 1);
            }
        }
        _ => draft.leave(place, UNKNOWN),
    }
}

fn of_link_entry(name: &str, entry: &Entry, place: String, draft: &mut Draft) {
    let value = entry.value.as_str();
    match (entry.name.as_str(), whole(value)) {
        ("MTUBytes", Some(mtu)) => draft.set(name, "mtu", mtu),
        ("MACAddress", _) => draft.set(name, "mac", value),
        _ => draft.leave(place, UNKNOWN),
    }
}

fn of_port_entry(name: &str, entry: &Entry, place: String, draft: &mut Draft) {
    let value = entry.value.as_str();
    let option = match entry.name.as_str() {
        "UnicastFlood" => "flood",
        "MulticastFlood" => "mcast-flood",
        "NeighborSuppression" => "neigh-suppress",
        "Learning" => "learning",
        "HairPin" => "hairpin",
        "Isolated" => "isolated",
        "FastLeave" => "fast-leave",
        "Cost" => "cost",
        "Priority" => "priority",
        _ => return draft.leave(place, UNKNOWN),
    };
    let read = if matches!(option, "cost" | "priority") { whole(value) } else { yes(value) };
    match read {
        Some(read) => draft.set_in(name, "bridge-port", option, read),
        None => draft.leave(place, UNKNOWN),
    }
}

fn of_address(name: &str, file: &Foreign, section: &Section, draft: &mut Draft) {
    let Some(ip) = section.get("Address") else {
        return draft.leave(format!("{}:{}: [Address]", file.name(), section.line), UNKNOWN);
    };
    let mut made = Map::from_iter([("ip".to_owned(), json!(ip))]);
    for entry in &section.entries {
        let value = entry.value.as_str();
        match entry.name.as_str() {
            "Address" => {}
            "Peer" => {
                let peer = value.split('/').next().unwrap_or_default();
                made.insert("peer".to_owned(), json!(peer));
            }
            "Label" => _ = made.insert("label".to_owned(), json!(value)),
            "Broadcast" if value.contains('.') => {
                made.insert("broadcast".to_owned(), json!(value));
            }
            "Scope" => _ = made.insert("scope".to_owned(), json!(value)),
            "PreferredLifetime" if value == "0" => {
                made.insert("preferred-lifetime".to_owned(), json!("0s"));
            }
            "PreferredLifetime" if matches!(value, "forever" | "infinity") => {}
            "AddPrefixRoute" => match flag(&json!(value)) {
                Some(true) => {}
                Some(false) => _ = made.insert("noprefixroute".to_owned(), json!(true)),
                None => draft.leave(at(file, section, entry), UNKNOWN),
            },
            _ => draft.leave(at(file, section, entry), UNKNOWN),
        }
    }
    let is_plain = made.len() == 1;
    draft.push(name, "addresses", if is_plain { json!(ip) } else { Value::Object(made) });
}

fn of_route(name: &str, file: &Foreign, section: &Section, draft: &mut Draft) {
    let gateway = section.get("Gateway");
    let place = format!("{}:{}: [Route]", file.name(), section.line);
    if let Some(gateway) = gateway.filter(|gateway| gateway.starts_with('_')) {
        return draft.leave(format!("{place} by {gateway}"), DHCP);
    }
    let to = match (section.get("Destination"), gateway) {
        (Some("0.0.0.0/0" | "::/0") | None, Some(gateway)) => default_for(gateway).to_owned(),
        (Some(to), _) => to.to_owned(),
        (None, None) => return draft.leave(place, "this route has no destination"),
    };
    let kind = section.get("Type").filter(|kind| *kind != "unicast");
    let mut made = Map::from_iter([("to".to_owned(), json!(to))]);
    if kind.is_none_or(|kind| matches!(kind, "local" | "multicast")) {
        made.insert("dev".to_owned(), json!(name));
    }
    for entry in &section.entries {
        let value = entry.value.as_str();
        let field = match entry.name.as_str() {
            "Destination" => continue,
            "Type" if kind.is_none() => continue,
            "Gateway" => Some(("via", json!(value))),
            "Type" => Some(("type", json!(value))),
            "Metric" => whole(value).map(|metric| ("metric", metric)),
            "Table" => Some(("table", whole(value).unwrap_or_else(|| json!(value)))),
            "PreferredSource" => Some(("src", json!(value))),
            "GatewayOnLink" => yes(value).map(|onlink| ("onlink", onlink)),
            "MTUBytes" => whole(value).map(|mtu| ("mtu", mtu)),
            "Scope" => Some(("scope", json!(value))),
            _ => None,
        };
        match field {
            Some((field, value)) => _ = made.insert(field.to_owned(), value),
            None => draft.leave(at(file, section, entry), UNKNOWN),
        }
    }
    draft.route(made);
}

fn of_rule(file: &Foreign, section: &Section, draft: &mut Draft) {
    let mut made = Map::new();
    for entry in &section.entries {
        let value = entry.value.as_str();
        let field = match entry.name.as_str() {
            "From" => Some(("from", json!(value))),
            "To" => Some(("to", json!(value))),
            "Table" => Some(("table", whole(value).unwrap_or_else(|| json!(value)))),
            "Priority" => whole(value).map(|priority| ("priority", priority)),
            "FirewallMark" if !value.contains('/') => whole(value).map(|mark| ("fwmark", mark)),
            "IncomingInterface" => Some(("iif", json!(value))),
            "OutgoingInterface" => Some(("oif", json!(value))),
            "IPProtocol" => Some(("ipproto", json!(value))),
            "Family" if matches!(value, "ipv4" | "ipv6") => Some(("family", json!(value))),
            "SuppressPrefixLength" => whole(value).map(|it| ("suppress-prefixlength", it)),
            "Type" if value == "table" => continue,
            "Type" => Some(("type", json!(value))),
            _ => None,
        };
        let Some((field, value)) = field else {
            // Without one of its selectors it would be for more packets.
            let place = at(file, section, entry);
            return draft.leave(format!("{place}, and the rule with it"), UNKNOWN);
        };
        made.insert(field.to_owned(), value);
    }
    if !made.contains_key("type") {
        made.entry("table").or_insert_with(|| json!(254));
    }
    draft.rule(made);
}

/// The VLANs of a bridge or a port, as several sections say them together.
#[derive(Default)]
struct BridgeVlans(Vec<(u16, u16, bool, bool)>);

impl BridgeVlans {
    fn add(&mut self, file: &Foreign, section: &Section, draft: &mut Draft) {
        for entry in &section.entries {
            let range = match entry.value.split_once('-') {
                Some((first, last)) => first.parse().ok().zip(last.parse().ok()),
                None => entry.value.parse().ok().map(|id| (id, id)),
            };
            let (is_pvid, is_untagged) = match entry.name.as_str() {
                "VLAN" => (false, false),
                "PVID" => (true, false),
                "EgressUntagged" => (false, true),
                _ => {
                    draft.leave(at(file, section, entry), UNKNOWN);
                    continue;
                }
            };
            let Some((first, last)) = range else {
                draft.leave(at(file, section, entry), "these are no VLAN ids");
                continue;
            };
            let mut known = self.0.iter_mut();
            match known.find(|(one, other, ..)| (*one, *other) == (first, last)) {
                Some((.., pvid, untagged)) => {
                    *pvid |= is_pvid;
                    *untagged |= is_untagged;
                }
                None => self.0.push((first, last, is_pvid, is_untagged)),
            }
        }
    }

    fn declared(&self) -> Value {
        let item = |(first, last, is_pvid, is_untagged): &(u16, u16, bool, bool)| {
            let ids = if first == last { first.to_string() } else { format!("{first}-{last}") };
            let words = [(*is_pvid, " pvid"), (*is_untagged, " untagged")];
            let words = words.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word);
            json!(ids + &words.collect::<String>())
        };
        self.0.iter().map(item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_systemd_are_milliseconds() {
        let rows = [
            ("100ms", Some(100)),
            ("1s", Some(1000)),
            ("2", Some(2000)),
            ("1 min", Some(60_000)),
            ("soon", None),
            ("1h2m", None),
        ];
        for (text, expected) in rows {
            assert_eq!(millis(text), expected, "{text}");
        }
    }
}
