//! What `show` prints: the knobs that people set most, and all of them.

use std::fs;
use std::path::Path;

use homeostat_core::Failure;

use crate::key::Key;
use crate::model::{Value, is_command};
use crate::observe::Look;
use crate::source::Knobs;

/// Network knobs that are set on many machines. Two names of one value are listed once.
const COMMON: [&str; 44] = [
    "net/core/default_qdisc",
    "net/core/netdev_max_backlog",
    "net/core/rmem_default",
    "net/core/rmem_max",
    "net/core/somaxconn",
    "net/core/wmem_default",
    "net/core/wmem_max",
    "net/ipv4/conf/all/accept_redirects",
    "net/ipv4/conf/all/accept_source_route",
    "net/ipv4/conf/all/arp_announce",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/log_martians",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/all/secure_redirects",
    "net/ipv4/conf/all/send_redirects",
    "net/ipv4/conf/default/accept_redirects",
    "net/ipv4/conf/default/forwarding",
    "net/ipv4/conf/default/rp_filter",
    "net/ipv4/icmp_echo_ignore_broadcasts",
    "net/ipv4/ip_forward",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/ip_local_reserved_ports",
    "net/ipv4/ip_nonlocal_bind",
    "net/ipv4/ip_unprivileged_port_start",
    "net/ipv4/neigh/default/gc_thresh1",
    "net/ipv4/neigh/default/gc_thresh2",
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv4/ping_group_range",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_fin_timeout",
    "net/ipv4/tcp_keepalive_time",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/tcp_mtu_probing",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_syncookies",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_wmem",
    "net/ipv6/conf/all/accept_ra",
    "net/ipv6/conf/all/disable_ipv6",
    "net/ipv6/conf/all/forwarding",
    "net/ipv6/conf/default/accept_ra",
    "net/ipv6/conf/default/disable_ipv6",
    "net/ipv6/conf/default/forwarding",
    "net/netfilter/nf_conntrack_max",
];

impl Knobs {
    /// The values of well-known network knobs: those that exist, can be read and written, and hold
    /// something.
    pub fn common(&self) -> Result<Vec<(Key, Value)>, Failure> {
        self.place.run(|| {
            let keys = COMMON.iter().filter_map(|path| Key::sysctl(path).ok());
            keys.filter_map(|key| self.shown(key)).collect()
        })
    }

    /// The values of all network knobs that can be read and written, and hold something.
    pub fn all(&self) -> Result<Vec<(Key, Value)>, Failure> {
        self.place.run(|| {
            let mut paths = Vec::new();
            walk(&self.roots.sysctl, "net", &mut paths);
            paths.sort();
            let keys = paths.iter().filter_map(|path| Key::sysctl(path).ok());
            keys.filter_map(|key| self.shown(key)).collect()
        })
    }

    /// The values of these knobs, as far as they are there and hold something.
    pub fn values(
        &self,
        keys: impl Iterator<Item = Key> + Send,
    ) -> Result<Vec<(Key, Value)>, Failure> {
        self.place.run(|| keys.filter_map(|key| self.shown(key)).collect())
    }

    fn shown(&self, key: Key) -> Option<(Key, Value)> {
        match self.look(&key) {
            Look::Holds { value, writable: true } if !value.is_unset() && !is_command(&key) => {
                Some((key, value))
            }
            _ => None,
        }
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
        assert!(COMMON.is_sorted());
        for path in COMMON {
            assert!(!Key::sysctl(path).unwrap().is_host_wide(), "{path}");
        }
    }
}
