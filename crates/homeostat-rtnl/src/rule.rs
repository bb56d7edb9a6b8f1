//! Rules: which packets look up which table. Key, managed part, netlink messages, which key an observed rule is on,
//! and the requests that change or delete one.
//!
//! Quirk `rules-coexist` (Linux 6.18): a rule is identified by all of its attributes, its protocol included, so that
//! two may have one key and none can be changed in place. A change creates the other one first, and deletes
//! the former one after that.
//!
//! Quirk `rule-delete-takes-the-first-match` (Linux 6.18): a delete removes the first rule that has
//! all the attributes that it names, also one that has more of them. It honours the protocol, so
//! that only another rule of ours can be in the way: that one is deleted too, and created again at once.
//! One that is to be deleted itself has its own request before (see the order of the plan), unless a guard
//! holds that back: then it is created again, too.
//!
//! Quirk `rule-excl-takes-a-narrower-one-for-the-same` (Linux 6.18): with `NLM_F_EXCL` a rule for all
//! packets is refused where one of the same protocol and table exists for those of a network. So that
//! flag is left out where we know of such a one; it could only keep off a second one of ours anyway.
//!
//! Quirk `rules-are-alike-inverted` (Linux 6.18): neither a delete nor `NLM_F_EXCL` looks at `not`, nor at the target of
//! a `goto`: two rules that differ only in that are one to the kernel.

#[cfg(feature = "document")]
pub(crate) mod section;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use homeostat_core::{Desired as _, Failure, Outcome, Retry};
use homeostat_netlink::uapi::{
    FIB_RULE_INVERT, FR_ACT_BLACKHOLE, FR_ACT_GOTO, FR_ACT_NOP, FR_ACT_PROHIBIT, FR_ACT_TO_TBL,
    FR_ACT_UNREACHABLE, FRA_DPORT_MASK, FRA_DPORT_RANGE, FRA_DSCP, FRA_DSCP_MASK, FRA_DST,
    FRA_FWMARK, FRA_FWMASK, FRA_GOTO, FRA_IIFNAME, FRA_IP_PROTO, FRA_L3MDEV, FRA_OIFNAME, FRA_PAD,
    FRA_PRIORITY, FRA_PROTOCOL, FRA_SPORT_MASK, FRA_SPORT_RANGE, FRA_SRC, FRA_SUPPRESS_PREFIXLEN,
    FRA_TABLE, FRA_TUN_ID, FRA_UID_RANGE, NLM_F_CREATE, NLM_F_EXCL, RTM_DELRULE, RTM_GETRULE,
    RTM_NEWRULE,
};
use homeostat_netlink::{Attr, Error, Malformed, Message, Result};
use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::desired::DesiredState;
use crate::key::Key;
use crate::link::LinkName;
use crate::message::{Encoder, put_ip, put_link_name, read_ip};
use crate::moment::Moment;
use crate::net::{Family, Net};
use crate::number::{NO_NUMBER, ParseError, Protocol, Table, Tos, named_number};
use crate::object::Object;
use crate::observe::{Observation, collect};
use crate::release::is_before;
use crate::requests::{Goal, RequestWriter, Written};
use crate::route::observe::route_owner;

/// The managed part of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What is done with the packets.
    pub action: RuleAction,
    /// Routes with a prefix this short or shorter are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_prefixlength: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAction {
    /// Asks a table.
    Table(Table),
    /// Asks the table of the packet's VRF.
    L3mdev,
    /// Drops silently.
    Blackhole,
    /// Drops; the sender learns that the destination cannot be reached.
    Unreachable,
    /// Drops; the sender learns that it is forbidden.
    Prohibit,
    /// Goes on with the rules from this priority on.
    Goto(u32),
    /// Goes on with the next rule: it is a place to go to.
    Nop,
    /// Something that the kernel knows and we do not.
    Other(u8),
}

impl Rule {
    /// A rule that asks a table.
    #[must_use]
    pub fn table(table: Table) -> Self {
        Rule::of(RuleAction::Table(table))
    }

    #[must_use]
    pub fn of(action: RuleAction) -> Self {
        Rule { action, suppress_prefixlength: None }
    }

    /// Whether the kernel would take this rule for one that is asked for.
    fn fits(&self, asked: &Rule) -> bool {
        let action = match (self.action, asked.action) {
            (RuleAction::Table(_), RuleAction::L3mdev)
            | (RuleAction::Goto(_), RuleAction::Goto(_)) => true,
            (seen, asked) => seen == asked,
        };
        action && fits(self.suppress_prefixlength, asked.suppress_prefixlength)
    }
}

