//! Families of addresses, and IP networks with their host bits masked.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::message::{AF_INET, AF_INET6};
use crate::number::{ParseError, serde_as_text};

/// A network: its address has no host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net(IpNet);

const NO_NETWORK: &str = "no network such as 192.0.2.0/24 or 2001:db8::/32";

impl Net {
    /// The network that an address is in. Host bits are masked: the kernel refuses them for IPv4
    /// and drops them for IPv6.
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, ParseError> {
        let net = IpNet::new(addr, len).map(Net::from).ok();
        ParseError::unless(net, &format!("{addr}/{len}"), NO_NETWORK)
    }

    /// The same; a length that the family does not have means the address alone.
    pub(crate) fn masked(addr: IpAddr, len: u8) -> Self {
        IpNet::new(addr, len).unwrap_or_else(|_| addr.into()).into()
    }

    /// The first address of the network.
    #[must_use]
    pub fn addr(&self) -> IpAddr {
        self.0.addr()
    }

    /// The last address of the network.
    pub(crate) fn last(&self) -> IpAddr {
        self.0.broadcast()
    }

    /// How many bits count.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether an address is in the network.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.0.contains(&addr)
    }
}

impl From<IpNet> for Net {
    fn from(net: IpNet) -> Self {
        Net(net.trunc())
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Net {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        ParseError::unless(text.parse().map(|net: IpNet| net.into()).ok(), text, NO_NETWORK)
    }
}

serde_as_text!(Net);

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    #[serde(rename = "ipv4")]
    V4,
    #[serde(rename = "ipv6")]
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub(crate) fn to_kernel(self) -> u8 {
        match self {
            Family::V4 => AF_INET,
            Family::V6 => AF_INET6,
        }
    }

    pub(crate) fn from_kernel(number: u8) -> Option<Self> {
        match number {
            AF_INET => Some(Family::V4),
            AF_INET6 => Some(Family::V6),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_bits_are_masked() {
        for (text, masked) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::1/0", "::/0"),
            ("::1/128", "::1/128"),
        ] {
            assert_eq!(text.parse::<Net>().unwrap().to_string(), masked);
        }
        for text in ["", "10.0.0.0", "10.0.0.0/33", "::/129", "default", "10/8"] {
            assert!(text.parse::<Net>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_contains_addresses_of_its_family_only() {
        let net: Net = "10.0.0.0/8".parse().unwrap();
        assert!(net.contains("10.255.0.1".parse().unwrap()));
        assert!(!net.contains("11.0.0.1".parse().unwrap()));
        assert!(!net.contains("::10.0.0.1".parse().unwrap()));
    }
}
