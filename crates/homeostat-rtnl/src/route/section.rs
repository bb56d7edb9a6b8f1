//! `[[routes]]`: routes, and files with many of them.

use std::net::IpAddr;
use std::path::PathBuf;

use homeostat_document::{Diagnostic, Fields, Json, Record, Scope, Spanned, record};
use serde_json::json;

use crate::builder::Impossible;
use crate::net::Family;
use crate::nexthop::NexthopId;
use crate::number::{Metric, Table, Tos};
use crate::route::encap::Encap;
use crate::route::rare::{self, RareAttributes};
use crate::route::{Hop, Route, RouteKey, RouteKind, has_equal_ways};
use crate::section::{Declared, WHILE, list_section};
use crate::show::{fields, plain};
use crate::values::{Destination, METRIC, NEXTHOP_ID, ROUTE_MTU, TOS, WEIGHT};

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteEntry {
    /// A route. Its key is where its destination is.
    One(Box<Declared<RouteKey, Route>>),
    /// A file with a route on each line.
    File(RouteFile),
}

/// A file with one route a line; it is read when the desired state is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFile {
    /// The path, seen from the document's own directory.
    pub path: Spanned<PathBuf>,
    /// Whether its routes may be taken over from any owner.
    pub adopt: bool,
    /// Whether it may have no routes at all.
    pub allow_empty: bool,
}

/// The routes that a scope declares one by one.
pub(crate) fn routes(scope: &Scope) -> impl Iterator<Item = &Declared<RouteKey, Route>> {
    entries(scope).filter_map(|entry| match entry {
        RouteEntry::One(route) => Some(&**route),
        RouteEntry::File(_) => None,
    })
}

/// The lists of routes that a scope names, in the order of writing.
pub fn route_files(scope: &Scope) -> impl Iterator<Item = &RouteFile> {
    entries(scope).filter_map(|entry| match entry {
        RouteEntry::File(file) => Some(file),
        RouteEntry::One(_) => None,
    })
}

list_section! {
    Routes of RouteEntry as entries, "routes", "Routes",
    each of routes: |route| route.key.span, described(&route.key)
}

/// A route's key in words.
pub(super) fn described(key: &RouteKey) -> String {
    let RouteKey { dst, table, metric: Metric(metric), .. } = key;
    format!("the route to {dst} in table {table} with metric {metric}")
}

record!(HopEntry);

const ONE_WAY: &str = "a route goes one way: `via`/`dev`, `nexthop` or `nexthops`";

