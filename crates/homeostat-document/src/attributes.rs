//! Attributes that routes, rules, nexthops and addresses share.

use std::fmt;

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::error::ValueError;
use crate::node::{Node, Value};
use crate::number::{numbers, read_number};
use crate::shape::{Definitions, Shape, check};
use crate::words::{refuse, words};

numbers! {
    /// Preference among routes to the same destination; the smallest wins.
    Metric(u32): 0..=u32::MAX, "a metric";
    /// Largest packet of a route or a link, in bytes.
    Mtu(u32): 68..=65_536, "an MTU in bytes";
    /// Type of service.
    Tos(u8): 0..=255, "a type of service";
    /// Share of one nexthop among several.
    Weight(u16): 1..=256, "a weight";
    /// Identity of a nexthop object.
    NexthopId(u32): 1..=u32::MAX, "a nexthop id";
    /// Order of a rule; the smallest is asked first.
    Priority(u32): 0..=u32::MAX, "a priority";
    /// Longest prefix that a rule suppresses.
    SuppressLength(u8): 0..=128, "a prefix length";
}

/// A routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(u32);

/// How far a destination is: the kernel's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach(u8);

/// A firewall mark and which of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The bits.
    pub value: u32,
    /// The bits that are compared.
    pub mask: u32,
}

/// One port or a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

/// The protocol inside an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(u8);

words! {
    /// What a route does with a packet.
    RouteType, "a type of route":
    /// Sends it on.
    Unicast = "unicast",
    /// Delivers it here.
    Local = "local",
    /// Sends it to all on the link.
    Broadcast = "broadcast",
    /// Delivers it here, one of many.
    Anycast = "anycast",
    /// Sends it to a group.
    Multicast = "multicast",
    /// Drops it silently.
    Blackhole = "blackhole",
    /// Drops it; the sender is told that the destination cannot be reached.
    Unreachable = "unreachable",
    /// Drops it; the sender is told that it is forbidden.
    Prohibit = "prohibit",
    /// Ends the lookup in this table.
    Throw = "throw",
}

impl RouteType {
    /// Whether packets go somewhere, so that a gateway or a link makes sense.
    #[must_use]
    pub const fn forwards(self) -> bool {
        !matches!(self, Self::Blackhole | Self::Unreachable | Self::Prohibit | Self::Throw)
    }
}

const TABLES: &[(&str, u32)] = &[("default", 253), ("main", 254), ("local", 255)];
const REACHES: &[(&str, u8)] =
    &[("global", 0), ("site", 200), ("link", 253), ("host", 254), ("nowhere", 255)];
const IP_PROTOCOLS: &[(&str, u8)] = &[
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

/// A type that is a number, or one of the names that some numbers have.
macro_rules! named_numbers {
    ($($name:ident($inner:ty): $least:literal, $names:ident, $what:literal;)+) => {$(
        impl $name {
            /// The kernel's number for it.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number, if it is one that can be written.
            #[must_use]
            pub fn new(number: $inner) -> Option<Self> {
                ($least..=<$inner>::MAX).contains(&number).then_some(Self(number))
            }

            /// What a name stands for.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                let known = $names.iter().find(|(known, _)| *known == name);
                known.map(|(_, number)| Self(*number))
            }

            /// All names.
            #[must_use]
            pub fn names() -> Vec<&'static str> {
                $names.iter().map(|(name, _)| *name).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match $names.iter().find(|(_, number)| *number == self.0) {
                    Some((name, _)) => f.write_str(name),
                    None => self.0.fmt(f),
                }
            }
        }

        impl Shape for $name {
            fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
                if let Value::Text(text) = &node.value {
                    return check(find($names, text, $what), node, checker).map(Self);
                }
                let range = $least..=i128::from(<$inner>::MAX);
                let number = read_number($what, &range, node, checker)?;
                <$inner>::try_from(number).ok().map(Self)
            }

            fn schema(_: &mut Definitions) -> Json {
                let names = Self::names();
                json!({ "description": $what, "anyOf": [
                    { "type": "integer", "minimum": $least, "maximum": <$inner>::MAX },
                    { "enum": names }] })
            }
        }
    )+};
}

named_numbers! {
    Table(u32): 1, TABLES, "a routing table";
    Reach(u8): 0, REACHES, "a scope";
    IpProtocol(u8): 0, IP_PROTOCOLS, "an IP protocol";
}

impl Table {
    /// The table that routes are in when none is named.
    pub const MAIN: Self = Self(254);
}

fn find<N: Copy>(names: &[(&'static str, N)], text: &str, what: &str) -> Result<N, ValueError> {
    if let Some((_, number)) = names.iter().find(|(name, _)| *name == text) {
        return Ok(*number);
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        return Err(ValueError::is_not(text, what).help("write the number without quotes"));
    }
    let words: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let mut error = refuse(text, what, &words);
    error.help = error.help.map(|help| format!("{help}, or a number"));
    Err(error)
}

impl Shape for Mark {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Text(text) = &node.value {
            return check(mark_from(text), node, checker);
        }
        let number = read_number("a mark", &(0..=i128::from(u32::MAX)), node, checker)?;
        Some(Self { value: u32::try_from(number).ok()?, mask: u32::MAX })
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": "a mark: a number, or text such as \"0x10/0xff\"",
            "anyOf": [{ "type": "integer", "minimum": 0, "maximum": u32::MAX },
                { "type": "string" }] })
    }
}

fn mark_from(text: &str) -> Result<Mark, ValueError> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok().filter(|_| !text.starts_with('+')),
    };
    let (value, mask) = text.split_once('/').map_or((text, "0xffffffff"), |parts| parts);
    match (number(value), number(mask)) {
        (Some(value), Some(mask)) if value & !mask == 0 => Ok(Mark { value, mask }),
        (Some(_), Some(_)) => {
            Err(ValueError::new(format!("the mask of `{text}` hides bits of it"))
                .help("every bit of the mark must be in the mask"))
        }
        _ => Err(ValueError::is_not(text, "a mark").help("write \"0x10\" or \"0x10/0xff\"")),
    }
}

impl Shape for Ports {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Text(text) = &node.value {
            return check(Self::from_range(text), node, checker);
        }
        let number = read_number("a port", &(1..=65_535), node, checker)?;
        let port = u16::try_from(number).ok()?;
        Some(Self { first: port, last: port })
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": "a port: a number, or a range such as \"8000-8080\"",
            "anyOf": [{ "type": "integer", "minimum": 1, "maximum": 65_535 },
                { "type": "string" }] })
    }
}

impl Ports {
    fn from_range(text: &str) -> Result<Self, ValueError> {
        let port =
            |text: &str| text.parse().ok().filter(|port| *port > 0 && !text.starts_with('+'));
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(ValueError::is_not(text, "a port or a range of ports")
                .help("write 53, or \"8000-8080\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_their_bits_inside_their_mask() {
        assert_eq!(mark_from("0x10/0xff").unwrap(), Mark { value: 16, mask: 255 });
        assert_eq!(mark_from("16").unwrap(), Mark { value: 16, mask: u32::MAX });
        for text in ["", "0x", "x", "1/", "/1", "0x100/0xff", "1/2/3", "-1", "+1", "0x+1"] {
            assert!(mark_from(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_of_ports_go_upwards() {
        assert_eq!(Ports::from_range("80-90").unwrap(), Ports { first: 80, last: 90 });
        for text in ["", "90-80", "0", "0-5", "5-", "-5", "65536", "http", "+5"] {
            assert!(Ports::from_range(text).is_err(), "{text}");
        }
    }
}
