//! The list of what the saboteur does.

use super::firewall::FirewallDamage;
use super::kernel_state::Kind;
use super::saboteur::Route;

/// One thing that the saboteur does.
pub(super) struct Sabotage {
    pub(super) what: &'static str,
    pub(super) on: &'static str,
    pub(super) damage: Damage,
}

/// What is done.
pub(super) enum Damage {
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
    SetKnob {
        path: &'static str,
        to: &'static str,
    },
    /// Something is done to the firewall.
    Breach(FirewallDamage),
    /// The namespace of the lab is deleted.
    Raze,
    /// Others add routes of their own, which must stay.
    Crowd,
}

/// How the summary groups them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Object,
    Firewall,
    Link,
    Looked,
}

impl Damage {
    pub(super) fn is_breach(&self) -> bool {
        matches!(self, Damage::Breach(_))
    }

    pub(super) fn group(&self) -> Group {
        match self {
            Damage::Delete(Kind::Link, _) | Damage::Down(_) | Damage::Flap(_) | Damage::Flush => {
                Group::Link
            }
            Damage::Breach(_) => Group::Firewall,
            Damage::Cut(_) | Damage::SetKnob { .. } | Damage::Raze => Group::Looked,
            _ => Group::Object,
        }
    }
}

const WAN: Route<'static> =
    Route { to: "203.0.113.0", length: 24, via: Some("192.0.2.66"), dev: "wan0", metric: 0 };

/// All acts, in their order. Between two on the same key lies time: that would be a fight.
pub(super) const SABOTAGE: [Sabotage; 23] = [
    sabotage(
        "delete a route",
        "default via 192.0.2.1",
        Damage::Delete(Kind::Route, "0.0.0.0/0 table 254 metric 0"),
    ),
    sabotage(
        "delete an IPv6 route",
        "::/0 via 2001:db8::1",
        Damage::Delete(Kind::Route, "::/0 table 254 metric 1024"),
    ),
    sabotage(
        "delete an address",
        "10.0.0.1/24 dev lan0",
        Damage::Delete(Kind::Address, "10.0.0.1/24 dev lan0"),
    ),
    sabotage(
        "delete an IPv6 address",
        "fd00::1/64 dev lan0",
        Damage::Delete(Kind::Address, "fd00::1/64 dev lan0"),
    ),
    sabotage(
        "delete a rule",
        "from 10.0.0.0/24 lookup 100",
        Damage::Delete(Kind::Rule, "1000: from 10.0.0.0/24 lookup 100"),
    ),
    sabotage(
        "delete a neighbour",
        "10.0.0.2 dev lan0",
        Damage::Delete(Kind::Neighbour, "10.0.0.2 dev lan0"),
    ),
    sabotage(
        "delete a nexthop",
        "10, and the route through it",
        Damage::Delete(Kind::Nexthop, "nexthop 10"),
    ),
    sabotage("replace a route", "203.0.113.0/24 becomes BIRD's", Damage::Replace(WAN)),
    sabotage("BIRD adds routes", "100, to be left alone", Damage::Crowd),
    sabotage(
        "change a knob",
        "net.ipv4.ip_forward = 0",
        Damage::SetKnob { path: "/proc/sys/net/ipv4/ip_forward", to: "0\n" },
    ),
    sabotage(
        "delete a firewall",
        "table inet filter, whole",
        Damage::Breach(FirewallDamage::Table),
    ),
    sabotage("delete routes", "32 of table 100, one by one", Damage::OneByOne),
    sabotage("unplug a bridge port", "lab0 from lan0", Damage::Unplug("lab0")),
    sabotage(
        "delete a rule of nft",
        "ip saddr @admins tcp dport 22",
        Damage::Breach(FirewallDamage::Rule),
    ),
    sabotage("set a link down", "wan0", Damage::Down("wan0")),
    sabotage("flap a link", "lan0 down and up", Damage::Flap("lan0")),
    sabotage("flush routes", "all of homeostat", Damage::Flush),
    sabotage("empty a set", "@admins", Damage::Breach(FirewallDamage::Set)),
    sabotage("delete a link", "wan0 with all that is on it", Damage::Delete(Kind::Link, "wan0")),
    sabotage("delete a bridge", "lan0 with all that is on it", Damage::Delete(Kind::Link, "lan0")),
    sabotage("cut a cable", "lab0, and eth0 inside the lab", Damage::Cut("lab0")),
    sabotage("delete a namespace", "lab with all that is inside", Damage::Raze),
    sabotage(
        "delete a route",
        "10.8.0.0/16 blackhole",
        Damage::Delete(Kind::Route, "10.8.0.0/16 table 254 metric 0"),
    ),
];

const fn sabotage(what: &'static str, on: &'static str, damage: Damage) -> Sabotage {
    Sabotage { what, on, damage }
}
