//! ifupdown and ifupdown2: stanzas of `/etc/network/interfaces`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::Foreign;
use super::draft::{COMMANDS, DHCP, Draft, RESOLVER, UNKNOWN, flag, number};
use super::ini::joined;
use crate::failure::helped;

/// `iface NAME inet static` with its options.
struct Stanza {
    name: String,
    family: String,
    method: String,
    place: String,
    options: Vec<(String, String, String)>,
}

impl Stanza {
    fn get(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter();
        options.find(|(option, ..)| option == name).map(|(_, value, _)| value.as_str())
    }

    /// The link that it is about: `eth0:1` is a label of `eth0`.
    fn link(&self) -> &str {
        self.name.split_once(':').map_or(&self.name, |(link, _)| link)
    }
}

/// Makes a document of all files together.
pub(super) fn import(files: &[Foreign]) -> Result<Draft> {
    let mut draft = Draft::default();
    let (mut stanzas, mut up) = (Vec::new(), BTreeSet::new());
    for file in files {
        parse(file, &mut stanzas, &mut up, &mut draft)?;
    }
    // Ports are named by their bridge or bond, and may come before or after it.
    let known: BTreeSet<String> =
        stanzas.iter().map(|stanza: &Stanza| stanza.link().to_owned()).collect();
    for stanza in &stanzas {
        of_stanza(stanza, &known, up.contains(&stanza.name), &mut draft);
    }
    Ok(draft)
}

/// Words that begin a stanza of their own.
const BEGINNINGS: [&str; 10] = [
    "iface",
    "auto",
    "allow-hotplug",
    "allow-auto",
    "source",
    "source-directory",
    "mapping",
    "no-auto-down",
    "no-scripts",
    "rename",
];

fn parse(
    file: &Foreign,
    stanzas: &mut Vec<Stanza>,
    up: &mut BTreeSet<String>,
    draft: &mut Draft,
) -> Result<()> {
    let mut is_open = false;
    for (line, text) in joined(&file.text) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let place = format!("{}:{line}", file.name());
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        if BEGINNINGS.contains(&word) {
            is_open = false;
        }
        match word {
            "auto" | "allow-auto" | "allow-hotplug" => {
                up.extend(rest.split_whitespace().map(str::to_owned));
            }
            "iface" => {
                let mut words = rest.split_whitespace().map(str::to_owned);
                let Some(name) = words.next() else {
                    return Err(helped(
                        format!("{place}:1: `iface` without a name"),
                        "a stanza begins with `iface NAME inet static`",
                    ));
                };
                let family = words.next().unwrap_or_else(|| "inet".to_owned());
                let method = words.next().unwrap_or_else(|| "manual".to_owned());
                // ifupdown2 needs neither of them.
                let options = Vec::new();
                stanzas.push(Stanza { name, family, method, place, options });
                is_open = true;
            }
            "source" | "source-directory" => {
                draft.leave(format!("{place}: {text}"), "name the other files, too");
            }
            "mapping" | "no-auto-down" | "no-scripts" | "rename" => {
                draft.leave(format!("{place}: {text}"), UNKNOWN);
            }
            _ => match stanzas.last_mut().filter(|_| is_open) {
                Some(stanza) => {
                    let word = word.replace('_', "-");
                    stanza.options.push((word, rest.to_owned(), format!("{place}: {text}")));
                }
                None => draft.leave(format!("{place}: {text}"), UNKNOWN),
            },
        }
    }
    Ok(())
}

fn of_stanza(stanza: &Stanza, known: &BTreeSet<String>, is_up: bool, draft: &mut Draft) {
    let link = stanza.link();
    if stanza.method == "loopback" && stanza.options.is_empty() {
        return;
    }
    if stanza.method == "dhcp" || stanza.method == "ppp" || stanza.method == "auto" {
        draft.leave(format!("{}: iface {} {}", stanza.place, stanza.name, stanza.method), DHCP);
    }
    draft.link(link);
    if is_up && link != "lo" {
        draft.set(link, "up", true);
    }
    of_kind(stanza, known, draft);
    let metric = stanza.get("metric").and_then(|metric| number(&json!(metric)));
    for (option, value, place) in &stanza.options {
        of_option(stanza, option, value, place, metric, draft);
    }
}