impl Record for RouteEntry {
    const NAME: &'static str = "route";
    const DOC: &'static str = "A route, or a file with many of them";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let path = fields.optional("from-file", "A file with one route a line, instead of `to`");
        let to: Option<Spanned<Destination>> = fields.optional("to", "The destination");
        let via: Option<Spanned<IpAddr>> = fields.optional("via", "The gateway");
        let dev = fields.optional("dev", "The link");
        let table: Option<Table> =
            fields.optional("table", "The routing table; `main` if left out");
        let metric = fields.number("metric", "Preference, the smallest wins", METRIC);
        let kind: Option<Spanned<RouteKind>> =
            fields.optional("type", "What happens to a packet; `unicast` if left out");
        let src: Option<Spanned<IpAddr>> =
            fields.optional("src", "Source address of what this machine sends");
        let onlink = fields.optional("onlink", "Take the gateway to be on the link");
        let mtu = fields.number("mtu", "Largest packet", ROUTE_MTU);
        let scope = fields.optional("scope", "How far the destination is");
        let tos = fields.number("tos", "Type of service", TOS);
        let nexthop = fields.number("nexthop", "A nexthop object by its id", NEXTHOP_ID);
        let nexthops: Option<Vec<HopEntry>> = fields.optional("nexthops", "Several ways at once");
        let rare = rare::read(fields);
        let adopt = fields.flag("adopt", "Take this route over from any owner");
        let condition = fields.optional("while", WHILE);
        let allow_empty = fields.flag("allow-empty", "Take a list without routes to mean none");
        if fields.has("from-file") {
            for other in [
                "to", "via", "dev", "table", "metric", "type", "src", "nexthop", "nexthops",
                "onlink", "mtu", "scope", "tos", "while",
            ]
            .into_iter()
            .chain(rare::WORDS)
            {
                fields.exclusive("from-file", other);
            }
            return Some(Self::File(RouteFile { path: path?, adopt, allow_empty }));
        }
        if allow_empty {
            let message = "`allow-empty` is about a list, and this is one route";
            let misplaced = Diagnostic::new(fields.at("allow-empty"), message);
            fields.report(misplaced.help("write it next to `from-file`"));
        }
        check_presence(fields, kind, nexthops.as_deref());
        let hops = nexthops.unwrap_or_default();
        let gateways = via.into_iter().chain(hops.iter().filter_map(|hop| hop.via));
        let to = to?;
        check_families(fields, to, gateways, src);
        check_rare(fields, to, &rare);
        let ways: Vec<Hop> = hops.into_iter().map(|entry| entry.hop).collect();
        if to.net.addr().is_ipv6() && has_equal_ways(&ways) {
            let twice = Diagnostic::new(fields.at("nexthops"), Impossible::EqualWays.to_string());
            fields.report(twice);
        }
        let key = RouteKey::new(to.net)
            .in_table(table.unwrap_or(Table::MAIN))
            .with_metric(Metric(metric.unwrap_or(0)))
            .with_tos(Tos(tos.unwrap_or(0)));
        let route = Route {
            kind: kind.map_or(RouteKind::UNICAST, |kind| kind.value),
            via: via.map(|via| via.value),
            dev,
            onlink,
            hops: ways,
            nexthop: nexthop.map(NexthopId),
            src: src.map(|src| src.value),
            mtu,
            scope,
            rare: rare.into(),
        };
        let key = Spanned::new(key, to.span);
        let declared = Declared::new(key, route, adopt, fields.span());
        Some(Self::One(Box::new(declared.only_while(condition))))
    }
}

fn check_presence(
    fields: &mut Fields<'_>,
    kind: Option<Spanned<RouteKind>>,
    nexthops: Option<&[HopEntry]>,
) {
    if fields.lacks(&["to"]) {
        let help = "write `to`, or `from-file` for a list of routes";
        let missing = Diagnostic::new(fields.span(), "this route has no destination");
        fields.report(missing.help(help));
    }
    for other in ["via", "dev", "nexthop", "nexthops"] {
        fields.exclusive("gateway-of", other);
    }
    for (first, second) in
        [("via", "nexthop"), ("via", "nexthops"), ("dev", "nexthop"), ("dev", "nexthops")]
    {
        fields.exclusive(first, second);
    }
    fields.exclusive("nexthop", "nexthops");
    let way = ["via", "dev", "nexthop", "nexthops", "gateway-of"]
        .into_iter()
        .find(|name| fields.has(name));
    let has_nexthop = kind.is_none_or(|kind| kind.accepts_nexthop());
    match (way, kind) {
        (None, _) if has_nexthop && fields.lacks(&["type"]) => {
            let nowhere = Diagnostic::new(fields.span(), "this route has no nexthop");
            fields.report(nowhere.help("add `via`, `dev`, `nexthop` or `nexthops`"));
        }
        (Some(way), Some(kind)) if !has_nexthop => refuse_way(fields, way, kind),
        _ => {}
    }
    if nexthops.is_some_and(<[_]>::is_empty) {
        fields.report(Diagnostic::new(fields.at("nexthops"), "`nexthops` is empty").help(ONE_WAY));
    }
}

fn refuse_way(fields: &mut Fields<'_>, way: &str, kind: Spanned<RouteKind>) {
    let message = format!("a route of type `{}` goes nowhere, so `{way}` has no place", kind.value);
    fields.report(Diagnostic::new(fields.at(way), message).also(kind.span, "the type is here"));
}

