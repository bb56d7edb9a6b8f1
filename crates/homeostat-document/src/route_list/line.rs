//! One line of a list: text to a typed route. Pure, and without an allocation.

use std::net::IpAddr;

use super::fault::{Fault, Why};
use super::value;
use crate::attributes::{Metric, Mtu, NexthopId, Reach, RouteType, Table, Tos};
use crate::error::ValueError;
use crate::net::{Family, Prefix};

/// A route as one line of a list says it: checked, and with its host bits masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteLine<'a> {
    /// What happens to a packet.
    pub kind: RouteType,
    /// The destination, without host bits.
    pub to: Prefix,
    /// The gateway. May be IPv6 for an IPv4 destination.
    pub via: Option<IpAddr>,
    /// The link; a name that the kernel allows.
    pub dev: Option<&'a str>,
    /// The table; the main one if left out.
    pub table: Option<Table>,
    /// Preference; the kernel's default if left out.
    pub metric: Option<Metric>,
    /// Source address of what this machine sends.
    pub src: Option<IpAddr>,
    /// Whether the gateway is taken to be on the link.
    pub onlink: Option<bool>,
    /// Largest packet.
    pub mtu: Option<Mtu>,
    /// How far the destination is.
    pub scope: Option<Reach>,
    /// Type of service.
    pub tos: Option<Tos>,
    /// A nexthop object by id.
    pub nexthop: Option<NexthopId>,
}

/// The words that may follow a destination.
pub(super) const WORDS: [&str; 10] =
    ["via", "dev", "table", "metric", "src", "onlink", "mtu", "scope", "tos", "nhid"];

/// The types that a list can have; all others lead into tables that the kernel fills by itself.
pub(super) const TYPES: [RouteType; 5] = [
    RouteType::Unicast,
    RouteType::Blackhole,
    RouteType::Unreachable,
    RouteType::Prohibit,
    RouteType::Throw,
];

impl<'a> RouteLine<'a> {
    /// Reads one line; nothing if it is blank or a comment.
    pub fn parse(text: &'a str) -> Result<Option<Self>, ValueError> {
        parse(text).map_err(Fault::explain)
    }

    fn new(kind: RouteType, to: Prefix) -> Self {
        let (via, dev, src, nexthop) = (None, None, None, None);
        let (table, metric, onlink, mtu, scope, tos) = (None, None, None, None, None, None);
        Self { kind, to, via, dev, table, metric, src, onlink, mtu, scope, tos, nexthop }
    }
}

/// Reads one line; a fault borrows the word that it is about.
pub(super) fn parse(text: &str) -> Result<Option<RouteLine<'_>>, Fault<'_>> {
    let mut words = Words(text);
    let Some(first) = words.next() else { return Ok(None) };
    let (kind, to) = match value::route_type(first) {
        Some(kind) => (kind, words.after(first)?),
        None => (RouteType::Unicast, first),
    };
    let mut line = RouteLine::new(kind, value::destination(to)?);
    while let Some(word) = words.next() {
        line.read(word, &mut words)?;
    }
    check(&line, first, to)?;
    line.to = line.to.masked();
    Ok(Some(line))
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

impl<'a> RouteLine<'a> {
    /// Takes one word with its value.
    fn read(&mut self, word: &'a str, words: &mut Words<'a>) -> Result<(), Fault<'a>> {
        match word {
            "via" => put(&mut self.via, word, words.gateway(word)?),
            "dev" => put(&mut self.dev, word, value::link(words.after(word)?)?),
            "table" => put(&mut self.table, word, value::table(words.after(word)?)?),
            "metric" => put(&mut self.metric, word, value::metric(words.after(word)?)?),
            "src" => put(&mut self.src, word, value::address(words.after(word)?)?),
            "onlink" => put(&mut self.onlink, word, true),
            "mtu" => put(&mut self.mtu, word, value::mtu(words.after(word)?)?),
            "scope" => put(&mut self.scope, word, value::scope(words.after(word)?)?),
            "tos" => put(&mut self.tos, word, value::tos(words.after(word)?)?),
            "nhid" => put(&mut self.nexthop, word, value::nexthop(words.after(word)?)?),
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
fn check<'a>(line: &RouteLine<'a>, first: &'a str, to: &'a str) -> Result<(), Fault<'a>> {
    let has_way = line.via.is_some() || line.dev.is_some();
    let why = match (line.kind.forwards(), has_way, line.nexthop.is_some()) {
        (true, true, false) | (true, false, true) | (false, false, false) => {
            return families(line, to);
        }
        (true, true, true) => Why::TwoWays,
        (true, false, false) => Why::LeadsNowhere,
        (false, ..) => Why::GoesNowhere,
    };
    Err(Fault::at(first, why))
}

fn families<'a>(line: &RouteLine<'a>, to: &'a str) -> Result<(), Fault<'a>> {
    let is_v6 = line.to.family() == Family::V6;
    let why = match line.via {
        Some(IpAddr::V4(_)) if is_v6 => Why::GatewayFamily,
        Some(IpAddr::V6(_)) if to == "default" => Why::DefaultFamily,
        _ if line.src.is_some_and(|src| src.is_ipv6() != is_v6) => Why::SourceFamily,
        _ if is_v6 && line.tos.is_some_and(|tos| tos.get() != 0) => Why::TosOnIpv6,
        _ => return Ok(()),
    };
    Err(Fault::at(to, why))
}
