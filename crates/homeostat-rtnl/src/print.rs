//! A cheap digest of a key, stable across versions of the program.

use std::net::IpAddr;

use crate::key::Key;

/// The FNV-1a digest of the fields of a key.
pub(crate) fn of_key(key: &Key) -> u64 {
    let mut print = Print(0xcbf2_9ce4_8422_2325);
    match key {
        Key::Address(key) => {
            print.bytes(&[0, key.prefix_len()]).bytes(key.link().bytes()).ip(key.ip());
            if let Some(peer) = key.peer() {
                print.ip(peer);
            }
        }
        Key::Route(key) => {
            print.bytes(&[1, key.dst().prefix_len(), key.tos().0]).ip(key.dst().addr());
            print.bytes(&key.table().0.to_le_bytes()).bytes(&key.metric().0.to_le_bytes());
        }
        // The others are few.
        key => _ = print.bytes(&[2]).bytes(key.to_string().as_bytes()),
    }
    print.0
}

struct Print(u64);

impl Print {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self
    }

    fn ip(&mut self, ip: IpAddr) -> &mut Self {
        match ip {
            IpAddr::V4(ip) => self.bytes(&ip.octets()),
            IpAddr::V6(ip) => self.bytes(&ip.octets()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_of_a_key_counts() {
        let texts = [
            "address 10.0.0.1/24 dev eth0",
            "address 10.0.0.1/24 dev eth1",
            "address 10.0.0.1/25 dev eth0",
            "address 10.0.0.2/24 dev eth0",
            "address 10.0.0.1 peer 10.0.0.2/24 dev eth0",
            "route 10.0.0.0/24",
            "route 10.0.0.0/25",
            "route 10.0.0.0/24 table 7",
            "route 10.0.0.0/24 metric 7",
            "route 10.0.0.0/24 tos 8",
            "route ::/0",
            "nexthop 10",
            "rule priority 10",
            "rule inet6 priority 10",
            "neighbour 10.0.0.9 dev br0",
            "neighbour 10.0.0.9 dev br0 proxy",
            "link br0",
            "link br1",
            "link br0 mtu",
            "link br0 up",
        ];
        let prints: BTreeSet<u64> =
            texts.iter().map(|text| of_key(&text.parse().unwrap())).collect();
        assert_eq!(prints.len(), texts.len());
        assert_eq!(of_key(&"route ::/0".parse().unwrap()), of_key(&"route ::/0".parse().unwrap()));
    }
}