/// Why a declared rule can never be.
pub(crate) fn check(key: &RuleKey, desired: &Rule) -> Result<(), Impossible> {
    key.check()?;
    let asks = matches!(desired.action, RuleAction::Table(_) | RuleAction::L3mdev);
    let most = if key.is_ipv4() { 32 } else { 128 };
    match desired {
        Rule { action: RuleAction::Other(_), .. } => Err(Impossible::RuleAction),
        Rule { action: RuleAction::Goto(target), .. }
            if key.priority.is_some_and(|priority| *target <= priority) =>
        {
            Err(Impossible::GotoBackwards)
        }
        Rule { suppress_prefixlength: Some(_), .. } if !asks => {
            Err(Impossible::SuppressWithoutTable)
        }
        Rule { suppress_prefixlength: Some(len), .. } if *len > most => {
            Err(Impossible::SuppressLength)
        }
        _ => Ok(()),
    }
}

/// Defines the key of a rule: all that it asks of a packet is listed once, under the names of `ip rule`.
macro_rules! rule_key {
    ($($name:ident = $word:literal: $type:ty, $doc:literal;)+) => {
        /// Which rule. One without a priority is wherever the kernel put it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub struct RuleKey {
            pub family: Family,
            /// The place among the rules; the kernel chooses, if there is none.
            pub priority: Option<u32>,
            /// Whether it is for the packets that do not match.
            pub not: bool,
            $(#[doc = concat!("Only packets ", $doc, ", if it says so.")] pub $name: Option<$type>,)+
            /// The type of service; zero is any.
            pub tos: Tos,
        }

        impl RuleKey {
            /// The rule for all packets of a family, wherever the kernel puts it.
            #[must_use]
            pub fn new(family: Family) -> Self {
                RuleKey {
                    family,
                    priority: None,
                    not: false,
                    $($name: None,)+
                    tos: Tos::default(),
                }
            }

            /// How many things it asks of a packet.
            pub(crate) fn count(&self) -> usize {
                let asks = [self.tos != Tos::default(), $(self.$name.is_some()),+];
                asks.into_iter().filter(|asks| *asks).count()
            }

            /// Whether the kernel would take this rule for one that is asked for, as far as packets go.
            fn fits(&self, asked: &RuleKey) -> bool {
                let own_tos = self.dscp.map_or(self.tos, Dscp::tos);
                let is_tos = asked.tos == Tos::default() || own_tos == asked.tos;
                is_tos $(&& fits(self.$name, asked.$name))+
            }

            fn read_one(&mut self, name: &str, value: &str) -> Option<()> {
                match name {
                    "priority" => self.priority = Some(value.parse().ok()?),
                    "tos" => self.tos = Tos(value.parse().ok()?),
                    $($word => self.$name = Some(value.parse().ok()?),)+
                    _ => return None,
                }
                Some(())
            }
        }

        impl fmt::Display for RuleKey {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("rule")?;
                if self.family == Family::V6 && self.from.is_none() && self.to.is_none() {
                    f.write_str(" inet6")?;
                }
                if self.not {
                    f.write_str(" not")?;
                }
                show(f, "priority", self.priority.as_ref())?;
                $(show(f, $word, self.$name.as_ref())?;)+
                show(f, "tos", Some(&self.tos.0).filter(|tos| **tos != 0))
            }
        }
    };
}

rule_key! {
    from = "from": Net, "from this network";
    to = "to": Net, "to this network";
    iif = "iif": LinkName, "that came in by this link, which need not be there yet";
    oif = "oif": LinkName, "bound to this link, which need not be there yet";
    fwmark = "fwmark": Mark, "with this firewall mark";
    ipproto = "ipproto": IpProtocol, "of this protocol";
    sport = "sport": Ports, "from these ports";
    dport = "dport": Ports, "to these ports";
    uidrange = "uidrange": UidRange, "of sockets of these users";
    tun_id = "tun-id": TunId, "that came by a tunnel under this number";
    dscp = "dscp": Dscp, "with this DSCP";
}

impl RuleKey {
    pub(crate) fn is_ipv4(&self) -> bool {
        self.family == Family::V4
    }

    /// The same without selectors that every packet matches.
    pub(crate) fn plain(mut self) -> Self {
        let asks = |net: &Net| net.prefix_len() != 0 || Family::of(net.addr()) != self.family;
        (self.from, self.to) = (self.from.filter(asks), self.to.filter(asks));
        self.fwmark = self.fwmark.filter(|mark| mark.mask != 0);
        self.ipproto = self.ipproto.filter(|protocol| protocol.0 != 0);
        self.tun_id = self.tun_id.filter(|id| id.0 != 0);
        self
    }