fn check_families(
    fields: &mut Fields<'_>,
    to: Spanned<Destination>,
    gateways: impl Iterator<Item = Spanned<IpAddr>>,
    src: Option<Spanned<IpAddr>>,
) {
    let family = Family::of(to.net.addr());
    for via in gateways {
        if to.is_default_word && via.is_ipv6() {
            let message = "`default` is the IPv4 default route, and this gateway is IPv6";
            let mixed = Diagnostic::new(via.span, message).also(to.span, "the destination is here");
            fields.report(mixed.help("write `to = \"::/0\"` (or \"0.0.0.0/0\" for IPv4 via IPv6)"));
        } else if via.is_ipv4() && family == Family::V6 {
            let mixed = Diagnostic::new(via.span, "an IPv6 route cannot go via an IPv4 gateway");
            fields.report(mixed.also(to.span, "the destination is here"));
        }
    }
    if let Some(src) = src.filter(|src| Family::of(src.value) != family) {
        let message = "the source address is of another family than the destination";
        fields.report(Diagnostic::new(src.span, message).also(to.span, "the destination is here"));
    }
}

fn check_rare(fields: &mut Fields<'_>, to: Spanned<Destination>, rare: &RareAttributes) {
    if to.net.addr().is_ipv6() {
        return;
    }
    for (name, is_there) in [("pref", rare.pref.is_some()), ("expires", rare.expires.is_some())] {
        if is_there {
            let message = format!("only an IPv6 route has `{name}`");
            let misplaced = Diagnostic::new(fields.at(name), message);
            fields.report(misplaced.also(to.span, "the destination is here"));
        }
    }
}

/// One of the ways of a multipath route, and where its gateway is written.
struct HopEntry {
    hop: Hop,
    via: Option<Spanned<IpAddr>>,
}

impl Record for HopEntry {
    const NAME: &'static str = "hop";
    const DOC: &'static str = "One of several ways";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let via: Option<Spanned<IpAddr>> = fields.optional("via", "The gateway");
        let hop = Hop {
            via: via.map(|via| via.value),
            dev: fields.optional("dev", "The link"),
            weight: fields.number("weight", "Its share of the traffic", WEIGHT).unwrap_or(1),
            onlink: fields.optional("onlink", "Take the gateway to be on the link"),
            encap: fields.optional("encap", "What its packets are wrapped into"),
        };
        if fields.lacks(&["via", "dev"]) {
            let nowhere =
                Diagnostic::new(fields.span(), "this nexthop has neither gateway nor link");
            fields.report(nowhere.help("add `via` or `dev`"));
        }
        Some(Self { hop, via })
    }
}

/// A route that is there, as an entry of the list; nothing for one that is not declared.
pub(crate) fn show(key: &RouteKey, route: &Route) -> Option<Json> {
    let usual = RouteKey::new(key.dst).metric;
    let encaps = route.hops.iter().map(|hop| &hop.encap).chain([&route.rare.encap]);
    if encaps.flatten().any(|encap| matches!(encap, Encap::Other { .. })) {
        return None;
    }
    let mut shown = plain([("to", key.dst.to_string().into())]);
    let mut way = fields(route);
    for (name, unit) in [("expires", "s"), ("rto-min", "ms")] {
        if let Some(time) = way.get(name).and_then(Json::as_u64) {
            way.insert(name.to_owned(), format!("{}{unit}", time.max(1)).into());
        }
    }
    way.remove("scope");
    if let Some(hops) = way.remove("hops") {
        way.insert("nexthops".to_owned(), hops.as_array()?.iter().map(hop).collect());
    }
    if way.contains_key("nexthop") {
        way.retain(|name, _| !["via", "dev", "nexthops", "onlink"].contains(&name.as_str()));
    }
    // Quirk `v6-nowhere-dev-lo` (Linux 6.18): an IPv6 route that goes nowhere reads back with the
    // loopback link, which is not declared.
    if !route.kind.accepts_nexthop() {
        way.remove("dev");
    }
    way.retain(|name, value| *value != json!(false) && (name != "type" || *value != "unicast"));
    shown.extend(way);
    let metric = Some(key.metric).filter(|metric| *metric != usual).map(|metric| metric.0);
    let table = Some(key.table).filter(|table| *table != Table::MAIN).map(|table| table.0);
    let tos = Some(key.tos).filter(|tos| *tos != Tos::default()).map(|tos| tos.0);
    shown.extend(plain([("table", json!(table)), ("metric", json!(metric)), ("tos", json!(tos))]));
    Some(Json::Object(shown))
}

fn hop(hop: &Json) -> Json {
    let mut hop = hop.clone();
    if let Some(fields) = hop.as_object_mut() {
        fields.retain(|_, value| *value != json!(false));
    }
    hop
}
