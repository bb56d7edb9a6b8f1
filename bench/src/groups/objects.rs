//! Objects of each kind by their number: as a document declares them, and as requests to the kernel and its events say
//! them.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result};
use homeostat_netlink::{Batch, Group as Multicast, Message, uapi};
use serde_json::Value;

use super::network::{LINK_INDEX, TestNetwork};
use super::wire::{OURS, Verb, address};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rule,
    Address,
    Neighbour,
    Nexthop,
    /// The MTU of a link, which is set to another one, and back.
    Mtu,
    /// A pair of links.
    Pair,
}

/// The lowest priority of the rules.
const PRIORITY: u32 = 1000;
const TABLE: u32 = 100;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const MTU: u32 = 1400;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

impl Kind {
    pub(super) fn document(self, size: usize) -> Result<String> {
        let mut text = String::from(match self {
            Kind::Rule => "rules = [\n",
            Kind::Address => "[links.v0]\naddresses = [\n",
            Kind::Neighbour => "neighbours = [\n",
            Kind::Nexthop => "nexthops = [\n",
            Kind::Mtu | Kind::Pair => "",
        });
        for number in 0..size {
            let ip = address(number);
            match self {
                Kind::Rule => {
                    let priority = PRIORITY as usize + number;
                    writeln!(
                        text,
                        "{{ priority = {priority}, from = \"{ip}\", table = {TABLE} }},"
                    )?;
                }
                Kind::Address => writeln!(text, "\"{ip}/32\",")?,
                Kind::Neighbour => {
                    let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
                    writeln!(text, "{{ to = \"{ip}\", dev = \"v0\", mac = \"{mac}\" }},")?;
                }
                Kind::Nexthop => {
                    writeln!(
                        text,
                        "{{ id = {}, via = \"{GATEWAY}\", dev = \"v0\" }},",
                        number + 1
                    )?;
                }
                Kind::Mtu | Kind::Pair => {
                    let kind = "kind = \"veth\"";
                    writeln!(text, "[links.a{number}]\n{kind}\npeer = \"b{number}\"\nmtu = {MTU}")?;
                }
            }
        }
        text.push_str(if self.is_link() { "" } else { "]\n" });
        Ok(text)
    }

    pub(super) fn is_link(self) -> bool {
        matches!(self, Kind::Mtu | Kind::Pair)
    }

    /// One acked request. What is added is as declared.
    pub(super) fn request(self, verb: Verb, number: usize) -> Result<Batch> {
        let mut batch = Batch::new();
        self.write(&mut batch, verb, number, uapi::NLM_F_ACK)?;
        Ok(batch)
    }

    /// Requests about the first `size` objects in large sends; the last one of each is acked.
    pub(super) fn sends(self, verb: Verb, size: usize) -> Result<Vec<Batch>> {
        const EACH: usize = 500;
        let starts = (0..size).step_by(EACH);
        let send = |first: usize| {
            let (mut batch, end) = (Batch::new(), (first + EACH).min(size));
            for number in first..end {
                let ack = if number + 1 == end { uapi::NLM_F_ACK } else { 0 };
                self.write(&mut batch, verb, number, ack)?;
            }
            Ok(batch)
        };
        starts.map(send).collect()
    }