    /// Why a rule for these packets can never be.
    fn check(&self) -> Result<(), Impossible> {
        let nets = self.from.into_iter().chain(self.to);
        let mut ports = self.sport.into_iter().chain(self.dport);
        let has_ports = |protocol: IpProtocol| [6, 17, 33, 132].contains(&protocol.0);
        // Quirk `rule-ports-end-at-65534` (Linux 6.18): the last port is refused in a rule.
        let is_odd =
            |ports: &Ports| ports.first == 0 || ports.last < ports.first || ports.last == u16::MAX;
        if nets.into_iter().any(|net| Family::of(net.addr()) != self.family) {
            return Err(Impossible::RuleFamily);
        }
        if ports.clone().next().is_some() && !self.ipproto.is_some_and(has_ports) {
            return Err(Impossible::PortsWithoutProtocol);
        }
        match ports.any(|ports| is_odd(&ports)) {
            true => Err(Impossible::RulePorts),
            false if self.tos.0 & 3 != 0 => Err(Impossible::TosOfRule),
            false if self.dscp.is_some_and(|dscp| dscp.0 > Dscp::LAST) => Err(Impossible::Dscp),
            false if self.dscp.is_some() && self.tos != Tos::default() => {
                Err(Impossible::DscpAndTos)
            }
            false if self.not && self.count() == 0 => Err(Impossible::NotOfNothing),
            false if self.uidrange.is_some_and(|uids| uids.first > uids.last) => {
                Err(Impossible::UidRange)
            }
            false => Ok(()),
        }
    }

    /// Reads what follows the word `rule`.
    pub(crate) fn read(words: &[&str]) -> Option<Self> {
        let (family, words) = match words {
            ["inet6", words @ ..] => (Some(Family::V6), words),
            words => (None, words),
        };
        let (not, words) = match words {
            ["not", words @ ..] => (true, words),
            words => (false, words),
        };
        let net = |name| words.chunks(2).find(|pair| pair.first() == Some(&name));
        let net = net("from").or_else(|| net("to")).and_then(|pair| pair.get(1));
        let net: Option<Net> = net.map(|net| net.parse()).transpose().ok()?;
        let family = family.or_else(|| net.map(|net| Family::of(net.addr())));
        let mut key = RuleKey { not, ..RuleKey::new(family.unwrap_or(Family::V4)) };
        for pair in words.chunks(2) {
            let [name, value] = pair else { return None };
            key.read_one(name, value)?;
        }
        Some(key.plain())
    }
}

/// A request that does not say fits everything.
fn fits<T: PartialEq + Copy>(one: Option<T>, asked: Option<T>) -> bool {
    asked.is_none() || one == asked
}

fn show(f: &mut fmt::Formatter<'_>, name: &str, value: Option<&impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
}

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
    pub first: u16,
    pub last: u16,
}

/// User ids from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UidRange {
    pub first: u32,
    pub last: u32,
}

impl fmt::Display for UidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for UidRange {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        // The last number stands for no user.
        let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
        let range = id(first).zip(id(last)).map(|(first, last)| UidRange { first, last });
        let range = range.filter(|_| !text.contains('+'));
        ParseError::unless(range, text, NO_NUMBER)
    }
}

/// The number of a tunnel that a packet came by, such as a VNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunId(pub u64);

impl fmt::Display for TunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TunId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        ParseError::unless(text.parse().ok().map(TunId), text, NO_NUMBER)
    }
}

/// How urgent a packet is: the upper six bits of its type of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(pub u8);

impl Dscp {
    pub(crate) const LAST: u8 = 63;

    fn tos(self) -> Tos {
        Tos(self.0 << 2)
    }
}

pub(crate) const DSCPS: [(&str, u8); 22] = [
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

named_number!(Dscp(u8), DSCPS, 0, "a DSCP");

/// The protocol inside an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl Mark {
    /// `VALUE` or `VALUE/MASK`, each decimal or hexadecimal.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let number = |text: &str| match text.strip_prefix("0x") {
            _ if text.contains('+') => None,
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let (value, mask) = text.split_once('/').unwrap_or((text, "0xffffffff"));
        Some(Mark { value: number(value)?, mask: number(mask)? })
    }

    /// Whether all bits are inside of the mask: otherwise no packet would ever match.
    pub(crate) fn can_match(self) -> bool {
        self.value & !self.mask == 0
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mark { value, mask: u32::MAX } => write!(f, "{value:#x}"),
            Mark { value, mask } => write!(f, "{value:#x}/{mask:#x}"),
        }
    }
}

