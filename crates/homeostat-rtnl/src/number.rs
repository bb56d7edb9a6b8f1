//! The kernel's small numbers as types of their own, with the names that people use for them.

use homeostat_netlink::uapi::{
    RT_SCOPE_HOST, RT_SCOPE_LINK, RT_SCOPE_NOWHERE, RT_SCOPE_SITE, RT_SCOPE_UNIVERSE,
    RT_TABLE_DEFAULT, RT_TABLE_LOCAL, RT_TABLE_MAIN, RTPROT_BABEL, RTPROT_BGP, RTPROT_BIRD,
    RTPROT_BOOT, RTPROT_DHCP, RTPROT_EIGRP, RTPROT_ISIS, RTPROT_KEEPALIVED, RTPROT_OPENR,
    RTPROT_OSPF, RTPROT_OVN, RTPROT_RA, RTPROT_RIP, RTPROT_STATIC, RTPROT_ZEBRA,
};

/// Serializes values as their text.
macro_rules! serde_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

/// Shows numbers by their names, and reads names and numbers from the least one on. One that says what it is can be
/// written in documents.
macro_rules! named_number {
    ($type:ident($int:ty), $names:ident, $least:literal $(, $what:literal)?) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match $names.iter().find(|(_, number)| *number == self.0) {
                    Some((name, _)) => f.write_str(name),
                    None => self.0.fmt(f),
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::number::ParseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let named = $names.iter().find(|(name, _)| *name == text);
                let number = named.map(|(_, number)| *number).or_else(|| text.parse().ok());
                let number = number.filter(|number| ($least..=<$int>::MAX).contains(number));
                $crate::number::ParseError::unless(
                    number.map($type),
                    text,
                    $crate::number::NO_NUMBER,
                )
            }
        }

        $(
            #[cfg(feature = "document")]
            impl homeostat_document::Shape for $type {
                fn read(
                    node: &homeostat_document::Node,
                    checker: &mut homeostat_document::Checker,
                ) -> Option<Self> {
                    homeostat_document::Number { what: $what, least: $least, most: <$int>::MAX }
                        .read_named(&$names, node, checker)
                        .map(Self)
                }

                fn schema(_: &mut homeostat_document::Definitions) -> homeostat_document::Json {
                    homeostat_document::Number { what: $what, least: $least, most: <$int>::MAX }
                        .named_schema(&$names)
                }
            }
        )?
    };
}

pub(crate) use {named_number, serde_as_text};

/// A text that cannot be read as a key or a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is {is}")]
pub struct ParseError {
    text: String,
    is: &'static str,
}

impl ParseError {
    /// What was read, or else what the text is instead: "no network such as 192.0.2.0/24".
    pub(crate) fn unless<T>(read: Option<T>, text: &str, is: &'static str) -> Result<T, Self> {
        read.ok_or_else(|| ParseError { text: text.to_owned(), is })
    }
}

pub(crate) const NO_NUMBER: &str = "neither a number nor a known name";

/// A routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table(pub u32);

impl Table {
    /// Where routes go unless something else is said.
    pub const MAIN: Self = Table(RT_TABLE_MAIN);
}

impl From<Table> for u32 {
    fn from(table: Table) -> u32 {
        table.0
    }
}

pub(crate) const TABLES: [(&str, u32); 3] =
    [("default", RT_TABLE_DEFAULT), ("main", RT_TABLE_MAIN), ("local", RT_TABLE_LOCAL)];

named_number!(Table(u32), TABLES, 1);

/// Also by a name of iproute2.
#[cfg(feature = "document")]
impl homeostat_document::Shape for Table {
    fn read(
        node: &homeostat_document::Node,
        checker: &mut homeostat_document::Checker,
    ) -> Option<Self> {
        let named = match &node.value {
            homeostat_document::Value::Text(name) => crate::table_names::number(name),
            _ => None,
        };
        match named.filter(|number| *number != 0) {
            Some(number) => Some(Table(number)),
            None => TABLE.read_named(&TABLES, node, checker).map(Table),
        }
    }

    fn schema(_: &mut homeostat_document::Definitions) -> homeostat_document::Json {
        let mut schema = TABLE.named_schema(&TABLES);
        if let Some(shapes) = schema["anyOf"].as_array_mut() {
            let doc = "a name in /etc/iproute2/rt_tables";
            shapes.push(serde_json::json!({ "type": "string", "description": doc }));
        }
        schema
    }
}

#[cfg(feature = "document")]
const TABLE: homeostat_document::Number<u32> =
    homeostat_document::Number { what: "a routing table", least: 1, most: u32::MAX };
serde_as_text!(Table, Scope);

/// Which of several routes to one network is preferred: the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Metric(pub u32);

/// Which packets an IPv4 route is for, by their type of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tos(pub u8);

/// The mark that the kernel keeps with a route or an address: who put it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub(crate) u8);

impl Protocol {
    /// The mark of this program, unless another is chosen.
    pub const HOMEOSTAT: Self = Protocol(76);
    /// What tools put on things that people make by hand.
    #[cfg(feature = "document")]
    pub(crate) const BY_HAND: [Self; 3] =
        [Protocol(0), Protocol(RTPROT_BOOT), Protocol(RTPROT_STATIC)];

    /// A mark of another owner. None, if it is one that the kernel and every tool put on things.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (number > RTPROT_STATIC).then_some(Protocol(number))
    }

    /// For people: "protocol bird".
    pub(crate) fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "no protocol",
            RTPROT_BOOT => "protocol boot",
            RTPROT_STATIC => "protocol static",
            RTPROT_RA => "protocol ra",
            RTPROT_ZEBRA => "protocol zebra",
            RTPROT_BIRD => "protocol bird",
            RTPROT_DHCP => "protocol dhcp",
            RTPROT_KEEPALIVED => "protocol keepalived",
            RTPROT_BABEL => "protocol babel",
            RTPROT_OVN => "protocol ovn",
            RTPROT_OPENR => "protocol openr",
            RTPROT_BGP => "protocol bgp",
            RTPROT_ISIS => "protocol isis",
            RTPROT_OSPF => "protocol ospf",
            RTPROT_RIP => "protocol rip",
            RTPROT_EIGRP => "protocol eigrp",
            _ => return None,
        })
    }
}

/// How far away something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(pub u8);

impl Scope {
    pub const GLOBAL: Self = Scope(RT_SCOPE_UNIVERSE);
    pub const LINK: Self = Scope(RT_SCOPE_LINK);
    pub const HOST: Self = Scope(RT_SCOPE_HOST);
}

pub(crate) const SCOPES: [(&str, u8); 5] = [
    ("global", RT_SCOPE_UNIVERSE),
    ("site", RT_SCOPE_SITE),
    ("link", RT_SCOPE_LINK),
    ("host", RT_SCOPE_HOST),
    ("nowhere", RT_SCOPE_NOWHERE),
];

named_number!(Scope(u8), SCOPES, 0, "a scope");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_scopes_read_back_by_name_and_by_number() {
        for (text, shown) in [("main", "main"), ("254", "main"), ("255", "local"), ("7", "7")] {
            assert_eq!(text.parse::<Table>().unwrap().to_string(), shown);
        }
        assert!("0".parse::<Table>().is_err() && "mian".parse::<Table>().is_err());
        for (text, shown) in [("link", "link"), ("253", "link"), ("global", "global"), ("9", "9")] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), shown);
        }
    }
}
