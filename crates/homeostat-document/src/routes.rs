//! `[[routes]]`.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::attributes::{Metric, Mtu, NexthopId, Reach, RouteType, Table, Tos, Weight};
use crate::diagnostic::Diagnostic;
use crate::fields::{Fields, Section, section};
use crate::name::Name;
use crate::net::{Family, Network, Prefix};
use crate::span::{Span, Spanned};

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteEntry {
    /// A route.
    One(Box<Route>),
    /// A file with a route on each line.
    File(RouteFile),
}

/// A route. The key is table, destination, metric and type of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination as written; host bits are kept.
    pub to: Spanned<Prefix>,
    /// The gateway. May be IPv6 for an IPv4 destination.
    pub via: Option<Spanned<IpAddr>>,
    /// The link.
    pub dev: Option<Spanned<Name>>,
    /// The table; the main one if left out.
    pub table: Option<Spanned<Table>>,
    /// Preference; the kernel's default if left out.
    pub metric: Option<Spanned<Metric>>,
    /// What happens to a packet; it is sent on if left out.
    pub kind: Option<Spanned<RouteType>>,
    /// Source address of what this machine sends.
    pub src: Option<Spanned<IpAddr>>,
    /// Whether the gateway is taken to be on the link.
    pub onlink: Option<Spanned<bool>>,
    /// Largest packet.
    pub mtu: Option<Spanned<Mtu>>,
    /// How far the destination is.
    pub scope: Option<Spanned<Reach>>,
    /// Type of service.
    pub tos: Option<Spanned<Tos>>,
    /// A nexthop object by id.
    pub nexthop: Option<Spanned<NexthopId>>,
    /// Several ways at once.
    pub nexthops: Option<Vec<Spanned<Hop>>>,
    /// Whether it may be taken from anybody.
    pub adopt: bool,
}

/// One of the ways of a multipath route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The gateway.
    pub via: Option<Spanned<IpAddr>>,
    /// The link.
    pub dev: Option<Spanned<Name>>,
    /// Its share.
    pub weight: Option<Spanned<Weight>>,
    /// Whether the gateway is taken to be on the link.
    pub onlink: Option<Spanned<bool>>,
}

/// A file with one route a line; it is read when the wish is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFile {
    /// The path, seen from the document's own directory.
    pub path: Spanned<PathBuf>,
    /// Whether its routes may be taken from anybody.
    pub adopt: bool,
}

section!(RouteEntry, Hop);

const ONE_WAY: &str = "a route goes one way: `via`/`dev`, `nexthop` or `nexthops`";

impl Section for RouteEntry {
    const NAME: &'static str = "route";
    const DOC: &'static str = "A route, or a file with many of them";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let path = fields.optional("from-file", "A file with one route a line, instead of `to`");
        let to: Option<Spanned<Network>> = fields.optional("to", "The destination");
        let route = Route {
            to: to.map_or_else(nowhere, |to| to.map(|to| to.prefix)),
            via: fields.optional("via", "The gateway"),
            dev: fields.optional("dev", "The link"),
            table: fields.optional("table", "The routing table; `main` if left out"),
            metric: fields.optional("metric", "Preference, the smallest wins"),
            kind: fields.optional("type", "What happens to a packet; `unicast` if left out"),
            src: fields.optional("src", "Source address of what this machine sends"),
            onlink: fields.optional("onlink", "Take the gateway to be on the link"),
            mtu: fields.optional("mtu", "Largest packet"),
            scope: fields.optional("scope", "How far the destination is"),
            tos: fields.optional("tos", "Type of service"),
            nexthop: fields.optional("nexthop", "A nexthop object by its id"),
            nexthops: fields.optional("nexthops", "Several ways at once"),
            adopt: fields.flag("adopt", "Standing leave to take this route from anybody"),
        };
        if fields.has("from-file") {
            check_file(fields);
            let path = path?;
            return Some(Self::File(RouteFile { path, adopt: route.adopt }));
        }
        check_presence(fields, &route);
        check_families(fields, &route, to?);
        Some(Self::One(Box::new(route)))
    }
}