    /// Adds one request, with additional flags.
    fn write(self, batch: &mut Batch, verb: Verb, number: usize, more: u16) -> Result<()> {
        const INET: u8 = 2;
        let (ip, [i0, i1, i2, i3]) = (address(number).octets(), LINK_INDEX.to_ne_bytes());
        let add = uapi::NLM_F_CREATE | uapi::NLM_F_EXCL;
        let (kind, flags) = match (self, verb) {
            (Kind::Rule, Verb::Add) => (uapi::RTM_NEWRULE, add),
            (Kind::Rule, Verb::Delete) => (uapi::RTM_DELRULE, 0),
            (Kind::Address, Verb::Add) => (uapi::RTM_NEWADDR, add),
            (Kind::Address, Verb::Delete) => (uapi::RTM_DELADDR, 0),
            (Kind::Neighbour, Verb::Add) => (uapi::RTM_NEWNEIGH, add),
            (Kind::Neighbour, Verb::Delete) => (uapi::RTM_DELNEIGH, 0),
            (Kind::Nexthop, Verb::Add) => (uapi::RTM_NEWNEXTHOP, add),
            (Kind::Nexthop, Verb::Delete) => (uapi::RTM_DELNEXTHOP, 0),
            (Kind::Pair, Verb::Add) => (uapi::RTM_NEWLINK, add),
            (Kind::Pair, Verb::Delete) => (uapi::RTM_DELLINK, 0),
            (Kind::Mtu, _) => (uapi::RTM_NEWLINK, 0),
        };
        let mut message = batch.message(kind, flags | more);
        match self {
            Kind::Rule => {
                message.fixed(&[INET, 0, 32, 0, 0, 0, 0, uapi::FR_ACT_TO_TBL, 0, 0, 0, 0]);
                message.attr_u32(uapi::FRA_PRIORITY, PRIORITY + u32::try_from(number)?);
                message.attr(uapi::FRA_SRC, &ip);
                message.attr_u32(uapi::FRA_TABLE, TABLE);
                message.attr_u8(uapi::FRA_PROTOCOL, OURS);
            }
            Kind::Address => {
                message.fixed(&[INET, 32, 0, 0, i0, i1, i2, i3]);
                message.attr(uapi::IFA_LOCAL, &ip).attr(uapi::IFA_ADDRESS, &ip);
                message.attr_u8(uapi::IFA_PROTO, OURS);
            }
            Kind::Neighbour => {
                let [s0, s1] = uapi::NUD_PERMANENT.to_ne_bytes();
                message.fixed(&[INET, 0, 0, 0, i0, i1, i2, i3, s0, s1, 0, 0]);
                if verb == Verb::Add {
                    message.attr_u8(uapi::NDA_PROTOCOL, OURS);
                    message.attr(uapi::NDA_LLADDR, &MAC);
                }
                message.attr(uapi::NDA_DST, &ip);
            }
            Kind::Nexthop => {
                let is_new = verb == Verb::Add;
                let (family, protocol) = if is_new { (INET, OURS) } else { (0, 0) };
                message.fixed(&[family, 0, protocol, 0, 0, 0, 0, 0]);
                message.attr_u32(uapi::NHA_ID, 1 + u32::try_from(number)?);
                if is_new {
                    message.attr_u32(uapi::NHA_OIF, LINK_INDEX);
                    message.attr(uapi::NHA_GATEWAY, &GATEWAY.octets());
                }
            }
            Kind::Mtu => {
                let mtu = if verb == Verb::Add { MTU } else { MTU + 1 };
                message.fixed(&[0; 16]);
                message.attr(uapi::IFLA_IFNAME, format!("a{number}\0").as_bytes());
                message.attr_u32(uapi::IFLA_MTU, mtu);
            }
            Kind::Pair => {
                message.fixed(&[0; 16]);
                message.attr(uapi::IFLA_IFNAME, format!("a{number}\0").as_bytes());
                if verb == Verb::Add {
                    message.attr_u32(uapi::IFLA_MTU, MTU);
                    message.nest_unmarked(uapi::IFLA_LINKINFO, |info| {
                        info.attr(uapi::IFLA_INFO_KIND, b"veth");
                        info.nest_unmarked(uapi::IFLA_INFO_DATA, |data| {
                            data.nest_unmarked(uapi::VETH_INFO_PEER, |peer| {
                                peer.fixed(&[0; 16]);
                                peer.attr(uapi::IFLA_IFNAME, format!("b{number}\0").as_bytes());
                            });
                        });
                    });
                }
            }
        }
        Ok(message.finish()?)
    }

