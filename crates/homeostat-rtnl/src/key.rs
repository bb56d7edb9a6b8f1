//! Identity as the kernel sees it: what two objects of a kind cannot share. Also the text of a key, and a cheap
//! fingerprint of it that is stable across versions of the program.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::address::AddressKey;
use crate::fdb::FdbKey;
use crate::link::LinkName;
use crate::link::model::Field;
use crate::link::sysctls::SysctlSet;
use crate::neighbour::NeighbourKey;
use crate::nexthop::NexthopId;
use crate::number::{Metric, ParseError, Tos};
use crate::route::RouteKey;
use crate::rule::RuleKey;

/// The identity of one managed object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Key {
    /// An address of a link: `address 192.0.2.1/24 dev eth0`.
    Address(AddressKey),
    /// A route: `route 192.0.2.0/24 table 100 metric 20`.
    Route(RouteKey),
    /// A nexthop: `nexthop 10`.
    Nexthop(NexthopId),
    /// A rule: `rule priority 1000 from 10.0.0.0/8`. Boxed, so that the key of a route stays small.
    Rule(Box<RuleKey>),
    /// A neighbour: `neighbour 10.0.0.9 dev br0`.
    Neighbour(NeighbourKey),
    /// A static entry of a forwarding database: `fdb 02:00:00:00:00:09 dev eth1 vlan 10`. Boxed as a rule is.
    Fdb(Box<FdbKey>),
    /// A link that is made: `link br0`.
    Link(LinkName),
    /// A field of a link that is only configured: `link eth0 mtu`.
    LinkField(LinkName, Field),
    /// What the kernel forgets of a link, for undo lists only: `link eth0 sysctls`.
    LinkSysctls(LinkName, SysctlSet),
    /// In which order a link has its addresses, for undo lists only: `link eth0 addresses`.
    AddressOrder(LinkName),
    /// Which numbers the ports of a bridge have, for undo lists only: `link br0 ports`.
    Ports(LinkName),
}

const ADDRESSES: &str = "addresses";
const PORTS: &str = "ports";

impl Key {
    /// Whether it is about a link itself, not about what is on it.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self, Key::Link(_) | Key::LinkField(..))
    }

    /// The link that has to be known for it: itself, or that of an address.
    pub(crate) fn link(&self) -> Option<LinkName> {
        match self {
            Key::Link(name)
            | Key::LinkField(name, _)
            | Key::LinkSysctls(name, _)
            | Key::AddressOrder(name)
            | Key::Ports(name) => Some(*name),
            _ => self.address().map(|key| key.link),
        }
    }

    /// Whether it is an address, a neighbour or a forwarding entry on a link.
    pub(crate) fn is_on(&self, link: LinkName) -> bool {
        match self {
            Key::Address(key) => key.link == link,
            Key::Neighbour(key) => key.link == link,
            Key::Fdb(key) => key.link == link,
            _ => false,
        }
    }

    pub(crate) fn address(&self) -> Option<AddressKey> {
        match self {
            Key::Address(key) => Some(*key),
            _ => None,
        }
    }
}

impl From<FdbKey> for Key {
    fn from(key: FdbKey) -> Self {
        Key::Fdb(Box::new(key))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Address(key) => key.fmt(f),
            Key::Route(key) => key.fmt(f),
            Key::Nexthop(id) => write!(f, "nexthop {id}"),
            Key::Rule(key) => key.fmt(f),
            Key::Neighbour(key) => key.fmt(f),
            Key::Fdb(key) => key.fmt(f),
            Key::Link(name) => write!(f, "link {name}"),
            Key::LinkField(name, field) => write!(f, "link {name} {field}"),
            Key::LinkSysctls(name, set) => write!(f, "link {name} {}", set.word()),
            Key::AddressOrder(name) => write!(f, "link {name} {ADDRESSES}"),
            Key::Ports(name) => write!(f, "link {name} {PORTS}"),
        }
    }
}

impl FromStr for Key {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let key = match words.as_slice() {
            ["address", ip, "peer", prefix, "dev", link] => address(Some(ip), prefix, link),
            ["address", prefix, "dev", link] => address(None, prefix, link),
            ["route", dst, options @ ..] | [dst @ "default", options @ ..] => {
                route(dst, options).map(Key::Route)
            }
            ["nexthop", id] => id.parse().ok().map(Key::Nexthop),
            ["rule", options @ ..] => RuleKey::read(options).map(|key| Key::Rule(Box::new(key))),
            ["neighbour", options @ ..] => NeighbourKey::read(options).map(Key::Neighbour),
            ["fdb", options @ ..] => FdbKey::read(options).map(Key::from),
            ["link", name] => name.parse().ok().map(Key::Link),
            ["link", name, part] => name.parse().ok().and_then(|name| part_of_link(name, part)),
            _ => None,
        };
        let is = "no key such as `address 192.0.2.1/24 dev eth0` or `route 192.0.2.0/24 table 100`";
        ParseError::unless(key, text, is)
    }
}