fn nowhere() -> Spanned<Prefix> {
    Spanned::new(Prefix::host(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)), Span::default())
}

fn check_file(fields: &mut Fields<'_>) {
    for other in ["to", "via", "dev", "table", "metric", "type", "src", "nexthop", "nexthops"] {
        fields.exclusive("from-file", other);
    }
    for other in ["onlink", "mtu", "scope", "tos"] {
        fields.exclusive("from-file", other);
    }
}

fn check_presence(fields: &mut Fields<'_>, route: &Route) {
    if fields.lacks(&["to"]) {
        let help = "write `to`, or `from-file` for a list of routes";
        let missing = Diagnostic::new(fields.span(), "this route has no destination");
        fields.report(missing.help(help));
    }
    for (first, second) in
        [("via", "nexthop"), ("via", "nexthops"), ("dev", "nexthop"), ("dev", "nexthops")]
    {
        fields.exclusive(first, second);
    }
    fields.exclusive("nexthop", "nexthops");
    let way = ["via", "dev", "nexthop", "nexthops"].into_iter().find(|name| fields.has(name));
    let forwards = route.kind.is_none_or(|kind| kind.forwards());
    match way {
        None if forwards && fields.lacks(&["type"]) => {
            let nowhere = Diagnostic::new(fields.span(), "this route leads nowhere");
            fields.report(nowhere.help("add `via`, `dev`, `nexthop` or `nexthops`"));
        }
        Some(way) if !forwards => refuse_way(fields, way, route),
        _ => {}
    }
    if route.nexthops.as_ref().is_some_and(Vec::is_empty) {
        fields.report(Diagnostic::new(fields.at("nexthops"), "`nexthops` is empty").help(ONE_WAY));
    }
}

fn refuse_way(fields: &mut Fields<'_>, way: &str, route: &Route) {
    let Some(kind) = route.kind else { return };
    let message = format!("a route of type `{}` goes nowhere, so `{way}` has no place", kind.value);
    fields.report(Diagnostic::new(fields.at(way), message).also(kind.span, "the type is here"));
}

fn check_families(fields: &mut Fields<'_>, route: &Route, to: Spanned<Network>) {
    let family = to.prefix.family();
    let hops = route.nexthops.iter().flatten().filter_map(|hop| hop.via);
    for via in route.via.into_iter().chain(hops) {
        if to.is_default_word && via.is_ipv6() && family == Family::V4 {
            let message = "`default` is the IPv4 default route, and this gateway is IPv6";
            let mixed = Diagnostic::new(via.span, message).also(to.span, "the destination is here");
            fields.report(mixed.help("write `to = \"::/0\"` (or \"0.0.0.0/0\" for IPv4 via IPv6)"));
        } else if via.is_ipv4() && family == Family::V6 {
            let mixed = Diagnostic::new(via.span, "an IPv6 route cannot go via an IPv4 gateway");
            fields.report(mixed.also(to.span, "the destination is here"));
        }
    }
    if let Some(src) = route.src.filter(|src| Family::of(src.value) != family) {
        let message = "the source address is of another family than the destination";
        fields.report(Diagnostic::new(src.span, message).also(to.span, "the destination is here"));
    }
}

impl Section for Hop {
    const NAME: &'static str = "hop";
    const DOC: &'static str = "One of several ways";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let hop = Self {
            via: fields.optional("via", "The gateway"),
            dev: fields.optional("dev", "The link"),
            weight: fields.optional("weight", "Its share among the others"),
            onlink: fields.optional("onlink", "Take the gateway to be on the link"),
        };
        if fields.lacks(&["via", "dev"]) {
            let nowhere = Diagnostic::new(fields.span(), "this nexthop leads nowhere");
            fields.report(nowhere.help("add `via` or `dev`"));
        }
        Some(hop)
    }
}
