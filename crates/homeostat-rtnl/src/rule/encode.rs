//! Writes requests for rules. Sends nothing.

use homeostat_netlink::uapi::{
    FR_ACT_BLACKHOLE, FR_ACT_PROHIBIT, FR_ACT_TO_TBL, FR_ACT_UNREACHABLE, FRA_DPORT_RANGE, FRA_DST,
    FRA_FWMARK, FRA_FWMASK, FRA_IIFNAME, FRA_IP_PROTO, FRA_L3MDEV, FRA_OIFNAME, FRA_PRIORITY,
    FRA_PROTOCOL, FRA_SPORT_RANGE, FRA_SRC, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, RTM_DELRULE,
    RTM_NEWRULE,
};
use homeostat_netlink::{MessageWriter, Result};

use crate::encode::{Encoder, ip};
use crate::link::LinkName;
use crate::net::Net;
use crate::number::Protocol;
use crate::rule::{Ports, Rule, RuleAction, RuleKey};

/// All that makes a rule what it is.
pub(crate) type Whole<'a> = (&'a RuleKey, &'a Rule, Protocol);

impl Encoder<'_> {
    /// Puts a rule there.
    pub(crate) fn put_rule(&mut self, rule: Whole<'_>, flags: u16) -> Result<()> {
        self.rule(RTM_NEWRULE, flags, rule)
    }

    /// Takes the first rule away that has all of these attributes; it may have more.
    pub(crate) fn delete_rule(&mut self, rule: Whole<'_>) -> Result<()> {
        self.rule(RTM_DELRULE, 0, rule)
    }

    fn rule(&mut self, kind: u16, flags: u16, (key, rule, protocol): Whole<'_>) -> Result<()> {
        let mut message = self.batch.message(kind, flags);
        head(&mut message, key, rule);
        selector(&mut message, key);
        action(&mut message, rule);
        message.attr_u8(FRA_PROTOCOL, protocol.0);
        message.finish()
    }
}

fn head(message: &mut MessageWriter<'_>, key: &RuleKey, rule: &Rule) {
    let len = |net: Option<Net>| net.map_or(0, |net| net.prefix_len());
    let (family, dst_len, src_len) = (key.family().to_kernel(), len(key.to()), len(key.from()));
    let (action, table) = match rule.action {
        RuleAction::Table(table) => (FR_ACT_TO_TBL, u8::try_from(table.0).unwrap_or(0)),
        RuleAction::L3mdev => (FR_ACT_TO_TBL, 0),
        RuleAction::Blackhole => (FR_ACT_BLACKHOLE, 0),
        RuleAction::Unreachable => (FR_ACT_UNREACHABLE, 0),
        RuleAction::Prohibit => (FR_ACT_PROHIBIT, 0),
        RuleAction::Other(number) => (number, 0),
    };
    message.fixed(&[family, dst_len, src_len, key.tos().0, table, 0, 0, action, 0, 0, 0, 0]);
}

fn selector(message: &mut MessageWriter<'_>, key: &RuleKey) {
    if let Some(priority) = key.priority() {
        message.attr_u32(FRA_PRIORITY, priority);
    }
    if let Some(from) = key.from() {
        ip(message, FRA_SRC, from.addr());
    }
    if let Some(to) = key.to() {
        ip(message, FRA_DST, to.addr());
    }
    name(message, FRA_IIFNAME, key.iif());
    name(message, FRA_OIFNAME, key.oif());
    if let Some(mark) = key.fwmark() {
        message.attr_u32(FRA_FWMARK, mark.value).attr_u32(FRA_FWMASK, mark.mask);
    }
    if let Some(protocol) = key.ipproto() {
        message.attr_u8(FRA_IP_PROTO, protocol.0);
    }
    ports(message, FRA_SPORT_RANGE, key.sport());
    ports(message, FRA_DPORT_RANGE, key.dport());
}

fn action(message: &mut MessageWriter<'_>, rule: &Rule) {
    match rule.action {
        RuleAction::Table(table) if table.0 > u32::from(u8::MAX) => {
            message.attr_u32(FRA_TABLE, table.0);
        }
        RuleAction::L3mdev => _ = message.attr_u8(FRA_L3MDEV, 1),
        _ => {}
    }
    if let Some(len) = rule.suppress_prefixlength {
        message.attr_u32(FRA_SUPPRESS_PREFIXLEN, len.into());
    }
}

fn name(message: &mut MessageWriter<'_>, kind: u16, link: Option<LinkName>) {
    if let Some(link) = link {
        message.attr(kind, &[link.as_str().as_bytes(), &[0]].concat());
    }
}

fn ports(message: &mut MessageWriter<'_>, kind: u16, ports: Option<Ports>) {
    if let Some(Ports { first, last }) = ports {
        message.attr(kind, [first.to_ne_bytes(), last.to_ne_bytes()].as_flattened());
    }
}