impl FromStr for Mark {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        ParseError::unless(Mark::read(text).filter(|mark| mark.can_match()), text, NO_NUMBER)
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
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = first.parse().ok().zip(last.parse().ok());
        let ports = ports.map(|(first, last)| Ports { first, last });
        ParseError::unless(ports, text, NO_NUMBER)
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

named_number!(IpProtocol(u8), IP_PROTOCOLS, 0, "an IP protocol");

/// Creates a rule, or deletes the first one that has all of these attributes: it may have more.
pub(crate) fn request(
    encoder: &mut Encoder<'_>,
    kind: u16,
    flags: u16,
    rule: &SeenRule,
) -> Result<()> {
    let SeenRule { key, rule, protocol } = rule;
    let len = |net: Option<Net>| net.map_or(0, |net| net.prefix_len());
    let (family, dst_len, src_len) = (key.family.to_kernel(), len(key.to), len(key.from));
    let (action, table) = match rule.action {
        RuleAction::Table(table) => (FR_ACT_TO_TBL, table.0),
        RuleAction::L3mdev => (FR_ACT_TO_TBL, 0),
        RuleAction::Blackhole => (FR_ACT_BLACKHOLE, 0),
        RuleAction::Unreachable => (FR_ACT_UNREACHABLE, 0),
        RuleAction::Prohibit => (FR_ACT_PROHIBIT, 0),
        RuleAction::Goto(_) => (FR_ACT_GOTO, 0),
        RuleAction::Nop => (FR_ACT_NOP, 0),
        RuleAction::Other(number) => (number, 0),
    };
    let short = u8::try_from(table);
    let mut message = encoder.batch.message(kind, flags);
    let head = [family, dst_len, src_len, key.tos.0, short.unwrap_or(0), 0, 0, action];
    let flags = if key.not { FIB_RULE_INVERT } else { 0 };
    message.fixed(&head).fixed(&flags.to_ne_bytes());
    if let RuleAction::Goto(target) = rule.action {
        message.attr_u32(FRA_GOTO, target);
    }
    key.priority.map(|priority| message.attr_u32(FRA_PRIORITY, priority));
    key.from.map(|from| put_ip(&mut message, FRA_SRC, from.addr()));
    key.to.map(|to| put_ip(&mut message, FRA_DST, to.addr()));
    key.iif.map(|name| put_link_name(&mut message, FRA_IIFNAME, name));
    key.oif.map(|name| put_link_name(&mut message, FRA_OIFNAME, name));
    key.fwmark.map(|mark| message.attr_u32(FRA_FWMARK, mark.value).attr_u32(FRA_FWMASK, mark.mask));
    key.ipproto.map(|protocol| message.attr_u8(FRA_IP_PROTO, protocol.0));
    let range = |ports: Ports| [ports.first.to_ne_bytes(), ports.last.to_ne_bytes()];
    key.sport.map(|ports| message.attr(FRA_SPORT_RANGE, range(ports).as_flattened()));
    key.dport.map(|ports| message.attr(FRA_DPORT_RANGE, range(ports).as_flattened()));
    let uids = |uids: UidRange| [uids.first.to_ne_bytes(), uids.last.to_ne_bytes()];
    key.uidrange.map(|range| message.attr(FRA_UID_RANGE, uids(range).as_flattened()));
    key.tun_id.map(|TunId(id)| message.attr(FRA_TUN_ID, &id.to_be_bytes()));
    key.dscp.map(|Dscp(dscp)| message.attr_u8(FRA_DSCP, dscp));
    if short.is_err() {
        message.attr_u32(FRA_TABLE, table);
    }
    if rule.action == RuleAction::L3mdev {
        message.attr_u8(FRA_L3MDEV, 1);
    }
    rule.suppress_prefixlength.map(|len| message.attr_u32(FRA_SUPPRESS_PREFIXLEN, len.into()));
    message.attr_u8(FRA_PROTOCOL, protocol.0);
    message.finish()
}

/// A rule as the kernel reports it: all that makes it what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenRule {
    pub(crate) key: RuleKey,
    pub(crate) rule: Rule,
    pub(crate) protocol: Protocol,
}

