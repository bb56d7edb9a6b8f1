//! The foreign objects that the kernel deletes when IPv6 is turned off on a link.
//!
//! Quirk `disabling-takes-addresses` (Linux 6.18): writing 1 to `net/ipv6/conf/va/disable_ipv6` deletes all IPv6
//! addresses and routes of `va`, those of other owners too, and 0 does not bring them back; `all` does so on every link.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::Path;

use homeostat_core::{Owner, Taken};

use crate::key::Key;
use crate::model::Value;

/// Where the addresses of a namespace are listed, seen from the directory of sysctls.
const ADDRESSES: &str = "../thread-self/net/if_inet6";

/// The link whose IPv6 a knob can turn off; `all` for every one. What `default` says is for links to come.
fn link(key: &Key) -> Option<&str> {
    let Key::Sysctl(path) = key else { return None };
    let link = path.as_str().strip_prefix("net/ipv6/conf/")?.strip_suffix("/disable_ipv6")?;
    Some(link).filter(|link| *link != "default")
}

/// Whether this value turns IPv6 off.
pub(crate) fn turns_off(key: &Key, value: &Value) -> bool {
    link(key).is_some() && value.as_str() != "0"
}

/// The addresses that turning IPv6 off removes, by link. Link-local ones and those of router advertisements come back by
/// themselves. The list does not say whose they are: a document that turns IPv6 off declares none, so that they are
/// another owner's, or go before.
#[derive(Debug, Default)]
pub(crate) struct Ipv6Addresses(BTreeMap<String, Vec<Taken>>);

impl Ipv6Addresses {
    /// Those of the calling thread's namespace, if one of these knobs can turn them off.
    pub(crate) fn of<'k>(mut keys: impl Iterator<Item = &'k Key>, sysctls: &Path) -> Self {
        let mut addresses = Self::default();
        if keys.any(|key| link(key).is_some()) {
            // Without the list there is no IPv6.
            let listed = std::fs::read_to_string(sysctls.join(ADDRESSES)).unwrap_or_default();
            let listed = listed.lines().filter_map(Listed::read);
            for Listed { ip, len, link, .. } in listed.filter(|one| one.is_permanent) {
                let key = format!("address {ip}/{len} dev {link}");
                let taken = Taken::new(key, Owner::foreign("another owner"));
                addresses.0.entry(link.to_owned()).or_default().push(taken);
            }
        }
        addresses
    }

    pub(crate) fn lost_with(&self, key: &Key) -> Vec<Taken> {
        match link(key) {
            Some("all") => self.0.values().flatten().cloned().collect(),
            link => link.and_then(|link| self.0.get(link)).cloned().unwrap_or_default(),
        }
    }
}

struct Listed<'a> {
    ip: Ipv6Addr,
    len: u8,
    link: &'a str,
    /// Whether it was added for good, and not for the link or the host alone.
    is_permanent: bool,
}

impl<'a> Listed<'a> {
    /// Address, number of the link, prefix length, scope, flags, name of the link; numbers have hexadecimal digits.
    fn read(line: &'a str) -> Option<Self> {
        const PERMANENT: u8 = 0x80;
        let mut words = line.split_ascii_whitespace();
        let ip = Ipv6Addr::from_bits(u128::from_str_radix(words.next()?, 16).ok()?);
        let mut number = |skip| u8::from_str_radix(words.nth(skip)?, 16).ok();
        let (len, scope, flags) = (number(1)?, number(0)?, number(0)?);
        let is_permanent = scope == 0 && flags & PERMANENT != 0;
        Some(Listed { ip, len, link: words.next()?, is_permanent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permanent_addresses_of_the_link_are_lost() {
        let directory = tempfile::tempdir().unwrap();
        let sysctls = directory.path().join("sys");
        std::fs::create_dir_all(directory.path().join("thread-self/net")).unwrap();
        std::fs::create_dir(&sysctls).unwrap();
        let list = "fdf00000000000000000000000000001 02 40 00 80       fa\n\
                    fe80000000000000000000000000000f 02 40 20 80       fa\n\
                    fdf00000000000000000000000000002 02 40 00 00       fa\n\
                    fdf10000000000000000000000000001 03 80 00 80    v0.10\n\
                    00000000000000000000000000000001 01 80 10 80       lo\n";
        std::fs::write(directory.path().join("thread-self/net/if_inet6"), list).unwrap();
        for (knob, lost) in [
            ("net/ipv6/conf/fa/disable_ipv6", vec!["address fdf0::1/64 dev fa"]),
            ("net/ipv6/conf/v0.10/disable_ipv6", vec!["address fdf1::1/128 dev v0.10"]),
            (
                "net/ipv6/conf/all/disable_ipv6",
                vec!["address fdf0::1/64 dev fa", "address fdf1::1/128 dev v0.10"],
            ),
            ("net/ipv6/conf/default/disable_ipv6", vec![]),
            ("net/ipv6/conf/fa/accept_ra", vec![]),
        ] {
            let key = Key::sysctl(knob).unwrap();
            let taken = Ipv6Addresses::of([&key].into_iter(), &sysctls).lost_with(&key);
            let keys: Vec<&str> = taken.iter().map(|taken| taken.key.as_str()).collect();
            assert_eq!(keys, lost, "{knob}");
        }
    }
}
