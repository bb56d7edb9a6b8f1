//! Families of addresses, and IP networks with their host bits masked.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::message::{AF_INET, AF_INET6};
use crate::number::ParseError;

/// A network: an address whose host bits are zero, and how many bits of it count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net {
    addr: IpAddr,
    len: u8,
}

const NO_NETWORK: &str = "no network such as 192.0.2.0/24 or 2001:db8::/32";

impl Net {
    /// The network that an address is in. Host bits are masked: the kernel refuses them for IPv4
    /// and drops them for IPv6.
    pub fn new(addr: IpAddr, len: u8) -> Result<Self, ParseError> {
        let net = (len <= bits(addr)).then(|| Self::masked(addr, len));
        ParseError::unless(net, &format!("{addr}/{len}"), NO_NETWORK)
    }

    pub(crate) fn masked(addr: IpAddr, len: u8) -> Self {
        let len = len.min(bits(addr));
        let shift = u32::from(bits(addr) - len);
        let addr = match addr {
            IpAddr::V4(addr) => {
                let mask = u32::MAX.checked_shl(shift).unwrap_or(0);
                Ipv4Addr::from_bits(addr.to_bits() & mask).into()
            }
            IpAddr::V6(addr) => {
                let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
                Ipv6Addr::from_bits(addr.to_bits() & mask).into()
            }
        };
        Net { addr, len }
    }

    /// The first address of the network.
    #[must_use]
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// How many bits count.
    #[must_use]
    pub fn prefix_len(&self) -> u8 {
        self.len
    }

    /// Whether an address is in the network.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        addr.is_ipv4() == self.addr.is_ipv4() && Self::masked(addr, self.len) == *self
    }
}

/// How many bits an address of this family has.
pub(crate) fn bits(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl FromStr for Net {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parts = text.split_once('/');
        let parts = parts.and_then(|(addr, len)| addr.parse().ok().zip(len.parse().ok()));
        let (addr, len) = ParseError::unless(parts, text, NO_NETWORK)?;
        Self::new(addr, len)
    }
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "ipv4")]
    V4,
    /// IPv6.
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
