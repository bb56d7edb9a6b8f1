//! The list of what the saboteur does.

use std::net::Ipv4Addr;

use super::firewall::FirewallDamage;
use super::kernel_state::Kind::{self, Address, Link, Neighbour, Nexthop, Rule};
use super::saboteur::{DOWN, Route, UP};

/// What is done.
pub(super) enum Damage {
    /// The object of this kind and name is deleted.
    Delete(Kind, &'static str),
    /// Many routes are deleted, each when the one before is back.
    OneByOne,
    /// All routes of homeostat are deleted at once.
    Flush,
    /// A foreign route is put in the place of ours.
    Replace(Route),
    /// A link is set down or up, one after the other.
    SetLink(&'static str, &'static [u32]),
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
    /// The file of the balancer is edited by hand.
    Edit,
    /// The namespace of the lab is deleted.
    Raze,
    /// Others add routes of their own, which must stay.
    Crowd,
}

use Damage::{Breach, Crowd, Cut, Delete, Edit, Flush, OneByOne, Raze, Replace, SetLink, Unplug};

/// How the summary groups them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Object,
    Firewall,
    Link,
    /// Seen by polling, as the next ones.
    File,
    Looked,
}

impl Damage {
    pub(super) fn group(&self) -> Group {
        match self {
            Delete(Link, _) | SetLink(..) | Flush => Group::Link,
            Breach(_) => Group::Firewall,
            Edit => Group::File,
            Cut(_) | Damage::SetKnob { .. } | Raze => Group::Looked,
            _ => Group::Object,
        }
    }
}

const FORWARDING: Damage = Damage::SetKnob { path: "/proc/sys/net/ipv4/ip_forward", to: "0\n" };
const WAN: Route = Route {
    to: Ipv4Addr::new(203, 0, 113, 0),
    via: Some(Ipv4Addr::new(192, 0, 2, 66)),
    dev: "wan0",
};

/// All acts in their order: what is done, to what, and how. Between two on the same key lies time: that would be a
/// fight.
pub(super) const SABOTAGE: [(&str, &str, Damage); 24] = [
    ("delete a route", "default via 192.0.2.1", route("0.0.0.0/0 table 254 metric 0")),
    ("delete an IPv6 route", "::/0 via 2001:db8::1", route("::/0 table 254 metric 1024")),
    ("delete an address", "10.0.0.1/24 dev lan0", Delete(Address, "10.0.0.1/24 dev lan0")),
    ("delete an IPv6 address", "fd00::1/64 dev lan0", Delete(Address, "fd00::1/64 dev lan0")),
    (
        "delete a rule",
        "from 10.0.0.0/24 lookup 100",
        Delete(Rule, "1000: from 10.0.0.0/24 lookup 100"),
    ),
    ("delete a neighbour", "10.0.0.2 dev lan0", Delete(Neighbour, "10.0.0.2 dev lan0")),
    ("delete a nexthop", "10, and the route through it", Delete(Nexthop, "nexthop 10")),
    ("replace a route", "203.0.113.0/24 becomes BIRD's", Replace(WAN)),
    ("BIRD adds routes", "100, to be left alone", Crowd),
    ("change a knob", "net.ipv4.ip_forward = 0", FORWARDING),
    ("delete a firewall", "table inet filter, whole", Breach(FirewallDamage::Table)),
    ("edit a file", "haproxy.cfg, by hand", Edit),
    ("delete routes", "32 of table 100, one by one", OneByOne),
    ("unplug a bridge port", "lab0 from lan0", Unplug("lab0")),
    ("delete a rule of nft", "ip saddr @admins tcp dport 22", Breach(FirewallDamage::Rule)),
    ("set a link down", "wan0", SetLink("wan0", &[DOWN])),
    ("flap a link", "lan0 down and up", SetLink("lan0", &[DOWN, UP])),
    ("flush routes", "all of homeostat", Flush),
    ("empty a set", "@admins", Breach(FirewallDamage::Set)),
    ("delete a link", "wan0 with all that is on it", Delete(Link, "wan0")),
    ("delete a bridge", "lan0 with all that is on it", Delete(Link, "lan0")),
    ("cut a cable", "lab0, and eth0 inside the lab", Cut("lab0")),
    ("delete a namespace", "lab with all that is inside", Raze),
    ("delete a route", "10.8.0.0/16 blackhole", route("10.8.0.0/16 table 254 metric 0")),
];

const fn route(name: &'static str) -> Damage {
    Delete(Kind::Route, name)
}
