//! Rules: which packets ask which table.
//!
//! Quirk `rules-coexist` (Linux 6.18): a rule is what it is by all of its attributes, its protocol
//! included, so that two may stand on one key and none can be changed in place. A change puts the
//! other one there first, and takes the former away once that stands.

mod decode;
mod encode;
mod key;
mod observe;
mod packet;
mod requests;
#[cfg(feature = "document")]
pub(crate) mod section;

use serde::{Deserialize, Serialize};

use crate::normalize::Impossible;
use crate::number::Table;

pub(crate) use decode::rule as decode;
pub use key::RuleKey;
pub(crate) use observe::Standing;
#[cfg(feature = "document")]
pub(crate) use packet::IP_PROTOCOLS;
pub use packet::{IpProtocol, Mark, Ports};

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
        action && key::fits(self.suppress_prefixlength, asked.suppress_prefixlength)
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
            (v4_key.with_to(v6), main, Impossible::RuleFamily),
            (key("rule dport 80"), main, Impossible::PortsWithoutProtocol),
            (key("rule ipproto icmp dport 80"), main, Impossible::PortsWithoutProtocol),
            (key("rule ipproto tcp dport 80-65535"), main, Impossible::RulePorts),
            (key("rule ipproto tcp sport 0"), main, Impossible::RulePorts),
            (key("rule").with_tos(Tos(1)), main, Impossible::TosOfRule),
            (key("rule"), Rule::of(RuleAction::Other(7)), Impossible::RuleAction),
            (key("rule"), suppress(RuleAction::Prohibit, 0), Impossible::SuppressWithoutTable),
            (key("rule"), suppress(main.action, 33), Impossible::SuppressLength),
        ] {
            assert_eq!(normalize(&key, rule), Err(why), "{key}");
        }
        assert!(normalize(&key("rule inet6"), suppress(main.action, 33)).is_ok());
    }
}
