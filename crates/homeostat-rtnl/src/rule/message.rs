//! Rules as netlink messages.

use homeostat_netlink::uapi::{
    FIB_RULE_INVERT, FR_ACT_BLACKHOLE, FR_ACT_PROHIBIT, FR_ACT_TO_TBL, FR_ACT_UNREACHABLE,
    FRA_DPORT_MASK, FRA_DPORT_RANGE, FRA_DST, FRA_FWMARK, FRA_FWMASK, FRA_IIFNAME, FRA_IP_PROTO,
    FRA_L3MDEV, FRA_OIFNAME, FRA_PAD, FRA_PRIORITY, FRA_PROTOCOL, FRA_SPORT_MASK, FRA_SPORT_RANGE,
    FRA_SRC, FRA_SUPPRESS_PREFIXLEN, FRA_TABLE, RTM_DELRULE, RTM_NEWRULE,
};
use homeostat_netlink::{Attr, Malformed, Message, Result};

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
        let len = |net: Option<Net>| net.map_or(0, |net| net.prefix_len());
        let (family, dst_len, src_len) = (key.family.to_kernel(), len(key.to), len(key.from));
        let (action, table) = match rule.action {
            RuleAction::Table(table) => (FR_ACT_TO_TBL, table.0),
            RuleAction::L3mdev => (FR_ACT_TO_TBL, 0),
            RuleAction::Blackhole => (FR_ACT_BLACKHOLE, 0),
            RuleAction::Unreachable => (FR_ACT_UNREACHABLE, 0),
            RuleAction::Prohibit => (FR_ACT_PROHIBIT, 0),
            RuleAction::Other(number) => (number, 0),
        };
        let short = u8::try_from(table);
        let mut message = self.batch.message(kind, flags);
        let head = [family, dst_len, src_len, key.tos.0, short.unwrap_or(0), 0, 0, action];
        message.fixed(&head).fixed(&[0; 4]);
        key.priority.map(|priority| message.attr_u32(FRA_PRIORITY, priority));
        key.from.map(|from| put_ip(&mut message, FRA_SRC, from.addr()));
        key.to.map(|to| put_ip(&mut message, FRA_DST, to.addr()));
        key.iif.map(|name| put_link_name(&mut message, FRA_IIFNAME, name));
        key.oif.map(|name| put_link_name(&mut message, FRA_OIFNAME, name));
        key.fwmark
            .map(|mark| message.attr_u32(FRA_FWMARK, mark.value).attr_u32(FRA_FWMASK, mark.mask));
        key.ipproto.map(|protocol| message.attr_u8(FRA_IP_PROTO, protocol.0));
        let range = |ports: Ports| [ports.first.to_ne_bytes(), ports.last.to_ne_bytes()];
        key.sport.map(|ports| message.attr(FRA_SPORT_RANGE, range(ports).as_flattened()));
        key.dport.map(|ports| message.attr(FRA_DPORT_RANGE, range(ports).as_flattened()));
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
    // What no desired state can say.
    let mut is_odd = u32::from_ne_bytes([f0, f1, f2, f3]) & FIB_RULE_INVERT != 0;
    let (mut table, mut is_l3mdev, mut suppress_prefixlength) = (u32::from(table), false, None);
    let (mut value, mut mask, mut protocol) = (0, 0, 0);
    let mut key = RuleKey { priority: Some(0), tos: Tos(tos), ..RuleKey::new(family) };
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