/// A rule; none, if it asks something of a packet that no desired state can say, so that it is on no key of
/// ours.
pub(crate) fn decode(message: &Message<'_>) -> Result<Option<SeenRule>, Malformed> {
    let (fixed, attrs) = message.split::<12>()?;
    let [family, dst_len, src_len, tos, table, _, _, action, f0, f1, f2, f3] = *fixed;
    let Some(family) = Family::from_kernel(family) else { return Ok(None) };
    // What no desired state can say.
    let (mut is_odd, mut target) = (false, 0);
    let not = u32::from_ne_bytes([f0, f1, f2, f3]) & FIB_RULE_INVERT != 0;
    let (mut table, mut is_l3mdev, mut suppress_prefixlength) = (u32::from(table), false, None);
    let (mut value, mut mask, mut protocol) = (0, 0, 0);
    let mut key = RuleKey { priority: Some(0), not, tos: Tos(tos), ..RuleKey::new(family) };
    for attr in attrs {
        let attr = attr?;
        match attr.kind {
            FRA_SRC => key.from = Some(Net::masked(read_ip(&attr)?, src_len)),
            FRA_DST => key.to = Some(Net::masked(read_ip(&attr)?, dst_len)),
            FRA_PRIORITY => key.priority = Some(attr.u32()?),
            FRA_IIFNAME => key.iif = Some(name(&attr)),
            FRA_OIFNAME => key.oif = Some(name(&attr)),
            FRA_IP_PROTO => key.ipproto = Some(IpProtocol(attr.u8()?)),
            FRA_SPORT_RANGE => key.sport = Some(ports(&attr)?),
            FRA_DPORT_RANGE => key.dport = Some(ports(&attr)?),
            FRA_FWMARK => value = attr.u32()?,
            FRA_FWMASK => mask = attr.u32()?,
            FRA_TABLE => table = attr.u32()?,
            FRA_L3MDEV => is_l3mdev = attr.u8()? != 0,
            FRA_PROTOCOL => protocol = attr.u8()?,
            // All bits stand for none.
            FRA_SUPPRESS_PREFIXLEN => suppress_prefixlength = u8::try_from(attr.u32()?).ok(),
            // A single port comes with all bits of its mask (Linux 6.15).
            FRA_SPORT_MASK | FRA_DPORT_MASK => is_odd |= attr.u16()? != u16::MAX,
            FRA_GOTO => target = attr.u32()?,
            FRA_UID_RANGE => key.uidrange = Some(uids(&attr)?),
            FRA_TUN_ID => key.tun_id = Some(TunId(u64::from_be_bytes(attr.array()?))),
            FRA_DSCP => key.dscp = Some(Dscp(attr.u8()?)),
            FRA_DSCP_MASK => is_odd |= attr.u8()? != Dscp::LAST,
            FRA_PAD => {}
            _ => is_odd = true,
        }
    }
    key.fwmark = Some(Mark { value, mask });
    let action = match action {
        FR_ACT_TO_TBL if is_l3mdev => RuleAction::L3mdev,
        FR_ACT_TO_TBL => RuleAction::Table(Table(table)),
        FR_ACT_BLACKHOLE => RuleAction::Blackhole,
        FR_ACT_UNREACHABLE => RuleAction::Unreachable,
        FR_ACT_PROHIBIT => RuleAction::Prohibit,
        FR_ACT_GOTO => RuleAction::Goto(target),
        FR_ACT_NOP => RuleAction::Nop,
        other => RuleAction::Other(other),
    };
    let (key, rule) = (key.plain(), Rule { action, suppress_prefixlength });
    Ok((!is_odd).then_some(SeenRule { key, rule, protocol: Protocol(protocol) }))
}

/// The name of a link that need not be there. One that is no text is one that no desired state can hold.
fn name(attr: &Attr<'_>) -> LinkName {
    LinkName::padded(attr.str().unwrap_or(":"))
}

fn ports(attr: &Attr<'_>) -> Result<Ports, Malformed> {
    let [f0, f1, l0, l1] = attr.array()?;
    Ok(Ports { first: u16::from_ne_bytes([f0, f1]), last: u16::from_ne_bytes([l0, l1]) })
}

fn uids(attr: &Attr<'_>) -> Result<UidRange, Malformed> {
    let [f0, f1, f2, f3, l0, l1, l2, l3] = attr.array()?;
    let (first, last) = ([f0, f1, f2, f3], [l0, l1, l2, l3]);
    Ok(UidRange { first: u32::from_ne_bytes(first), last: u32::from_ne_bytes(last) })
}

/// A rule that exists, in the kernel's order.
#[derive(Clone, Debug)]
pub(crate) struct ObservedRule {
    /// The rule, with the key that it really has.
    pub(crate) seen: SeenRule,
    /// The key that it is reported under: that of a desired rule without a priority, if it fulfils one.
    pub(crate) key: RuleKey,
    pub(crate) verdict: Verdict,
}

/// What a pass does with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is as declared, or out of focus.
    Keep,
    /// It is ours and not declared, or one too many.
    Delete,
    /// It belongs to another owner.
    Foreign,
}

