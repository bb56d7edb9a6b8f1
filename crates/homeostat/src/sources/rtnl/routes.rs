//! `[[routes]]`.

use anyhow::Result;
use homeostat_document::{Diagnostics, Document, RouteLine, Spanned, ValueError};
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

/// Wishes for the routes of all lists beside the document.
pub(super) fn fill_lists(
    document: &Document,
    section: &Scope,
    builder: &mut Builder,
) -> Result<(), Diagnostics> {
    document.listed_routes(section, |file, line| {
        let refuse = |error: anyhow::Error| ValueError::new(format!("{error:#}"));
        let (key, route) = listed(line).map_err(refuse)?;
        let add = if file.adopt { Builder::adopting_route } else { Builder::route };
        let added = add(builder, key, route);
        added.map(|_| ()).map_err(|error| refuse(error.into()))
    })
}

fn listed(line: &RouteLine<'_>) -> Result<(RouteKey, Route)> {
    let key = RouteKey::new(Net::new(line.to.addr(), line.to.len())?);
    let key = key
        .in_table(line.table.map_or(Table::MAIN, |table| Table(table.get())))
        .with_metric(Metric(line.metric.map_or(0, homeostat_document::Metric::get)))
        .with_tos(Tos(line.tos.map_or(0, homeostat_document::Tos::get)));
    let route = Route {
        kind: route_kind(line.kind),
        via: line.via,
        dev: line.dev.map(LinkName::new).transpose()?,
        onlink: line.onlink,
        hops: Vec::new(),
        nexthop: line.nexthop.map(|id| NexthopId(id.get())),
        src: line.src,
        mtu: line.mtu.map(homeostat_document::Mtu::get),
        scope: line.scope.map(|scope| Reach(scope.get())),
    };
    Ok((key, route))
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
