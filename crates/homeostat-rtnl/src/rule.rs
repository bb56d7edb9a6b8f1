//! Rules: which packets look up which table.
//!
//! Quirk `rules-coexist` (Linux 6.18): a rule is identified by all of its attributes, its protocol included, so that
//! two may have one key and none can be changed in place. A change creates the other one first, and deletes
//! the former one after that.

pub(crate) mod message;
mod observe;
mod requests;
#[cfg(feature = "document")]
pub(crate) mod section;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::builder::Impossible;
use crate::link::LinkName;
use crate::net::{Family, Net};
use crate::number::{NO_NUMBER, ParseError, Table, Tos, named_number};

pub(crate) use observe::ObservedRule;

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

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAction {
    /// Asks a table.
    Table(Table),
    /// Asks the table of the packet's VRF.
    L3mdev,
    /// Drops silently.
    Blackhole,
    /// Drops; the sender is told that the destination cannot be reached.
    Unreachable,
    /// Drops; the sender is told that it is forbidden.
    Prohibit,
    /// Something that the kernel knows and we do not.
    Other(u8),
}

impl Rule {
    /// A rule that asks a table.
    #[must_use]
    pub fn table(table: Table) -> Self {
        Rule::of(RuleAction::Table(table))
    }

    /// A rule with an action.
    #[must_use]
    pub fn of(action: RuleAction) -> Self {
        Rule { action, suppress_prefixlength: None }
    }
}

impl Rule {
    /// Whether the kernel would take this rule for one that is asked for.
    fn fits(&self, asked: &Rule) -> bool {
        let is_table = matches!(self.action, RuleAction::Table(_));
        let action = self.action == asked.action || asked.action == RuleAction::L3mdev && is_table;
        action && fits(self.suppress_prefixlength, asked.suppress_prefixlength)
    }
}

/// Brings a declared rule to the form in which it is compared.
pub(crate) fn normalize(key: &RuleKey, desired: Rule) -> Result<Rule, Impossible> {
    key.check()?;
    let asks = matches!(desired.action, RuleAction::Table(_) | RuleAction::L3mdev);
    let most = if key.is_ipv4() { 32 } else { 128 };
    match desired {
        Rule { action: RuleAction::Other(_), .. } => Err(Impossible::RuleAction),
        Rule { suppress_prefixlength: Some(_), .. } if !asks => {
            Err(Impossible::SuppressWithoutTable)
        }
        Rule { suppress_prefixlength: Some(len), .. } if len > most => {
            Err(Impossible::SuppressLength)
        }
        desired => Ok(desired),
    }
}

/// Defines the key of a rule: all that it asks of a packet is listed once, under the names of `ip rule`.
macro_rules! rule_key {
    ($($name:ident: $type:ty, $doc:literal;)+) => {
        /// Which rule. One without a priority is wherever the kernel put it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub struct RuleKey {
            pub family: Family,
            /// The place among the rules; the kernel chooses, if there is none.
            pub priority: Option<u32>,
            $(#[doc = concat!("Only packets ", $doc, ", if it says so.")] pub $name: Option<$type>,)+
            /// The type of service; zero is any.
            pub tos: Tos,
        }

        impl RuleKey {
            /// The rule for all packets of a family, wherever the kernel puts it.
            #[must_use]
            pub fn new(family: Family) -> Self {
                RuleKey { family, priority: None, $($name: None,)+ tos: Tos::default() }
            }

            /// How many things it asks of a packet.
            pub(crate) fn count(&self) -> usize {
                let asks = [self.tos != Tos::default(), $(self.$name.is_some()),+];
                asks.into_iter().filter(|asks| *asks).count()
            }

            /// Whether the kernel would take this rule for one that is asked for, as far as packets go.
            fn fits(&self, asked: &RuleKey) -> bool {
                let is_tos = asked.tos == Tos::default() || self.tos == asked.tos;
                is_tos $(&& fits(self.$name, asked.$name))+
            }

            fn read_one(&mut self, name: &str, value: &str) -> Option<()> {
                match name {
                    "priority" => self.priority = Some(value.parse().ok()?),
                    "tos" => self.tos = Tos(value.parse().ok()?),
                    $(stringify!($name) => self.$name = Some(value.parse().ok()?),)+
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
                show(f, "priority", self.priority.as_ref())?;
                $(show(f, stringify!($name), self.$name.as_ref())?;)+
                show(f, "tos", Some(&self.tos.0).filter(|tos| **tos != 0))
            }
        }
    };
}

rule_key! {
    from: Net, "from this network";
    to: Net, "to this network";
    iif: LinkName, "that came in by this link, which need not be there yet";
    oif: LinkName, "bound to this link, which need not be there yet";
    fwmark: Mark, "with this firewall mark";
    ipproto: IpProtocol, "of this protocol";
    sport: Ports, "from these ports";
    dport: Ports, "to these ports";
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
        self
    }

    /// Why a rule for these packets can never be.
    pub(super) fn check(&self) -> Result<(), Impossible> {
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
            false => Ok(()),
        }
    }

    /// Reads what follows the word `rule`.
    pub(crate) fn read(words: &[&str]) -> Option<Self> {
        let (family, words) = match words {
            ["inet6", words @ ..] => (Some(Family::V6), words),
            words => (None, words),
        };
        let net = |name| words.chunks(2).find(|pair| pair.first() == Some(&name));
        let net = net("from").or_else(|| net("to")).and_then(|pair| pair.get(1));
        let net: Option<Net> = net.map(|net| net.parse()).transpose().ok()?;
        let told = family.or_else(|| net.map(|net| Family::of(net.addr())));
        let mut key = RuleKey::new(told.unwrap_or(Family::V4));
        for pair in words.chunks(2) {
            let [name, value] = pair else { return None };
            key.read_one(name, value)?;
        }
        Some(key.plain())
    }
}

/// A request that does not say fits everything.
pub(super) fn fits<T: PartialEq + Copy>(one: Option<T>, asked: Option<T>) -> bool {
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
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

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

named_number!(IpProtocol, IP_PROTOCOLS, |_| true);

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
            (key("rule"), suppress(RuleAction::Prohibit, 0), Impossible::SuppressWithoutTable),
            (key("rule"), suppress(main.action, 33), Impossible::SuppressLength),
        ] {
            assert_eq!(normalize(&key, rule), Err(why), "{key}");
        }
        assert!(normalize(&key("rule inet6"), suppress(main.action, 33)).is_ok());
    }
}
