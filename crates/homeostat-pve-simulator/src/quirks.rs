//! How Proxmox VE stores the value of an option. Written after its own sources, not after a client.

use std::collections::BTreeSet;

use crate::answer::Answer;
use crate::guest::{Guest, Kind};

/// The largest CPU weight of cgroup v2.
const MOST_CPU_UNITS: u64 = 10_000;

/// The value as it is stored; empty if the option is removed.
pub(crate) fn stored(guest: &Guest, name: &str, value: &str) -> Result<String, Answer> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match (guest.kind, stem) {
        (_, "description") => Ok(description(value)),
        (_, "tags") => tags(value),
        (_, "nameserver" | "searchdomain") => {
            let words = value.split([',', ';', ' ', '\t']).filter(|word| !word.is_empty());
            Ok(words.collect::<Vec<_>>().join(" "))
        }
        (_, "cpuunits") => number(name, value).map(|n| n.clamp(1, MOST_CPU_UNITS).to_string()),
        (_, "cores" | "swap" | "sockets") | (Kind::Lxc, "memory") => {
            number(name, value).map(|number| number.to_string())
        }
        (_, "onboot" | "protection" | "template" | "unprivileged") => boolean(name, value),
        (Kind::Lxc, "net") => container_net(name, value, guest),
        (Kind::Qemu, "net") => machine_net(name, value, guest),
        _ => Ok(value.to_owned()),
    }
}

/// Stored as comment lines of the file, so that it reads back with a line end. What is false in Perl is not
/// stored at all.
fn description(value: &str) -> String {
    if value.is_empty() || value == "0" {
        return String::new();
    }
    format!("{}\n", value.trim_end_matches('\n'))
}

fn tags(value: &str) -> Result<String, Answer> {
    let mut tags = BTreeSet::new();
    for tag in value.split([',', ';', ' ', '\n', '\t']).filter(|tag| !tag.is_empty()) {
        let tag = tag.to_lowercase();
        let is_first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_tag = tag.starts_with(is_first)
            && tag.chars().all(|c| is_first(c) || ['-', '+', '.'].contains(&c));
        if !is_tag {
            return Err(Answer::parameter("tags", "invalid format - invalid characters in tag"));
        }
        tags.insert(tag);
    }
    Ok(tags.into_iter().collect::<Vec<_>>().join(";"))
}

fn number(name: &str, value: &str) -> Result<u64, Answer> {
    let wrong = || Answer::parameter(name, "type check ('integer') failed");
    value.parse().map_err(|_| wrong())
}

fn boolean(name: &str, value: &str) -> Result<String, Answer> {
    match value {
        "1" | "yes" | "true" | "on" => Ok("1".to_owned()),
        "0" | "no" | "false" | "off" => Ok("0".to_owned()),
        _ => Err(Answer::parameter(name, "type check ('boolean') failed")),
    }
}

fn pairs(value: &str) -> Vec<(&str, &str)> {
    let parts = value.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect()
}

/// Reprinted: `name`, which is required, then the rest by name, with a generated address and the only type.
fn container_net(name: &str, value: &str, guest: &Guest) -> Result<String, Answer> {
    let mut parts = pairs(value);
    let Some(at) = parts.iter().position(|(key, _)| *key == "name") else {
        return Err(Answer::parameter(name, "invalid format - name: property is missing"));
    };
    let first = parts.remove(at);
    let mac = generated_mac(name, guest);
    if !parts.iter().any(|(key, _)| *key == "hwaddr") {
        parts.push(("hwaddr", &mac));
    }
    if !parts.iter().any(|(key, _)| *key == "type") {
        parts.push(("type", "veth"));
    }
    parts.sort_unstable();
    parts.insert(0, first);
    Ok(joined(&parts))
}

/// The models of network interfaces of virtual machines, as the published description lists them.
pub const MODELS: &str = "e1000 e1000-82540em e1000-82544gc e1000-82545em e1000e i82551 i82557b \
    i82559er ne2k_isa ne2k_pci pcnet rtl8139 virtio vmxnet3";

/// Reprinted: the model with its address, then the rest by name.
fn machine_net(name: &str, value: &str, guest: &Guest) -> Result<String, Answer> {
    let mut parts = pairs(value);
    let take = |parts: &mut Vec<(&str, &str)>, key: &str| {
        let at = parts.iter().position(|(known, _)| *known == key)?;
        Some(parts.remove(at).1.to_owned())
    };
    let by_name = take(&mut parts, "model");
    let is_model = |(key, _): &(&str, &str)| MODELS.split(' ').any(|model| model == *key);
    let short = parts.iter().position(is_model).map(|at| parts.remove(at));
    let given = take(&mut parts, "macaddr");
    let model = by_name.or(short.map(|(model, _)| model.to_owned()));
    let Some(model) = model else {
        return Err(Answer::parameter(name, "invalid format - model: property is missing"));
    };
    let short = short.map(|(_, mac)| mac.to_owned()).filter(|mac| !mac.is_empty());
    let mac = given.or(short).unwrap_or_else(|| generated_mac(name, guest));
    parts.sort_unstable();
    parts.insert(0, (&model, &mac));
    Ok(joined(&parts))
}

fn joined(parts: &[(&str, &str)]) -> String {
    parts.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// A generated MAC address, another one each time an interface is written without one.
fn generated_mac(name: &str, guest: &Guest) -> String {
    let text = format!("{name}{:?}{:?}", guest.config, guest.pending);
    let sum = text.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let [_, a, b, c] = sum.to_be_bytes();
    format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
}