/// Dumps all rules, of which the shadow then knows.
pub(crate) fn observe_all(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
) -> Result<(), Error> {
    let mut known = KnownRules::default();
    for family in [Family::V4, Family::V6] {
        let fixed = [family.to_kernel(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let found = collect(observation.connection, RTM_GETRULE, &fixed, decode)?;
        for seen in found {
            known.add(seen);
            moment.rules.push(observed(seen, observation.view.desired));
        }
    }
    if let Some(shadow) = &mut observation.shadow {
        shadow.rules = Some(known);
    }
    report(observation, moment);
    Ok(())
}

/// Reports the rules that some keys may be about, without a dump if the shadow knows them.
pub(crate) fn observe_some(
    observation: &mut Observation<'_, '_>,
    moment: &mut Moment,
    keys: &BTreeSet<Key>,
) -> Result<(), Error> {
    let desired = observation.view.desired;
    let Some(known) = observation.shadow.as_ref().and_then(|shadow| shadow.rules.as_ref()) else {
        return observe_all(observation, moment);
    };
    let mut places = BTreeSet::new();
    for key in keys {
        match key {
            Key::Rule(rule) if rule.priority.is_some() => {
                places.insert((rule.family, rule.priority));
            }
            // A desired rule without a priority is fulfilled anywhere.
            Key::Rule(rule) if desired.slot(key, None).is_some() => {
                places.extend(known.places_of(rule.family));
            }
            _ => {}
        }
    }
    let found = places.iter().flat_map(|place| known.at(*place));
    moment.rules.extend(found.map(|seen| observed(*seen, desired)));
    report(observation, moment);
    Ok(())
}

fn report(observation: &mut Observation<'_, '_>, moment: &mut Moment) {
    let focus = observation.view.focus;
    decide(&mut moment.rules, observation.source.protocol, observation.view.desired);
    for observed in reported(&moment.rules) {
        let owner = route_owner(observed.seen.protocol, observation.source.protocol);
        observation.report(Key::from(observed.key), Object::Rule(observed.seen.rule), owner);
    }
    // Rules outside the focus are kept in this pass.
    let hidden = moment.rules.iter_mut().filter(|one| one.verdict == Verdict::Delete);
    for observed in hidden.filter(|one| !focus.covers(&Key::from(one.key))) {
        observed.verdict = Verdict::Keep;
    }
}

/// The family and the priority of a rule: the kernel looks for a rule to delete among those that have both.
type RulePlace = (Family, Option<u32>);

/// The rules that there are by what was dumped and announced, in the kernel's order.
#[derive(Debug, Default)]
pub(crate) struct KnownRules {
    by_place: BTreeMap<RulePlace, Vec<SeenRule>>,
}

impl KnownRules {
    /// A rule comes behind all others of its priority.
    pub(crate) fn add(&mut self, seen: SeenRule) {
        self.by_place.entry((seen.key.family, seen.key.priority)).or_default().push(seen);
    }

    pub(crate) fn remove(&mut self, seen: &SeenRule) {
        if let Some(rules) = self.by_place.get_mut(&(seen.key.family, seen.key.priority))
            && let Some(at) = rules.iter().position(|one| one == seen)
        {
            rules.remove(at);
        }
    }

    fn at(&self, place: RulePlace) -> &[SeenRule] {
        self.by_place.get(&place).map(Vec::as_slice).unwrap_or_default()
    }

    fn places_of(&self, family: Family) -> impl Iterator<Item = RulePlace> {
        self.by_place.range((family, None)..=(family, Some(u32::MAX))).map(|(place, _)| *place)
    }
}

impl From<RuleKey> for Key {
    fn from(key: RuleKey) -> Key {
        Key::Rule(Box::new(key))
    }
}

/// A rule with the key that it is reported under.
fn observed(seen: SeenRule, desired: &DesiredState) -> ObservedRule {
    let is_declared = |key: RuleKey| desired.slot(&key.into(), None).is_some();
    let anywhere = RuleKey { priority: None, ..seen.key };
    let key = if !is_declared(seen.key) && is_declared(anywhere) { anywhere } else { seen.key };
    ObservedRule { seen, key, verdict: Verdict::Foreign }
}

/// The first of ours that is as declared is kept; the others of ours are deleted. A foreign rule has the
/// key of a desired rule without a priority only if it is as declared: otherwise there is room beside it.
fn decide(rules: &mut [ObservedRule], ours: Protocol, desired: &DesiredState) {
    let mut kept = BTreeSet::new();
    for observed in &mut *rules {
        let slot = desired.slot(&observed.key.into(), None);
        let agrees =
            slot.is_some_and(|slot| desired.object(slot) == Object::Rule(observed.seen.rule));
        if observed.seen.protocol != ours {
            observed.key = if agrees { observed.key } else { observed.seen.key };
        } else if agrees && kept.insert(observed.key) {
            observed.verdict = Verdict::Keep;
        } else {
            observed.verdict = Verdict::Delete;
        }
    }
    // A desired rule without a priority is fulfilled by one rule; those at other places are not declared.
    for observed in rules.iter_mut().filter(|one| one.verdict == Verdict::Delete) {
        if observed.key != observed.seen.key && !kept.insert(observed.key) {
            observed.key = observed.seen.key;
        }
    }
}

/// One rule per key: ours that will be deleted, else ours, else the first foreign one. In the kernel's order.
fn reported(rules: &[ObservedRule]) -> impl Iterator<Item = &ObservedRule> {
    let rank = |rule: &ObservedRule| match rule.verdict {
        Verdict::Delete => 0,
        Verdict::Keep => 1,
        Verdict::Foreign => 2,
    };
    let mut best: BTreeMap<RuleKey, (u8, usize)> = BTreeMap::new();
    for (at, rule) in rules.iter().enumerate() {
        let entry = best.entry(rule.key).or_insert((rank(rule), at));
        *entry = (rank(rule), at).min(*entry);
    }
    let places: BTreeSet<usize> = best.into_values().map(|(_, at)| at).collect();
    places.into_iter().filter_map(|at| rules.get(at))
}

/// Creates the rule as declared, unless it exists beside the one that is deleted.
pub(crate) fn put(
    writer: &mut RequestWriter<'_>,
    desired: &DesiredState,
    key: &RuleKey,
    rule: &Rule,
) -> Written {
    if on(key, writer.moment).any(|(_, one)| one.verdict == Verdict::Keep) {
        return Err(Outcome::Applied { now: None });
    }
    // Quirk `a-dscp-is-ignored` (Linux before 6.13): what a rule asks and the kernel does not know is left out, so that
    // the rule would be for all packets.
    if key.dscp.is_some() && is_before((6, 13)) {
        let failure =
            Failure::new("this kernel has no rules by DSCP: Linux 6.13 does", Retry::Never);
        let help = "declare `tos`, which looks at the lower three bits of the DSCP";
        return Err(Outcome::Failed(failure.with_help(help)));
    }
    let asked = SeenRule { key: *key, rule: *rule, protocol: writer.encoder.protocol };
    let near = writer.moment.rules.get(near(key, writer.moment)).unwrap_or_default();
    let inverted = Key::from(RuleKey { not: !key.not, ..*key });
    let is_broad =
        near.iter().any(|one| is_hit(&one.seen, &asked)) || desired.slot(&inverted, None).is_some();
    let flags = if is_broad { NLM_F_CREATE } else { NLM_F_CREATE | NLM_F_EXCL };
    let encoded = request(&mut writer.encoder, RTM_NEWRULE, flags, &asked);
    writer.add(Ok(encoded), Goal::Ensure)
}

/// Which rules on a key are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// All of ours: nothing is to be there.
    All,
    /// Those of ours that are not as declared.
    Others,
}

/// Deletes rules of ours on a key or, if none is ours, the one that was taken over.
pub(crate) fn delete(writer: &mut RequestWriter<'_>, key: &RuleKey, leaving: Leaving) -> Written {
    let moment = writer.moment;
    let is_foreign = |one: &ObservedRule| one.verdict == Verdict::Foreign;
    let going: Vec<usize> = if on(key, moment).all(|(_, one)| is_foreign(one)) {
        on(key, moment).take(1).map(|(at, _)| at).collect()
    } else {
        let is_leaving = |one: &ObservedRule| match leaving {
            Leaving::All => !is_foreign(one),
            Leaving::Others => one.verdict == Verdict::Delete,
        };
        let going = on(key, moment).filter(|(_, one)| is_leaving(one));
        going.map(|(at, _)| at).collect()
    };
    for at in &going {
        delete_one(writer, *at)?;
    }
    if going.is_empty() { Err(Outcome::Applied { now: None }) } else { Ok(()) }
}

fn delete_one(writer: &mut RequestWriter<'_>, at: usize) -> Written {
    let moment = writer.moment;
    let Some(ObservedRule { seen: going, .. }) = moment.rules.get(at) else { return Ok(()) };
    let before = near(&going.key, moment).start..at;
    let before = before.clone().zip(moment.rules.get(before).unwrap_or_default());
    let in_the_way =
        before.filter(|(at, one)| !writer.moved.contains(at) && is_hit(&one.seen, going));
    let (places, in_the_way): (Vec<usize>, Vec<&ObservedRule>) = in_the_way.unzip();
    if let Some(other) = in_the_way.iter().find(|one| one.verdict == Verdict::Foreign) {
        let key = Key::from(other.seen.key);
        let error = format!("the kernel would take `{key}` for it, which belongs to another owner");
        let failure = Failure::new(error, Retry::OnChange)
            .with_help("remove that rule, or this one, by hand");
        return Err(Outcome::Failed(failure));
    }
    for one in &in_the_way {
        let gone = request(&mut writer.encoder, RTM_DELRULE, 0, &one.seen);
        writer.add(Ok(gone), Goal::Any)?;
    }
    let gone = request(&mut writer.encoder, RTM_DELRULE, 0, going);
    writer.add(Ok(gone), Goal::Delete)?;
    writer.moved.extend(places.into_iter().chain([at]));
    for one in in_the_way {
        let again = request(&mut writer.encoder, RTM_NEWRULE, NLM_F_CREATE, &one.seen);
        writer.add(Ok(again), Goal::Any)?;
    }
    Ok(())
}

/// The rules with a key, with their places among all.
fn on<'m>(
    key: &RuleKey,
    moment: &'m Moment,
) -> impl Iterator<Item = (usize, &'m ObservedRule)> + use<'m> {
    let key = *key;
    // One that is fulfilled anywhere may stand anywhere.
    let places = if key.priority.is_some() { near(&key, moment) } else { 0..moment.rules.len() };
    let rules = moment.rules.get(places.clone()).unwrap_or_default();
    places.zip(rules).filter(move |(_, observed)| observed.key == key)
}

/// Where the rules of the family and priority of a key are among all, which are in the kernel's order.
fn near(key: &RuleKey, moment: &Moment) -> Range<usize> {
    let place = |one: &ObservedRule| (one.seen.key.family, one.seen.key.priority);
    let start = moment.rules.partition_point(|one| place(one) < (key.family, key.priority));
    let end = moment.rules.partition_point(|one| place(one) <= (key.family, key.priority));
    start..end
}

/// Whether a request to delete `going` would fit another rule too.
fn is_hit(other: &SeenRule, going: &SeenRule) -> bool {
    let (one, asked) = (&other.key, &going.key);
    (one.family, one.priority) == (asked.family, asked.priority)
        && (going.protocol.0 == 0 || other.protocol == going.protocol)
        && one.fits(asked)
        && other.rule.fits(&going.rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::number::Tos;

    fn key(text: &str) -> RuleKey {
        match text.parse() {
            Ok(Key::Rule(key)) => *key,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_can_never_be_is_refused_with_its_reason() {
        let main = Rule::table(Table::MAIN);
        let suppress = |action, len| Rule { action, suppress_prefixlength: Some(len) };
        let v6 = "2001:db8::/32".parse().unwrap();
        let v4_key = key("rule from 10.0.0.0/8");
        for (key, rule, why) in [
            (RuleKey { to: Some(v6), ..v4_key }, main, Impossible::RuleFamily),
            (key("rule dport 80"), main, Impossible::PortsWithoutProtocol),
            (key("rule ipproto icmp dport 80"), main, Impossible::PortsWithoutProtocol),
            (key("rule ipproto tcp dport 80-65535"), main, Impossible::RulePorts),
            (key("rule ipproto tcp sport 0"), main, Impossible::RulePorts),
            (RuleKey { tos: Tos(1), ..key("rule") }, main, Impossible::TosOfRule),
            (key("rule"), Rule::of(RuleAction::Other(7)), Impossible::RuleAction),
            (key("rule priority 9"), Rule::of(RuleAction::Goto(9)), Impossible::GotoBackwards),
            (key("rule not"), main, Impossible::NotOfNothing),
            (key("rule uidrange 7-6"), main, Impossible::UidRange),
            (key("rule dscp 64"), main, Impossible::Dscp),
            (key("rule tos 16 dscp EF"), main, Impossible::DscpAndTos),
            (key("rule"), suppress(RuleAction::Nop, 0), Impossible::SuppressWithoutTable),
            (key("rule"), suppress(RuleAction::Prohibit, 0), Impossible::SuppressWithoutTable),
            (key("rule"), suppress(main.action, 33), Impossible::SuppressLength),
        ] {
            assert_eq!(check(&key, &rule), Err(why), "{key}");
        }
        assert!(check(&key("rule inet6"), &suppress(main.action, 33)).is_ok());
        assert!(check(&key("rule"), &Rule::of(RuleAction::Goto(0))).is_ok());
    }

    #[test]
    fn keys_read_back_from_their_own_text() {
        for text in [
            "rule not priority 9 fwmark 0xca6c",
            "rule inet6 not uidrange 1000-1000",
            "rule from 10.0.0.0/8 uidrange 0-4294967294 tun-id 5 dscp EF",
            "rule dscp 63 tos 0",
        ] {
            let key = key(text);
            assert_eq!(key.to_string().parse(), Ok(Key::from(key)), "{text}");
        }
        assert_eq!(key("rule dscp 46").to_string(), "rule dscp EF");
        assert_eq!(key("rule tun-id 0").to_string(), "rule");
        for text in
            ["rule not not", "rule uidrange 4294967295", "rule uidrange +1", "rule tun-id x"]
        {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}