/// What is created is known by its options, or by its name.
fn of_kind(stanza: &Stanza, known: &BTreeSet<String>, draft: &mut Draft) {
    let link = stanza.link();
    let has = |name: &str| stanza.get(name).is_some();
    if has("bridge-ports") {
        draft.set(link, "kind", "bridge");
    } else if has("bond-slaves") || has("bond-mode") {
        draft.set(link, "kind", "bond");
    } else if has("vxlan-id") {
        draft.set(link, "kind", "vxlan");
    } else if has("vrf-table") {
        draft.set(link, "kind", "vrf");
    } else if let Some((parent, id)) = vlan(stanza) {
        draft.set(link, "kind", "vlan");
        draft.set(link, "id", id);
        draft.set(link, "parent", parent.as_str());
        if !known.contains(&parent) {
            draft.set(&parent, "up", true);
        }
    } else if stanza.get("link-type") == Some("dummy") {
        draft.set(link, "kind", "dummy");
    }
}

/// `eth0.100`, or `vlan100` with `vlan-raw-device`.
fn vlan(stanza: &Stanza) -> Option<(String, i64)> {
    let link = stanza.link();
    let raw = stanza.get("vlan-raw-device").map(str::to_owned);
    if let Some((parent, id)) = link.rsplit_once('.')
        && let Ok(id) = id.parse()
    {
        return Some((raw.unwrap_or_else(|| parent.to_owned()), id));
    }
    let id = stanza.get("vlan-id").or_else(|| link.strip_prefix("vlan"))?;
    Some((raw?, id.parse().ok()?))
}

fn of_option(
    stanza: &Stanza,
    option: &str,
    value: &str,
    place: &str,
    metric: Option<i64>,
    draft: &mut Draft,
) {
    let link = stanza.link();
    let mut set = |field: &str, value: Option<Value>| match value {
        Some(value) => draft.set(link, field, value),
        None => draft.leave(place, UNKNOWN),
    };
    let whole = || number(&json!(value)).map(Value::from);
    let yes = || flag(&json!(value)).map(Value::Bool);
    let seconds = || number(&json!(value)).map(|seconds| json!(format!("{seconds}s")));
    match option {
        "address" => of_address(stanza, value, place, draft),
        // With the address, and with the kind.
        "netmask" | "broadcast" | "pointopoint" | "scope" | "network" | "metric"
        | "vlan-raw-device" | "vlan-id" | "link-type" => {}
        "gateway" => draft.gateway(value, link, metric, None),
        "mtu" => set("mtu", whole()),
        "hwaddress" => {
            let mac = value.strip_prefix("ether").unwrap_or(value).trim();
            set("mac", mac.contains(':').then(|| json!(mac)));
        }
        "alias" | "description" => set("alias", Some(json!(value))),
        "bridge-ports" | "bond-slaves" | "slaves" => {
            for port in value.split_whitespace().filter(|port| *port != "none") {
                if port == "regex" || port == "glob" || port.contains(['*', '[']) {
                    draft.leave(place, "ports are named one by one");
                    return;
                }
                draft.set(port, "master", link);
                draft.set(port, "up", true);
            }
        }
        "bond-master" | "vrf" => set("master", Some(json!(value))),
        "vrf-table" => set("table", whole()),
        "bridge-stp" => set("stp", yes()),
        "bridge-fd" => set("forward-delay", seconds()),
        "bridge-hello" => set("hello-time", seconds()),
        "bridge-maxage" => set("max-age", seconds()),
        "bridge-ageing" => set("ageing-time", seconds()),
        "bridge-bridgeprio" => set("priority", whole()),
        "bridge-vlan-aware" => set("vlan-filtering", yes()),
        "bridge-mcsnoop" => set("mcast-snooping", yes()),
        "bridge-waitport" | "bridge-maxwait" => {
            draft.leave(place, "nothing waits for a port: what needs it is made when it is there");
        }
        "bridge-vids" | "bridge-pvid" | "bridge-access" => {
            draft.leave(place, "write `vlans` for the bridge and for each port (docs/bridges.md)");
        }
        "bond-mode" => set("mode", bond_mode(value).map(|mode| json!(mode))),
        "bond-miimon" => set("miimon", whole()),
        "bond-updelay" => set("updelay", whole()),
        "bond-downdelay" => set("downdelay", whole()),
        "bond-min-links" => set("min-links", whole()),
        "bond-primary" => set("primary", Some(json!(value))),
        "bond-xmit-hash-policy" => set("xmit-hash-policy", Some(json!(value))),
        "bond-lacp-rate" => {
            let rate = match value {
                "0" | "slow" => Some("slow"),
                "1" | "fast" => Some("fast"),
                _ => None,
            };
            set("lacp-rate", rate.map(|rate| json!(rate)));
        }
        "vxlan-id" => set("id", whole()),
        "vxlan-local-tunnelip" => set("local", Some(json!(value))),
        "vxlan-remoteip" => set("remote", Some(json!(value))),
        "vxlan-learning" => set("learning", yes()),
        "accept-ra" => match number(&json!(value)).or_else(|| flag(&json!(value)).map(i64::from)) {
            Some(accepts) => {
                draft.set_in(link, "sysctl", "ipv6/accept_ra", json!(accepts));
            }
            None => draft.leave(place, UNKNOWN),
        },
        "up" | "down" | "pre-up" | "post-up" | "pre-down" | "post-down" => {
            draft.leave(place, COMMANDS);
        }
        _ if option.starts_with("dns-") => draft.leave(place, RESOLVER),
        _ => draft.leave(place, UNKNOWN),
    }
}

