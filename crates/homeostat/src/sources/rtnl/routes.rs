//! `[[routes]]`.

use anyhow::Result;
use homeostat_document::Spanned;
use homeostat_document::{
    Hop as DeclaredHop, Name, Route as Declared, RouteEntry, RouteType, Scope,
};
use homeostat_rtnl::Scope as Reach;
use homeostat_rtnl::{
    Builder, Hop, LinkName, Metric, Net, NexthopId, Route, RouteKey, RouteKind, Table, Tos,
};

use super::Fault;
use super::addresses::link_name;

/// Wishes for all routes.
pub(super) fn fill(section: &Scope, builder: &mut Builder, fault: &mut dyn FnMut(Fault)) {
    for entry in section.routes.iter().flatten() {
        let RouteEntry::One(route) = &entry.value else { continue };
        if let Err(error) = add(route, builder) {
            fault((entry.span, error));
        }
    }
}

fn add(declared: &Declared, builder: &mut Builder) -> Result<()> {
    let key = key(declared)?;
    builder.route(key, route(declared)?)?;
    if declared.adopt {
        builder.may_adopt(key);
    }
    Ok(())
}

fn key(declared: &Declared) -> Result<RouteKey> {
    let mut key = RouteKey::new(Net::new(declared.to.addr(), declared.to.len())?);
    if let Some(table) = declared.table {
        key = key.in_table(Table(table.get()));
    }
    if let Some(metric) = declared.metric {
        key = key.with_metric(Metric(metric.get()));
    }
    Ok(match declared.tos {
        Some(tos) => key.with_tos(Tos(tos.get())),
        None => key,
    })
}

fn route(declared: &Declared) -> Result<Route> {
    let hops = declared.nexthops.iter().flatten();
    Ok(Route {
        kind: declared.kind.map_or(RouteKind::Unicast, |kind| route_kind(kind.value)),
        via: declared.via.map(|via| via.value),
        dev: dev(declared.dev.as_ref())?,
        onlink: declared.onlink.map(|onlink| onlink.value),
        hops: hops.map(|declared| hop(declared)).collect::<Result<_>>()?,
        nexthop: declared.nexthop.map(|id| NexthopId(id.get())),
        src: declared.src.map(|src| src.value),
        mtu: declared.mtu.map(|mtu| mtu.get()),
        scope: declared.scope.map(|scope| Reach(scope.get())),
    })
}

fn hop(declared: &DeclaredHop) -> Result<Hop> {
    Ok(Hop {
        via: declared.via.map(|via| via.value),
        dev: dev(declared.dev.as_ref())?,
        weight: declared.weight.map_or(1, |weight| weight.get()),
        onlink: declared.onlink.map(|onlink| onlink.value),
    })
}

fn dev(name: Option<&Spanned<Name>>) -> Result<Option<LinkName>> {
    name.map(|name| link_name(name)).transpose()
}

fn route_kind(declared: RouteType) -> RouteKind {
    match declared {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local => RouteKind::Local,
        RouteType::Broadcast => RouteKind::Broadcast,
        RouteType::Anycast => RouteKind::Anycast,
        RouteType::Multicast => RouteKind::Multicast,
        RouteType::Blackhole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        RouteType::Throw => RouteKind::Throw,
    }
}