    pub(super) fn multicast(self) -> Multicast {
        Multicast(match self {
            Kind::Rule => uapi::RTNLGRP_IPV4_RULE,
            Kind::Address => uapi::RTNLGRP_IPV4_IFADDR,
            Kind::Neighbour => uapi::RTNLGRP_NEIGH,
            Kind::Nexthop => uapi::RTNLGRP_NEXTHOP,
            Kind::Mtu | Kind::Pair => uapi::RTNLGRP_LINK,
        })
    }

    /// Whether an event says that the object of this number is as declared.
    pub(super) fn is_back(self, message: &Message<'_>, number: usize) -> bool {
        let ip = address(number).octets();
        let has = |attrs: homeostat_netlink::Attrs<'_>, kind: u16, value: &[u8]| {
            attrs.first(kind).ok().flatten().is_some_and(|attr| attr.value == value)
        };
        match (self, message.kind) {
            (Kind::Rule, uapi::RTM_NEWRULE) => {
                message.split::<12>().is_ok_and(|(_, attrs)| has(attrs, uapi::FRA_SRC, &ip))
            }
            (Kind::Address, uapi::RTM_NEWADDR) => {
                message.split::<8>().is_ok_and(|(_, attrs)| has(attrs, uapi::IFA_LOCAL, &ip))
            }
            // One that is deleted is announced as new first, with a state in which it is of no use.
            (Kind::Neighbour, uapi::RTM_NEWNEIGH) => {
                message.split::<12>().is_ok_and(|([_, _, _, _, _, _, _, _, s0, s1, ..], attrs)| {
                    [*s0, *s1] == uapi::NUD_PERMANENT.to_ne_bytes()
                        && has(attrs, uapi::NDA_DST, &ip)
                })
            }
            (Kind::Nexthop, uapi::RTM_NEWNEXTHOP) => {
                message.split::<8>().is_ok_and(|(_, attrs)| {
                    let id = u32::try_from(number + 1).unwrap_or(u32::MAX);
                    has(attrs, uapi::NHA_ID, &id.to_ne_bytes())
                })
            }
            (Kind::Mtu | Kind::Pair, uapi::RTM_NEWLINK) => {
                message.split::<16>().is_ok_and(|(_, attrs)| {
                    let name = format!("a{number}\0");
                    has(attrs.clone(), uapi::IFLA_IFNAME, name.as_bytes())
                        && has(attrs, uapi::IFLA_MTU, &MTU.to_ne_bytes())
                })
            }
            _ => false,
        }
    }

    /// How many of them the calling thread's namespace has, as `ip` lists them.
    pub(super) fn count(self, network: &TestNetwork) -> Result<usize> {
        let words: &[&str] = match self {
            Kind::Rule => &["-4", "rule", "show"],
            Kind::Address => &["-4", "address", "show", "dev", "v0", "to", "11.0.0.0/8"],
            Kind::Neighbour => &["neighbour", "show", "dev", "v0", "nud", "permanent"],
            Kind::Nexthop => &["nexthop", "show"],
            Kind::Mtu | Kind::Pair => &["link", "show", "type", "veth"],
        };
        let listed = network.listed(words)?;
        let listed = listed.as_array().context("no list")?;
        Ok(match self {
            Kind::Address => {
                let addresses = listed.first().and_then(|link| link.get("addr_info"));
                addresses.and_then(Value::as_array).map_or(0, Vec::len)
            }
            Kind::Mtu | Kind::Pair => {
                let names = listed.iter().filter_map(|link| link.get("ifname")?.as_str());
                names.filter(|name| name.starts_with('a')).count()
            }
            // The kernel's own have others.
            Kind::Rule => {
                let priorities = listed.iter().filter_map(|rule| rule.get("priority")?.as_u64());
                priorities.filter(|priority| (PRIORITY.into()..32_766).contains(priority)).count()
            }
            Kind::Neighbour | Kind::Nexthop => listed.len(),
        })
    }
}
