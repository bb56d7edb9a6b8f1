//! What `show` prints: the knobs that people set most, and all of them.

use std::fs;
use std::path::Path;

use homeostat_core::Failure;

use crate::key::Key;
use crate::model::{Value, is_command};
use crate::observe::{Look, look};
use crate::source::Knobs;

/// Network knobs that are set on many machines, by directory. Two names of one value are listed once.
const COMMON: [(&str, &str); 8] = [
    (
        "net/core",
        "default_qdisc netdev_max_backlog rmem_default rmem_max somaxconn \
         wmem_default wmem_max",
    ),
    (
        "net/ipv4",
        "icmp_echo_ignore_broadcasts ip_forward ip_local_port_range \
         ip_local_reserved_ports ip_nonlocal_bind ip_unprivileged_port_start \
         ping_group_range tcp_congestion_control tcp_fin_timeout tcp_keepalive_time \
         tcp_max_syn_backlog tcp_mtu_probing tcp_rmem tcp_syncookies tcp_tw_reuse \
         tcp_wmem",
    ),
    (
        "net/ipv4/conf/all",
        "accept_redirects accept_source_route arp_announce arp_ignore log_martians \
         rp_filter secure_redirects send_redirects",
    ),
    ("net/ipv4/conf/default", "accept_redirects forwarding rp_filter"),
    ("net/ipv4/neigh/default", "gc_thresh1 gc_thresh2 gc_thresh3"),
    ("net/ipv6/conf/all", "accept_ra disable_ipv6 forwarding"),
    ("net/ipv6/conf/default", "accept_ra disable_ipv6 forwarding"),
    ("net/netfilter", "nf_conntrack_max"),
];

fn common_keys() -> impl Iterator<Item = Key> {
    let paths = COMMON.iter().flat_map(|(directory, names)| {
        names.split(' ').map(move |name| format!("{directory}/{name}"))
    });
    paths.filter_map(|path| Key::sysctl(&path).ok())
}

/// The values of well-known network knobs.
pub fn common(knobs: &Knobs) -> Result<Vec<(Key, Value)>, Failure> {
    values(knobs, common_keys())
}

/// The values of all network knobs.
pub fn all(knobs: &Knobs) -> Result<Vec<(Key, Value)>, Failure> {
    let mut paths = Vec::new();
    knobs.run(|| walk(&knobs.roots.sysctl, "net", &mut paths))?;
    values(knobs, paths.iter().filter_map(|path| Key::sysctl(path).ok()))
}

/// The values of these knobs, as far as they exist, can be read and written, and hold something.
pub fn values(
    knobs: &Knobs,
    keys: impl Iterator<Item = Key> + Send,
) -> Result<Vec<(Key, Value)>, Failure> {
    knobs.run(|| keys.filter_map(|key| shown(knobs, key)).collect())
}

fn shown(knobs: &Knobs, key: Key) -> Option<(Key, Value)> {
    match look(knobs, &key) {
        Look::Holds { value, writable: true } if !value.is_unset() && !is_command(&key) => {
            Some((key, value))
        }
        _ => None,
    }
}

/// Gathers the files below a directory. What cannot be listed (a link that just went) is left out.
fn walk(root: &Path, below: &str, paths: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(root.join(below)) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{below}/{name}");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(root, &path, paths),
            Ok(kind) if kind.is_file() => paths.push(path),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_knobs_are_sorted_network_knobs() {
        for (directory, names) in COMMON {
            assert!(names.split(' ').is_sorted(), "{directory}");
        }
        let keys: Vec<_> = common_keys().collect();
        assert_eq!(keys.len(), 44);
        for key in keys {
            assert!(!key.is_host_wide(), "{key}");
        }
    }
}