/// The address with what other options say of it. In ifupdown one stanza has one, in ifupdown2 several.
fn of_address(stanza: &Stanza, value: &str, place: &str, draft: &mut Draft) {
    let length = match (value.split_once('/'), stanza.get("netmask")) {
        (Some((_, length)), _) => length.parse().ok(),
        (None, Some(mask)) => mask.parse().ok().or_else(|| mask_length(mask)),
        (None, None) if stanza.family == "inet6" => Some(128),
        (None, None) => Some(32),
    };
    let Some(length): Option<u8> = length else { return draft.leave(place, "this is no netmask") };
    let ip = value.split('/').next().unwrap_or_default();
    let ip = format!("{ip}/{length}");
    let mut made = Map::from_iter([("ip".to_owned(), json!(ip))]);
    if stanza.name != stanza.link() {
        made.insert("label".to_owned(), json!(stanza.name));
    }
    if let Some(peer) = stanza.get("pointopoint") {
        made.insert("peer".to_owned(), json!(peer));
    }
    if let Some(broadcast) = stanza.get("broadcast").filter(|text| text.contains('.')) {
        made.insert("broadcast".to_owned(), json!(broadcast));
    }
    let is_plain = made.len() == 1;
    draft.push(stanza.link(), "addresses", if is_plain { json!(ip) } else { Value::Object(made) });
}

/// `255.255.255.0` is 24.
fn mask_length(mask: &str) -> Option<u8> {
    let bits = mask.parse::<Ipv4Addr>().ok()?.to_bits();
    let ones = bits.leading_ones();
    (bits.count_ones() == ones).then(|| u8::try_from(ones).ok())?
}

/// By its name, or by its number in the kernel.
fn bond_mode(value: &str) -> Option<&str> {
    const MODES: [&str; 7] = [
        "balance-rr",
        "active-backup",
        "balance-xor",
        "broadcast",
        "802.3ad",
        "balance-tlb",
        "balance-alb",
    ];
    match value.parse::<usize>() {
        Ok(number) => MODES.get(number).copied(),
        Err(_) => MODES.contains(&value).then_some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netmasks_have_their_ones_in_front() {
        let rows = [
            ("255.255.255.0", Some(24)),
            ("0.0.0.0", Some(0)),
            ("255.255.255.255", Some(32)),
            ("255.0.255.0", None),
            ("24", None),
        ];
        for (mask, expected) in rows {
            assert_eq!(mask_length(mask), expected, "{mask}");
        }
    }
}
