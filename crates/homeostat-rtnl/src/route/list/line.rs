//! One line of a list: text to a route. Pure, and without an allocation.

use std::net::IpAddr;

use homeostat_document::ValueError;

use super::fault::{Fault, Why};
use super::value;
use crate::key::RouteKey;
use crate::number::{Metric, Table, Tos};
use crate::route::{Route, RouteKind};
use crate::values::Prefix;

/// A route as one line of a list says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteLine {
    /// Which route.
    pub key: RouteKey,
    /// Where it leads.
    pub route: Route,
}

/// The words that may follow a destination.
pub(super) const WORDS: [&str; 10] =
    ["via", "dev", "table", "metric", "src", "onlink", "mtu", "scope", "tos", "nhid"];

/// The types that a list can have; all others lead into tables that the kernel fills by itself.
pub(super) const TYPES: [RouteKind; 5] = [
    RouteKind::Unicast,
    RouteKind::Blackhole,
    RouteKind::Unreachable,
    RouteKind::Prohibit,
    RouteKind::Throw,
];

impl RouteLine {
    /// Reads one line; nothing if it is blank or a comment.
    pub fn parse(text: &str) -> Result<Option<Self>, ValueError> {
        parse(text).map_err(Fault::explain)
    }
}

/// What the words of a line have said so far.
struct Partial {
    to: Prefix,
    table: Option<Table>,
    metric: Option<Metric>,
    tos: Option<Tos>,
    route: Route,
}

/// Reads one line; a fault borrows the word that it is about.
pub(super) fn parse(text: &str) -> Result<Option<RouteLine>, Fault<'_>> {
    let mut words = Words(text);
    let Some(first) = words.next() else { return Ok(None) };
    let (kind, to) = match value::route_type(first) {
        Some(kind) => (kind, words.after(first)?),
        None => (RouteKind::Unicast, first),
    };
    let (destination, route) = (value::destination(to)?, Route::of_kind(kind));
    let mut line = Partial { to: destination, table: None, metric: None, tos: None, route };
    while let Some(word) = words.next() {
        line.read(word, &mut words)?;
    }
    check(&line, first, to)?;
    let Partial { to, table, metric, tos, route } = line;
    let key = RouteKey::new(to.net())
        .in_table(table.unwrap_or(Table::MAIN))
        .with_metric(metric.unwrap_or(Metric(0)))
        .with_tos(tos.unwrap_or_default());
    Ok(Some(RouteLine { key, route }))
}

/// The words of a line, up to a comment.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// The word that has to follow another.
    fn after(&mut self, word: &'a str) -> Result<&'a str, Fault<'a>> {
        self.next().ok_or(Fault::at(word, Why::NothingFollows))
    }

    /// The gateway: `via` may name its family, as `ip route` shows it.
    fn gateway(&mut self, word: &'a str) -> Result<IpAddr, Fault<'a>> {
        match self.after(word)? {
            family @ ("inet" | "inet6") => {
                let addr = self.after(family)?;
                let gateway = value::address(addr)?;
                let fits = gateway.is_ipv6() == (family == "inet6");
                if fits { Ok(gateway) } else { Err(Fault::at(addr, Why::OtherFamily)) }
            }
            addr => value::address(addr),
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let is_blank = |byte: u8| byte == b' ' || byte == b'\t';
        let bytes = self.0.as_bytes();
        let start = bytes.iter().position(|byte| !is_blank(*byte))?;
        if bytes.get(start) == Some(&b'#') {
            return None;
        }
        let rest = self.0.get(start..)?;
        let end = rest.bytes().position(is_blank).unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(end)?;
        self.0 = rest;
        Some(word)
    }
}

impl Partial {
    /// Takes one word with its value.
    fn read<'a>(&mut self, word: &'a str, words: &mut Words<'a>) -> Result<(), Fault<'a>> {
        let route = &mut self.route;
        match word {
            "via" => put(&mut route.via, word, words.gateway(word)?),
            "dev" => put(&mut route.dev, word, value::link(words.after(word)?)?),
            "table" => put(&mut self.table, word, value::table(words.after(word)?)?),
            "metric" => put(&mut self.metric, word, value::metric(words.after(word)?)?),
            "src" => put(&mut route.src, word, value::address(words.after(word)?)?),
            "onlink" => put(&mut route.onlink, word, true),
            "mtu" => put(&mut route.mtu, word, value::mtu(words.after(word)?)?),
            "scope" => put(&mut route.scope, word, value::scope(words.after(word)?)?),
            "tos" => put(&mut self.tos, word, value::tos(words.after(word)?)?),
            "nhid" => put(&mut route.nexthop, word, value::nexthop(words.after(word)?)?),
            unknown => Err(Fault::at(unknown, Why::UnknownWord)),
        }
    }
}

fn put<'a, T>(field: &mut Option<T>, word: &'a str, value: T) -> Result<(), Fault<'a>> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fault::at(word, Why::Twice)),
    }
}

/// What is wrong between words that are each fine.
fn check<'a>(line: &Partial, first: &'a str, to: &'a str) -> Result<(), Fault<'a>> {
    let route = &line.route;
    let has_way = route.via.is_some() || route.dev.is_some();
    let why = match (route.kind.leads_on(), has_way, route.nexthop.is_some()) {
        (true, true, false) | (true, false, true) | (false, false, false) => {
            return families(line, to);
        }
        (true, true, true) => Why::TwoWays,
        (true, false, false) => Why::LeadsNowhere,
        (false, ..) => Why::GoesNowhere,
    };
    Err(Fault::at(first, why))
}

fn families<'a>(line: &Partial, to: &'a str) -> Result<(), Fault<'a>> {
    let is_v6 = line.to.ip.is_ipv6();
    let why = match line.route.via {
        Some(IpAddr::V4(_)) if is_v6 => Why::GatewayFamily,
        Some(IpAddr::V6(_)) if to == "default" => Why::DefaultFamily,
        _ if line.route.src.is_some_and(|src| src.is_ipv6() != is_v6) => Why::SourceFamily,
        _ if is_v6 && line.tos.is_some_and(|tos| tos.0 != 0) => Why::TosOnIpv6,
        _ => return Ok(()),
    };
    Err(Fault::at(to, why))
}
