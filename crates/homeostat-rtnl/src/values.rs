//! How the values that several sections share are written in documents.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use homeostat_document::{Number, Period, Text, ValueError, word_values};
use ipnet::IpNet;

use crate::address::Lifetime;
use crate::link::LinkName;
use crate::link::kinds::bridge::{Centis, LongCentis};
use crate::neighbour::Mac;
use crate::net::{Family, Net};
use crate::route::{ROUTE_KINDS, RouteKind};

pub(crate) const METRIC: Number<u32> = Number { what: "a metric", least: 0, most: u32::MAX };
/// The largest packet of a link.
pub(crate) const MTU: Number<u32> = Number { what: "an MTU in bytes", least: 68, most: 65_536 };
/// Quirk `the-mtu-of-a-route-is-capped` (Linux 6.18): `ip route add 10.5.0.0/16 dev va mtu 65536` reads back as 65520.
pub(crate) const ROUTE_MTU: Number<u32> =
    Number { what: "an MTU in bytes", least: 68, most: 65_520 };
/// The kernel counts up to what fits into a signed number.
pub(crate) const QUEUE_LENGTH: Number<u32> =
    Number { what: "a number of packets", least: 0, most: 0x7fff_ffff };
pub(crate) const TOS: Number<u8> = Number { what: "a type of service", least: 0, most: u8::MAX };
/// The share of one nexthop among several.
pub(crate) const WEIGHT: Number<u16> = Number { what: "a weight", least: 1, most: 256 };
pub(crate) const NEXTHOP_ID: Number<u32> =
    Number { what: "a nexthop id", least: 1, most: u32::MAX };

/// A destination or a source: a prefix, a lone address (all its bits count), or `default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// Without host bits.
    pub(crate) net: Net,
    /// Whether it was written as the word `default`.
    pub(crate) is_default_word: bool,
}

impl Text for Destination {
    const WHAT: &'static str = "a prefix, an address or `default`";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        if text == "default" {
            let net = Net::masked(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
            return Ok(Self { net, is_default_word: true });
        }
        let prefix = if text.contains('/') {
            IpNet::from_text(text)?
        } else {
            IpAddr::from_text(text)?.into()
        };
        Ok(Self { net: prefix.into(), is_default_word: false })
    }
}

word_values! { Family, "an address family": "ipv4" = Family::V4, "ipv6" = Family::V6 }

impl Text for LinkName {
    const WHAT: &'static str = "an interface name";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        match LinkName::fault(text) {
            Some(fault) => Err(ValueError::is_not(text, Self::WHAT).help(fault)),
            None => Ok(LinkName::padded(text)),
        }
    }
}

impl Text for Mac {
    const WHAT: &'static str = "a hardware address";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| {
            ValueError::is_not(text, Self::WHAT)
                .help("write six bytes in hexadecimal, such as \"02:00:00:00:00:01\"")
        })
    }
}

impl Text for RouteKind {
    const WHAT: &'static str = "a type of route";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let known = ROUTE_KINDS.iter().find(|(name, _)| *name == text);
        let kind = known.map(|(_, number)| RouteKind(*number));
        kind.ok_or_else(|| homeostat_document::refuse(text, Self::WHAT, &Self::words()))
    }

    fn words() -> Vec<&'static str> {
        ROUTE_KINDS.iter().map(|(name, _)| *name).collect()
    }
}

impl Text for Lifetime {
    const WHAT: &'static str = "a duration such as \"1h\", or \"forever\"";
    const ZERO: Option<&'static str> = Period::ZERO;

    /// The kernel counts in seconds; less than one that is not zero is one.
    fn from_text(text: &str) -> Result<Self, ValueError> {
        if text == "forever" {
            return Ok(Lifetime::Forever);
        }
        let seconds = duration(text)?.as_millis().div_ceil(1000);
        Ok(Lifetime::Seconds(u32::try_from(seconds).unwrap_or(u32::MAX - 1)))
    }
}

impl Text for Centis {
    const WHAT: &'static str = Period::WHAT;
    const ZERO: Option<&'static str> = Period::ZERO;

    fn from_text(text: &str) -> Result<Self, ValueError> {
        duration(text).map(Centis::from)
    }
}

impl Text for LongCentis {
    const WHAT: &'static str = Period::WHAT;
    const ZERO: Option<&'static str> = Period::ZERO;

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Centis::from_text(text).map(LongCentis)
    }
}

/// Whole seconds, written as a duration.
pub(crate) struct Seconds(pub(crate) u32);

impl Text for Seconds {
    const WHAT: &'static str = Period::WHAT;
    const ZERO: Option<&'static str> = Period::ZERO;

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(Self(u32::try_from(duration(text)?.as_secs()).unwrap_or(u32::MAX)))
    }
}

impl From<Seconds> for u32 {
    fn from(seconds: Seconds) -> u32 {
        seconds.0
    }
}

fn duration(text: &str) -> Result<Duration, ValueError> {
    text.parse().map(Period::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_those_that_the_kernel_takes() {
        for text in ["eth0", "enp3s0.200", "a", "br-1234567890ab", "ü0", "..."] {
            assert!(LinkName::from_text(text).is_ok(), "{text}");
        }
        for text in ["", ".", "..", "a/b", "a b", "a\tb", "a\0b", "a:b", "1234567890123456", "%d"] {
            assert!(LinkName::from_text(text).is_err(), "{text}");
        }
    }
}
