//! Rules as netlink messages.

use homeostat_netlink::uapi::{
    FIB_RULE_INVERT, FR_ACT_BLACKHOLE, FR_ACT_PROHIBIT, FR_ACT_TO_TBL, FR_ACT_UNREACHABLE,
    FRA_DPORT_MASK, FRA_DPORT_RANGE, FRA_DST, FRA_FWMARK, FRA_FWMASK, FRA_IIFNAME, FRA_IP_PROTO,
    FRA_L3MDEV, FRA_OIFNAME, FRA_PAD, FRA_PRIORITY, FRA_PROTOCOL, FRA_SPORT_MASK, FRA_SPORT_RANGE,
    FRA_SRC, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, RTM_DELRULE, RTM_NEWRULE,
};
use homeostat_netlink::{Attr, Malformed, Message, MessageWriter, Result};

use crate::link::LinkName;
use crate::message::{Encoder, put_ip, put_link_name, read_ip};
use crate::net::{Family, Net};
use crate::number::{Protocol, Table, Tos};
use crate::rule::{IpProtocol, Mark, Ports, Rule, RuleAction, RuleKey};

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
    let (family, dst_len, src_len) = (key.family.to_kernel(), len(key.to), len(key.from));
    let (action, table) = match rule.action {
        RuleAction::Table(table) => (FR_ACT_TO_TBL, u8::try_from(table.0).unwrap_or(0)),
        RuleAction::L3mdev => (FR_ACT_TO_TBL, 0),
        RuleAction::Blackhole => (FR_ACT_BLACKHOLE, 0),
        RuleAction::Unreachable => (FR_ACT_UNREACHABLE, 0),
        RuleAction::Prohibit => (FR_ACT_PROHIBIT, 0),
        RuleAction::Other(number) => (number, 0),
    };
    message.fixed(&[family, dst_len, src_len, key.tos.0, table, 0, 0, action, 0, 0, 0, 0]);
}

fn selector(message: &mut MessageWriter<'_>, key: &RuleKey) {
    key.priority.map(|priority| message.attr_u32(FRA_PRIORITY, priority));
    key.from.map(|from| put_ip(message, FRA_SRC, from.addr()));
    key.to.map(|to| put_ip(message, FRA_DST, to.addr()));
    key.iif.map(|name| put_link_name(message, FRA_IIFNAME, name));
    key.oif.map(|name| put_link_name(message, FRA_OIFNAME, name));
    key.fwmark.map(|mark| message.attr_u32(FRA_FWMARK, mark.value).attr_u32(FRA_FWMASK, mark.mask));
    key.ipproto.map(|protocol| message.attr_u8(FRA_IP_PROTO, protocol.0));
    let range = |ports: Ports| [ports.first.to_ne_bytes(), ports.last.to_ne_bytes()];
    key.sport.map(|ports| message.attr(FRA_SPORT_RANGE, range(ports).as_flattened()));
    key.dport.map(|ports| message.attr(FRA_DPORT_RANGE, range(ports).as_flattened()));
}

fn action(message: &mut MessageWriter<'_>, rule: &Rule) {
    match rule.action {
        RuleAction::Table(table) if table.0 > u32::from(u8::MAX) => {
            message.attr_u32(FRA_TABLE, table.0);
        }
        RuleAction::L3mdev => _ = message.attr_u8(FRA_L3MDEV, 1),
        _ => {}
    }
    rule.suppress_prefixlength.map(|len| message.attr_u32(FRA_SUPPRESS_PREFIXLEN, len.into()));
}

/// A rule as the kernel tells it.
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
    let is_inverted = u32::from_ne_bytes([f0, f1, f2, f3]) & FIB_RULE_INVERT != 0;
    let mut read = Read { table: u32::from(table), ..Read::default() };
    let mut key = RuleKey::new(family).with_priority(0).with_tos(Tos(tos));
    for attr in attrs {
        let attr = attr?;
        key = match attr.kind {
            FRA_SRC => key.with_from(Net::masked(read_ip(&attr)?, src_len)),
            FRA_DST => key.with_to(Net::masked(read_ip(&attr)?, dst_len)),
            FRA_PRIORITY => key.with_priority(attr.u32()?),
            FRA_IIFNAME => key.with_iif(name(&attr)),
            FRA_OIFNAME => key.with_oif(name(&attr)),
            FRA_IP_PROTO => key.with_ipproto(IpProtocol(attr.u8()?)),
            FRA_SPORT_RANGE => key.with_sport(ports(&attr)?),
            FRA_DPORT_RANGE => key.with_dport(ports(&attr)?),
            _ => {
                read.attr(&attr)?;
                key
            }
        };
    }
    let Read { mark, mask, protocol, is_odd, .. } = read;
    if is_inverted || is_odd {
        return Ok(None);
    }
    let key = key.with_fwmark(Mark { value: mark, mask });
    Ok(Some(SeenRule { key, rule: read.rule(action), protocol: Protocol(protocol) }))
}

/// What is put together from several attributes.
#[derive(Default)]
struct Read {
    table: u32,
    is_l3mdev: bool,
    suppress: Option<u8>,
    mark: u32,
    mask: u32,
    protocol: u8,
    is_odd: bool,
}

impl Read {
    fn attr(&mut self, attr: &Attr<'_>) -> Result<(), Malformed> {
        match attr.kind {
            FRA_TABLE => self.table = attr.u32()?,
            FRA_L3MDEV => self.is_l3mdev = attr.u8()? != 0,
            FRA_FWMARK => self.mark = attr.u32()?,
            FRA_FWMASK => self.mask = attr.u32()?,
            FRA_PROTOCOL => self.protocol = attr.u8()?,
            // All bits stand for none.
            FRA_SUPPRESS_PREFIXLEN => self.suppress = u8::try_from(attr.u32()?).ok(),
            // A single port comes with all bits of its mask (Linux 6.15).
            FRA_SPORT_MASK | FRA_DPORT_MASK => self.is_odd |= attr.u16()? != u16::MAX,
            FRA_PAD => {}
            _ => self.is_odd = true,
        }
        Ok(())
    }

    fn rule(&self, action: u8) -> Rule {
        let action = match action {
            FR_ACT_TO_TBL if self.is_l3mdev => RuleAction::L3mdev,
            FR_ACT_TO_TBL => RuleAction::Table(Table(self.table)),
            FR_ACT_BLACKHOLE => RuleAction::Blackhole,
            FR_ACT_UNREACHABLE => RuleAction::Unreachable,
            FR_ACT_PROHIBIT => RuleAction::Prohibit,
            other => RuleAction::Other(other),
        };
        Rule { action, suppress_prefixlength: self.suppress }
    }
}

/// The name of a link that need not be there. One that is no text is one that no desired state can hold.
fn name(attr: &Attr<'_>) -> LinkName {
    LinkName::padded(attr.str().unwrap_or(":"))
}

fn ports(attr: &Attr<'_>) -> Result<Ports, Malformed> {
    let [f0, f1, l0, l1] = attr.array()?;
    Ok(Ports { first: u16::from_ne_bytes([f0, f1]), last: u16::from_ne_bytes([l0, l1]) })
}
