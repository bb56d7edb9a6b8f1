//! Which knobs the kernel ties together: in which order they are written, and which declared values fight.
//!
//! Pure. Quirk `coupled-keys` (Linux 6.18): `echo 1 > /proc/sys/net/ipv4/ip_forward` rewrites every
//! `conf/*/forwarding` and clears `conf/all/accept_redirects`; nothing announces it.

use crate::key::{Key, SysctlPath};
use crate::model::{DesiredState, Value};

/// The place of a knob in the order of writes: general ones first, since they rewrite the others.
pub(crate) fn phase(key: &Key) -> u8 {
    let Key::Sysctl(path) = key else { return REST };
    match path.link_and_name() {
        _ if is_forwarding(path) => 0,
        Some(("default", _)) => 1,
        Some(("all", _)) => 2,
        Some(_) => 4,
        None => REST,
    }
}

const REST: u8 = 3;

/// Whether the knob may rewrite others at all; most do not, and a plan has to look no further.
pub(crate) fn is_general(key: &Key) -> bool {
    let Key::Sysctl(path) = key else { return false };
    let name = path.name();
    phase(key) < REST || name == "stable_secret" || is_time(name) || partners(path).next().is_some()
}

fn is_time(name: &str) -> bool {
    let name = name.strip_suffix("_ms").unwrap_or(name);
    UNITS.iter().any(|(time, _)| *time == name)
}

/// Whether writing `general` changes what `other` holds.
pub(crate) fn rewrites(general: &Key, other: &Key) -> bool {
    let (Key::Sysctl(general), Key::Sysctl(other)) = (general, other) else { return false };
    if general == other {
        return false;
    }
    partners(general).any(|partner| partner == other.as_str())
        || is_same_time(general, other)
        || spreads(general, other)
        || sets_mode(general, other)
}

/// The declared knobs that undo each other, each with the other one.
pub(crate) fn fights(desired: &DesiredState) -> Vec<(Key, Key)> {
    let mut fights = Vec::new();
    for (key, wanted) in desired.iter() {
        let Key::Sysctl(path) = key else { continue };
        for twin in partners(path) {
            let Ok(twin) = Key::sysctl(twin) else { continue };
            if let Some(other) = desired.wanted(&twin)
                && undo_each_other(path, &wanted.value, &other.value)
            {
                fights.push((key.clone(), twin));
            }
        }
        if let Some(twin) = other_unit(desired, path, &wanted.value) {
            fights.push((key.clone(), twin.clone()));
            fights.push((twin, key.clone()));
        }
    }
    fights
}

/// An IPv4 neighbour's times have a file in ticks or seconds and one in milliseconds. The ticks of
/// IPv6 are those of the kernel, whose length is not known here.
const UNITS: [(&str, u64); 2] = [("retrans_time", 10), ("base_reachable_time", 1000)];

/// The same time in milliseconds, if it is declared too and is not the same.
fn other_unit(desired: &DesiredState, path: &SysctlPath, value: &Value) -> Option<Key> {
    let is_time = |(name, _): &&(&str, u64)| *name == path.name() && path.family() == Some("ipv4");
    let (_, unit) = UNITS.iter().find(is_time)?;
    let twin = Key::sysctl(&format!("{}_ms", path.as_str())).ok()?;
    let number = |value: &Value| value.as_str().parse::<u64>().ok();
    let milliseconds = number(&desired.wanted(&twin)?.value)?;
    (number(value)?.checked_mul(*unit) != Some(milliseconds)).then_some(twin)
}

/// Two names of one value.
const ALIASES: [(&str, &str); 2] = [
    ("net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"),
    ("net/nf_conntrack_max", "net/netfilter/nf_conntrack_max"),
];

/// Two ways to say one thing; setting one clears the other.
const EXCLUSIVE: [(&str, &str); 3] = [
    ("vm/dirty_bytes", "vm/dirty_ratio"),
    ("vm/dirty_background_bytes", "vm/dirty_background_ratio"),
    ("vm/overcommit_kbytes", "vm/overcommit_ratio"),
];

/// What IPv6 writes through to every link, and to those to come, when it is set for all.
const SPREAD_BY_IPV6: [&str; 3] = ["disable_ipv6", "addr_gen_mode", "ignore_routes_with_linkdown"];

pub(crate) fn partners(path: &SysctlPath) -> impl Iterator<Item = &'static str> {
    let path = path.as_str();
    ALIASES.into_iter().chain(EXCLUSIVE).filter_map(move |(one, other)| match path {
        _ if path == one => Some(other),
        _ if path == other => Some(one),
        _ => None,
    })
}

fn undo_each_other(path: &SysctlPath, one: &Value, other: &Value) -> bool {
    let is_exclusive = EXCLUSIVE.iter().any(|(a, b)| [*a, *b].contains(&path.as_str()));
    if is_exclusive { one.as_str() != "0" && other.as_str() != "0" } else { one != other }
}

fn is_same_time(one: &SysctlPath, other: &SysctlPath) -> bool {
    let (one, other) = (one.as_str(), other.as_str());
    one.strip_suffix("_ms") == Some(other) || other.strip_suffix("_ms") == Some(one)
}

/// The knobs that reach every link when they are written for all.
fn spreads(general: &SysctlPath, other: &SysctlPath) -> bool {
    if general.family() != other.family() {
        return false;
    }
    let Some((other_link, knob)) = other.link_and_name() else { return false };
    if is_forwarding(general) {
        let redirects = (other_link, knob) == ("all", "accept_redirects");
        return knob == "forwarding" || redirects && other.family() == Some("ipv4");
    }
    match (general.link_and_name(), general.family()) {
        // Quirk `default-propagates` (Linux 6.18): `echo 1 > conf/default/rp_filter` also reaches the
        // links whose own rp_filter was never set; IPv6 has no such rule.
        (Some(("default", same)), Some("ipv4")) => same == knob && other_link != "all",
        (Some(("all", same)), Some("ipv6")) => same == knob && SPREAD_BY_IPV6.contains(&same),
        _ => false,
    }
}