fn part_of_link(name: LinkName, part: &str) -> Option<Key> {
    match part {
        ADDRESSES => return Some(Key::AddressOrder(name)),
        PORTS => return Some(Key::Ports(name)),
        _ => {}
    }
    let set = [SysctlSet::All, SysctlSet::Ipv6].into_iter().find(|set| set.word() == part);
    let set = set.map(|set| Key::LinkSysctls(name, set));
    set.or_else(|| part.parse().ok().map(|field| Key::LinkField(name, field)))
}

/// The prefix is that of the peer, if `ip` is another address.
fn address(ip: Option<&str>, prefix: &str, link: &str) -> Option<Key> {
    let (peer, len) = prefix.split_once('/')?;
    let (ip, link) = (ip.unwrap_or(peer).parse().ok()?, link.parse().ok()?);
    let key = AddressKey::new(link, ip, len.parse().ok()?)?;
    key.with_peer(peer.parse().ok()?).map(Key::Address)
}

fn route(dst: &str, options: &[&str]) -> Option<RouteKey> {
    // The word that documents have for it.
    let dst = if dst == "default" { "0.0.0.0/0" } else { dst };
    let mut key = RouteKey::new(dst.parse().ok()?);
    for option in options.chunks(2) {
        key = match option {
            ["table", table] => key.in_table(table.parse().ok()?),
            ["metric", metric] => key.with_metric(Metric(metric.parse().ok()?)),
            ["tos", tos] => key.with_tos(Tos(tos.parse().ok()?)),
            _ => return None,
        };
    }
    Some(key)
}

