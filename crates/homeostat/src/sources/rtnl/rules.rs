//! `[[rules]]`.

use anyhow::Result;
use homeostat_document::{Family as DeclaredFamily, Prefix, Rule as Declared, RuleType, Scope};
use homeostat_rtnl::{
    Builder, Family, IpProtocol, Key, Mark, Net, Ports, Rule, RuleAction, RuleKey, Table,
};

use super::Fault;
use super::addresses::link_name;

/// Wishes for all rules.
pub(super) fn fill(section: &Scope, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    for rule in section.rules.iter().flatten() {
        if let Err(error) = add(rule, builder) {
            fault((rule.span, error));
        }
    }
}

fn add(declared: &Declared, builder: &mut Builder) -> Result<()> {
    let key = key(declared)?;
    builder.rule(key, rule(declared))?;
    if declared.adopt {
        builder.may_adopt(Key::Rule(Box::new(key)));
    }
    Ok(())
}

/// The family of addresses that the kernel sees in one of ours.
pub(super) fn family(declared: DeclaredFamily) -> Family {
    match declared {
        DeclaredFamily::V4 => Family::V4,
        DeclaredFamily::V6 => Family::V6,
    }
}

fn net(prefix: Prefix) -> Result<Net> {
    Ok(Net::new(prefix.addr(), prefix.len())?)
}

fn key(declared: &Declared) -> Result<RuleKey> {
    let mut key = RuleKey::new(family(declared.family));
    if let Some(priority) = declared.priority {
        key = key.with_priority(priority.get());
    }
    if let Some(from) = declared.from {
        key = key.with_from(net(from.value)?);
    }
    if let Some(to) = declared.to {
        key = key.with_to(net(to.value)?);
    }
    if let Some(iif) = &declared.iif {
        key = key.with_iif(link_name(iif)?);
    }
    if let Some(oif) = &declared.oif {
        key = key.with_oif(link_name(oif)?);
    }
    if let Some(mark) = declared.fwmark {
        key = key.with_fwmark(Mark { value: mark.value.value, mask: mark.mask });
    }
    if let Some(protocol) = declared.ipproto {
        key = key.with_ipproto(IpProtocol(protocol.get()));
    }
    if let Some(ports) = declared.sport {
        key = key.with_sport(Ports { first: ports.first, last: ports.last });
    }
    Ok(match declared.dport {
        Some(ports) => key.with_dport(Ports { first: ports.first, last: ports.last }),
        None => key,
    })
}

fn rule(declared: &Declared) -> Rule {
    let table = declared.table.map_or(Table::MAIN, |table| Table(table.get()));
    let action = match declared.kind.map(|kind| kind.value) {
        Some(RuleType::Blackhole) => RuleAction::Blackhole,
        Some(RuleType::Unreachable) => RuleAction::Unreachable,
        Some(RuleType::Prohibit) => RuleAction::Prohibit,
        Some(RuleType::Lookup) | None if declared.l3mdev => RuleAction::L3mdev,
        Some(RuleType::Lookup) | None => RuleAction::Table(table),
    };
    let suppress_prefixlength = declared.suppress_prefixlength.map(|length| length.get());
    Rule { action, suppress_prefixlength }
}