/// A link that gets a secret also gets another way to make addresses.
fn sets_mode(general: &SysctlPath, other: &SysctlPath) -> bool {
    match (general.link_and_name(), other.link_and_name()) {
        (Some((link, "stable_secret")), Some((other_link, "addr_gen_mode"))) => {
            [general, other].iter().all(|path| path.family() == Some("ipv6"))
                && (link == other_link || link == "default")
        }
        _ => false,
    }
}

fn is_forwarding(path: &SysctlPath) -> bool {
    path.as_str() == "net/ipv4/ip_forward" || path.link_and_name() == Some(("all", "forwarding"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::sysctl(text).unwrap()
    }

    #[test]
    fn general_knobs_are_written_before_special_ones() {
        let mut keys: Vec<Key> = [
            "net/ipv4/conf/eth0/forwarding",
            "net/ipv4/tcp_rmem",
            "net/ipv4/conf/all/rp_filter",
            "net/ipv4/conf/default/rp_filter",
            "net/ipv6/conf/all/forwarding",
            "net/ipv4/ip_forward",
            "vm/swappiness",
        ]
        .map(key)
        .to_vec();
        keys.sort_by_key(phase);
        let order: Vec<String> = keys.iter().map(Key::path).collect();
        assert_eq!(
            order,
            [
                "net/ipv6/conf/all/forwarding",
                "net/ipv4/ip_forward",
                "net/ipv4/conf/default/rp_filter",
                "net/ipv4/conf/all/rp_filter",
                "net/ipv4/tcp_rmem",
                "vm/swappiness",
                "net/ipv4/conf/eth0/forwarding",
            ]
        );
    }

    #[test]
    fn a_general_knob_rewrites_the_special_ones_of_its_family() {
        for (general, other, expected) in [
            ("net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding", true),
            ("net/ipv4/ip_forward", "net/ipv4/conf/eth0/forwarding", true),
            ("net/ipv4/ip_forward", "net/ipv4/conf/default/forwarding", true),
            ("net/ipv4/ip_forward", "net/ipv4/conf/all/accept_redirects", true),
            ("net/ipv4/ip_forward", "net/ipv4/conf/eth0/accept_redirects", false),
            ("net/ipv4/ip_forward", "net/ipv6/conf/eth0/forwarding", false),
            ("net/ipv4/conf/eth0/forwarding", "net/ipv4/ip_forward", false),
            ("net/ipv6/conf/all/forwarding", "net/ipv6/conf/eth0/forwarding", true),
            ("net/ipv6/conf/all/forwarding", "net/ipv6/conf/all/accept_redirects", false),
            ("net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/lo/disable_ipv6", true),
            ("net/ipv6/conf/all/accept_ra", "net/ipv6/conf/lo/accept_ra", false),
            ("net/ipv4/conf/default/rp_filter", "net/ipv4/conf/lo/rp_filter", true),
            ("net/ipv4/conf/default/rp_filter", "net/ipv4/conf/all/rp_filter", false),
            ("net/ipv6/conf/default/accept_ra", "net/ipv6/conf/lo/accept_ra", false),
            ("net/ipv4/conf/all/rp_filter", "net/ipv4/conf/lo/rp_filter", false),
            ("net/ipv4/neigh/lo/retrans_time_ms", "net/ipv4/neigh/lo/retrans_time", true),
            ("net/ipv4/neigh/lo/retrans_time_ms", "net/ipv4/neigh/eth0/retrans_time", false),
            ("net/ipv6/conf/lo/stable_secret", "net/ipv6/conf/lo/addr_gen_mode", true),
            ("vm/dirty_bytes", "vm/dirty_ratio", true),
            ("vm/swappiness", "vm/dirty_ratio", false),
        ] {
            assert_eq!(rewrites(&key(general), &key(other)), expected, "{general} -> {other}");
        }
        let limit = Key::cgroup("a", "memory.max").unwrap();
        assert!(!rewrites(&key("net/ipv4/ip_forward"), &limit));
    }

    #[test]
    fn two_names_of_one_value_fight_only_if_they_differ() {
        let fights_of = |pairs: &[(&str, &str)]| {
            let desired = pairs.iter().fold(DesiredState::builder(), |desired, (key, value)| {
                desired.sysctl(key, value).unwrap()
            });
            fights(&desired.build().unwrap()).len()
        };
        let (forward, all) = ("net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding");
        assert_eq!(fights_of(&[(forward, "1"), (all, "0")]), 2, "each names the other");
        assert_eq!(fights_of(&[(forward, "1"), (all, "0x1")]), 0);
        assert_eq!(fights_of(&[(forward, "1"), ("net.ipv4.conf.lo.forwarding", "0")]), 0);
        assert_eq!(fights_of(&[("vm.dirty_bytes", "4096"), ("vm.dirty_ratio", "10")]), 2);
        assert_eq!(fights_of(&[("vm.dirty_bytes", "4096"), ("vm.dirty_ratio", "0")]), 0);
        let (ticks, ms) = ("net.ipv4.neigh.lo.retrans_time", "net.ipv4.neigh.lo.retrans_time_ms");
        assert_eq!(fights_of(&[(ticks, "100"), (ms, "1000")]), 0);
        assert_eq!(fights_of(&[(ticks, "100"), (ms, "2000")]), 2);
    }
}
