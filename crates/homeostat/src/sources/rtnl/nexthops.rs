//! `[[nexthops]]`.

use anyhow::Result;
use homeostat_document::{Nexthop as Declared, Scope};
use homeostat_rtnl::Scope as Reach;
use homeostat_rtnl::{Builder, Key, Member, Nexthop, NexthopId};

use super::Fault;
use super::addresses::link_name;
use super::rules::family;

/// Wishes for all nexthops.
pub(super) fn fill(section: &Scope, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    for nexthop in section.nexthops.iter().flatten() {
        if let Err(error) = add(nexthop, builder) {
            fault((nexthop.span, error));
        }
    }
}

fn add(declared: &Declared, builder: &mut Builder) -> Result<()> {
    let id = NexthopId(declared.id.get());
    builder.nexthop(id, nexthop(declared)?)?;
    if declared.adopt {
        builder.may_adopt(Key::Nexthop(id));
    }
    Ok(())
}

fn nexthop(declared: &Declared) -> Result<Nexthop> {
    let members = declared.group.iter().flatten().map(|member| Member {
        id: NexthopId(member.id.get()),
        weight: member.weight.map_or(1, |weight| weight.get()),
    });
    Ok(Nexthop {
        family: declared.family.map(|declared| family(declared.value)),
        via: declared.via.map(|via| via.value),
        dev: declared.dev.as_ref().map(|dev| link_name(dev)).transpose()?,
        onlink: declared.onlink.map(|onlink| onlink.value),
        scope: declared.scope.map(|scope| Reach(scope.get())),
        blackhole: declared.blackhole,
        group: members.collect(),
        unusual: None,
    })
}