/// The FNV-1a digest of the fields of a key.
pub(crate) fn fingerprint(key: &Key) -> u64 {
    let mut print = Print(0xcbf2_9ce4_8422_2325);
    match key {
        Key::Address(key) => {
            print.bytes(&[0, key.prefix_len]).bytes(key.link.bytes()).ip(key.ip);
            if let Some(peer) = key.peer {
                print.ip(peer);
            }
        }
        Key::Route(key) => {
            print.bytes(&[1, key.dst.prefix_len(), key.tos.0]).ip(key.dst.addr());
            print.bytes(&key.table.0.to_le_bytes()).bytes(&key.metric.0.to_le_bytes());
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
mod key_tests {
    use super::*;

    #[test]
    fn a_key_reads_back_from_its_own_text() {
        for (text, shown) in [
            ("address 10.0.0.1/24 dev eth0", "address 10.0.0.1/24 dev eth0"),
            (
                "address 10.0.0.1 peer 10.0.0.2/32 dev eth0",
                "address 10.0.0.1 peer 10.0.0.2/32 dev eth0",
            ),
            ("address 10.0.0.1 peer 10.0.0.1/32 dev eth0", "address 10.0.0.1/32 dev eth0"),
            ("address 2001:DB8::1/64 dev a.b", "address 2001:db8::1/64 dev a.b"),
            ("route 10.1.2.3/8 table main metric 0", "route 10.0.0.0/8"),
            ("route 10.0.0.0/8 metric 5 table 100", "route 10.0.0.0/8 table 100 metric 5"),
            ("route 0.0.0.0/0 table local tos 16", "route 0.0.0.0/0 table local tos 16"),
            ("route default", "route 0.0.0.0/0"),
            ("default table 100", "route 0.0.0.0/0 table 100"),
            ("route ::/0 metric 1024", "route ::/0"),
            ("route ::/0 metric 0", "route ::/0"),
            ("link br0", "link br0"),
            ("link mtu mtu", "link mtu mtu"),
            ("link eth0 up", "link eth0 up"),
            ("link eth0 sysctls", "link eth0 sysctls"),
            ("link eth0 ipv6-sysctls", "link eth0 ipv6-sysctls"),
            ("link eth0 addresses", "link eth0 addresses"),
            ("link br0 ports", "link br0 ports"),
            ("route 2001:db8::/32 metric 1", "route 2001:db8::/32 metric 1"),
            ("nexthop 10", "nexthop 10"),
            ("rule", "rule"),
            ("rule from 0.0.0.0/0 fwmark 0/0 ipproto 0", "rule"),
            ("rule from 10.1.2.3/8 priority 1000", "rule priority 1000 from 10.0.0.0/8"),
            ("rule to ::/0 priority 5", "rule inet6 priority 5"),
            (
                "rule inet6 priority 5 fwmark 1/255 iif eth0",
                "rule inet6 priority 5 iif eth0 fwmark 0x1/0xff",
            ),
            ("rule inet6 from fd00::/8", "rule from fd00::/8"),
            (
                "rule to 10.0.0.0/8 oif a.b fwmark 0x7/0xffffffff tos 16",
                "rule to 10.0.0.0/8 oif a.b fwmark 0x7 tos 16",
            ),
            (
                "rule dport 80-90 sport 5 ipproto 6 priority 0",
                "rule priority 0 ipproto tcp sport 5 dport 80-90",
            ),
            ("rule ipproto 99", "rule ipproto 99"),
            ("neighbour 10.0.0.9 dev br0", "neighbour 10.0.0.9 dev br0"),
            ("neighbour FD00::9 dev br0 proxy", "neighbour fd00::9 dev br0 proxy"),
            ("fdb 02:00:00:00:00:AB dev va", "fdb 02:00:00:00:00:ab dev va"),
            ("fdb 02:00:00:00:00:ab dev va vlan 10", "fdb 02:00:00:00:00:ab dev va vlan 10"),
            (
                "fdb 02:00:00:00:00:ab dev vx self src-vni 10",
                "fdb 02:00:00:00:00:ab dev vx self src-vni 10",
            ),
            (
                "fdb 00:00:00:00:00:00 dev vx self src-vni 10 dst FD00::1 port 4790 vni 20",
                "fdb 00:00:00:00:00:00 dev vx self src-vni 10 dst fd00::1 port 4790 vni 20",
            ),
        ] {
            let key: Key = text.parse().unwrap();
            assert_eq!(key.to_string(), shown);
            assert_eq!(shown.parse::<Key>().unwrap(), key);
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "route",
            "route 10.0.0.0",
            "route 10.0.0.0/8 table",
            "route 10.0.0.0/8 via 10.0.0.1",
            "address 10.0.0.1 dev eth0",
            "address 10.0.0.1/33 dev eth0",
            "address 10.0.0.1/24 dev a/b",
            "address 10.0.0.1 peer ::1/128 dev eth0",
            "nexthop",
            "nexthop 0",
            "nexthop ten",
            "rule priority",
            "rule priority x",
            "rule from 10.0.0.0",
            "rule table 7",
            "rule fwmark 0x100/0xff",
            "rule sport 5-",
            "neighbour 10.0.0.9",
            "neighbour 10.0.0.9 dev br0 router",
            "fdb 02:00:00:00:00:09",
            "fdb 02:00:00:00:00:09 dev va vlan",
            "fdb 02:00:00:00:00:09 dev va vlan x",
            "fdb 02:00:00:00:00:09 dev vx self dst 192.0.2.1",
            "fdb 00:00:00:00:00:00 dev vx self",
            "fdb 00:00:00:00:00:00 dev vx self vni 7",
            "link",
            "link a/b",
            "link eth0 colour",
            "link eth0 mtu 1500",
        ] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }

    #[test]
    fn keys_sort_as_a_dump_comes() {
        let sorted = [
            "address 10.0.0.1/24 dev eth0",
            "route 10.0.0.0/8 table 7",
            "route 0.0.0.0/0",
            "route 10.0.0.0/8",
            "route 10.0.0.0/8 metric 1",
            "route 10.0.0.0/16",
            "route ::/0 table 7",
            "route ::/0",
            "nexthop 2",
            "nexthop 10",
            "rule",
            "rule priority 5",
            "rule inet6",
            "neighbour 10.0.0.9 dev br0",
            "fdb 02:00:00:00:00:09 dev br0",
        ];
        let mut keys: Vec<Key> = sorted.iter().rev().map(|text| text.parse().unwrap()).collect();
        keys.sort();
        let texts: Vec<String> = keys.iter().map(Key::to_string).collect();
        assert_eq!(texts, sorted);
    }
}

#[cfg(test)]
mod print_tests {
    use std::collections::BTreeSet;

    use super::*;

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
            "fdb 02:00:00:00:00:09 dev va",
            "fdb 02:00:00:00:00:09 dev va vlan 1",
            "link br0",
            "link br1",
            "link br0 mtu",
            "link br0 up",
        ];
        let prints: BTreeSet<u64> =
            texts.iter().map(|text| fingerprint(&text.parse().unwrap())).collect();
        assert_eq!(prints.len(), texts.len());
        assert_eq!(
            fingerprint(&"route ::/0".parse().unwrap()),
            fingerprint(&"route ::/0".parse().unwrap())
        );
    }
}
