//! What a rule asks of a packet beside its addresses: mark, protocol and ports.

use std::fmt;
use std::str::FromStr;

use crate::number::UnknownNumber;

/// A firewall mark and the bits of it that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The bits.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
}

/// Ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// The protocol inside an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mark { value, mask: u32::MAX } => write!(f, "{value:#x}"),
            Mark { value, mask } => write!(f, "{value:#x}/{mask:#x}"),
        }
    }
}

impl FromStr for Mark {
    type Err = UnknownNumber;

    /// Bits outside of the mask are refused: no packet would ever match.
    fn from_str(text: &str) -> Result<Self, UnknownNumber> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let (bits, counting) = text.split_once('/').unwrap_or((text, "0xffffffff"));
        let mark = number(bits).zip(number(counting));
        let mark = mark.map(|(value, mask)| Mark { value, mask });
        let mark = mark.filter(|mark| mark.value & !mark.mask == 0);
        mark.ok_or_else(|| UnknownNumber(text.to_owned()))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ports { first, last } if first == last => first.fmt(f),
            Ports { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for Ports {
    type Err = UnknownNumber;

    fn from_str(text: &str) -> Result<Self, UnknownNumber> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = first.parse().ok().zip(last.parse().ok());
        let ports = ports.map(|(first, last)| Ports { first, last });
        ports.ok_or_else(|| UnknownNumber(text.to_owned()))
    }
}

pub(crate) const IP_PROTOCOLS: [(&str, u8); 14] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("sctp", 132),
    ("udplite", 136),
];

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match IP_PROTOCOLS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for IpProtocol {
    type Err = UnknownNumber;

    fn from_str(text: &str) -> Result<Self, UnknownNumber> {
        let named = IP_PROTOCOLS.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
        let number = named.or_else(|| text.parse().ok());
        number.map(IpProtocol).ok_or_else(|| UnknownNumber(text.to_owned()))
    }
}
