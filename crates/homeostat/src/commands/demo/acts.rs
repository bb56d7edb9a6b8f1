//! The saboteur's repertoire.

use super::firewall::Harm;
use super::picture::Kind;
use super::saboteur::Route;

/// One act of sabotage.
pub(super) struct Act {
    pub(super) what: &'static str,
    pub(super) on: &'static str,
    pub(super) deed: Deed,
}

/// What is done.
pub(super) enum Deed {
    /// The object of this kind and name is deleted.
    Delete(Kind, &'static str),
    /// Many routes are deleted, each when the one before is back.
    OneByOne,
    /// All routes of homeostat are deleted at once.
    Flush,
    /// A foreign route is put in the place of ours.
    Replace(Route<'static>),
    Down(&'static str),
    Flap(&'static str),
    Unplug(&'static str),
    /// One end of a cable into the lab is deleted, and with it the other.
    Cut(&'static str),
    /// A knob is set to another value.
    Turn {
        path: &'static str,
        to: &'static str,
    },
    /// Something is done to the firewall.
    Breach(Harm),
    /// The namespace of the lab is deleted.
    Raze,
    /// Others add routes of their own, which must stay.
    Crowd,
}

/// Which kind of sabotage an act is, for the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Object,
    Firewall,
    Link,
    Looked,
}

impl Deed {
    pub(super) fn is_breach(&self) -> bool {
        matches!(self, Deed::Breach(_))
    }

    pub(super) fn group(&self) -> Group {
        match self {
            Deed::Delete(Kind::Link, _) | Deed::Down(_) | Deed::Flap(_) | Deed::Flush => {
                Group::Link
            }
            Deed::Breach(_) => Group::Firewall,
            Deed::Cut(_) | Deed::Turn { .. } | Deed::Raze => Group::Looked,
            _ => Group::Object,
        }
    }
}

const WAN: Route<'static> =
    Route { to: "203.0.113.0", length: 24, via: Some("192.0.2.66"), dev: "wan0", metric: 0 };

/// All acts, in their order. Between two on the same key lies time: that would be a fight.
pub(super) const ACTS: [Act; 23] = [
    act(
        "delete a route",
        "default via 192.0.2.1",
        Deed::Delete(Kind::Route, "0.0.0.0/0 table 254 metric 0"),
    ),
    act(
        "delete an IPv6 route",
        "::/0 via 2001:db8::1",
        Deed::Delete(Kind::Route, "::/0 table 254 metric 1024"),
    ),
    act(
        "delete an address",
        "10.0.0.1/24 dev lan0",
        Deed::Delete(Kind::Address, "10.0.0.1/24 dev lan0"),
    ),
    act(
        "delete an IPv6 address",
        "fd00::1/64 dev lan0",
        Deed::Delete(Kind::Address, "fd00::1/64 dev lan0"),
    ),
    act(
        "delete a rule",
        "from 10.0.0.0/24 lookup 100",
        Deed::Delete(Kind::Rule, "1000: from 10.0.0.0/24 lookup 100"),
    ),
    act(
        "delete a neighbour",
        "10.0.0.2 dev lan0",
        Deed::Delete(Kind::Neighbour, "10.0.0.2 dev lan0"),
    ),
    act(
        "delete a nexthop",
        "10, and the route through it",
        Deed::Delete(Kind::Nexthop, "nexthop 10"),
    ),
    act("replace a route", "203.0.113.0/24 becomes BIRD's", Deed::Replace(WAN)),
    act("BIRD adds routes", "100, to be left alone", Deed::Crowd),
    act(
        "turn a knob",
        "net.ipv4.ip_forward = 0",
        Deed::Turn { path: "/proc/sys/net/ipv4/ip_forward", to: "0\n" },
    ),
    act("delete a firewall", "table inet filter, whole", Deed::Breach(Harm::Table)),
    act("delete routes", "32 of table 100, one by one", Deed::OneByOne),
    act("unplug a bridge port", "lab0 from lan0", Deed::Unplug("lab0")),
    act("delete a rule of nft", "ip saddr @admins tcp dport 22", Deed::Breach(Harm::Rule)),
    act("set a link down", "wan0", Deed::Down("wan0")),
    act("flap a link", "lan0 down and up", Deed::Flap("lan0")),
    act("flush routes", "all of homeostat", Deed::Flush),
    act("empty a set", "@admins", Deed::Breach(Harm::Set)),
    act("delete a link", "wan0 with all that is on it", Deed::Delete(Kind::Link, "wan0")),
    act("delete a bridge", "lan0 with all that is on it", Deed::Delete(Kind::Link, "lan0")),
    act("cut a cable", "lab0, and eth0 inside the lab", Deed::Cut("lab0")),
    act("delete a namespace", "lab with all that is inside", Deed::Raze),
    act(
        "delete a route",
        "10.8.0.0/16 blackhole",
        Deed::Delete(Kind::Route, "10.8.0.0/16 table 254 metric 0"),
    ),
];

const fn act(what: &'static str, on: &'static str, deed: Deed) -> Act {
    Act { what, on, deed }
}
