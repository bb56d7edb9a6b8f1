//! One line of a list of routes, in the words of `ip route`. Reading one is pure and allocates nothing; of a million
//! bad lines only a few are explained. Strict as in a document, but numbers may be hexadecimal, as `ip` shows them.

use std::net::{IpAddr, Ipv6Addr};

use homeostat_document::{Number, Text, ValueError, nearest, refuse, shorten, synonym};
use ipnet::{IpNet, Ipv4Net};

use crate::link::LinkName;
use crate::nexthop::NexthopId;
use crate::number::{Metric, SCOPES, Scope, TABLES, Table, Tos};
use crate::route::list::LONGEST;
use crate::route::{Route, RouteKey, RouteKind};
use crate::values::{Destination, METRIC, NEXTHOP_ID, ROUTE_MTU, TOS};
use crate::words::SYNONYMS;

/// A route as one line of a list says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteLine {
    pub key: RouteKey,
    /// Where it leads.
    pub route: Route,
}

/// The words that may follow a destination.
pub(super) const WORDS: [&str; 10] =
    ["via", "dev", "table", "metric", "src", "onlink", "mtu", "scope", "tos", "nhid"];

/// The types that a list can have; all others lead into tables that the kernel fills by itself.
const TYPES: [&str; 5] = ["unicast", "blackhole", "unreachable", "prohibit", "throw"];

impl RouteLine {
    /// Reads one line; nothing if it is blank or a comment.
    pub fn parse(text: &str) -> Result<Option<Self>, ValueError> {
        Parser::default().parse(text).map_err(Fault::explain)
    }
}

/// Reads lines. What follows the destination is mostly the same as in an earlier line, and then not read again.
#[derive(Default)]
pub(super) struct Parser {
    recent: Vec<Tail>,
}

/// What followed a destination, and what it says.
#[derive(Clone, Default)]
struct Tail {
    text: String,
    options: Options,
}

/// What the words after a destination have said so far.
#[derive(Clone, Default)]
struct Options {
    table: Option<Table>,
    metric: Option<Metric>,
    tos: Option<Tos>,
    route: Route,
}

/// How many tails are remembered: more than a router has gateways.
const RECENT: usize = 1 << 8;

impl Parser {
    /// Reads one line; a fault borrows the word that it is about.
    pub(super) fn parse<'a>(&mut self, text: &'a str) -> Result<Option<RouteLine>, Fault<'a>> {
        let mut words = Words(text);
        let Some(first) = words.next() else { return Ok(None) };
        let (kind, to) = match route_type(first) {
            Some(kind) => (kind, words.after(first)?),
            None => (RouteKind::UNICAST, first),
        };
        let destination = destination(to)?;
        let options = self.options(kind, words)?;
        check(&destination, options, first, to)?;
        let key = RouteKey::new(destination.into())
            .in_table(options.table.unwrap_or(Table::MAIN))
            .with_metric(options.metric.unwrap_or(Metric(0)))
            .with_tos(options.tos.unwrap_or_default());
        Ok(Some(RouteLine { key, route: options.route.clone() }))
    }

    fn options<'a>(
        &mut self,
        kind: RouteKind,
        mut words: Words<'a>,
    ) -> Result<&Options, Fault<'a>> {
        if self.recent.is_empty() {
            self.recent.resize_with(RECENT, Tail::default);
        }
        let text = words.0;
        let tail = &mut self.recent[place(text)];
        if tail.text != text || tail.options.route.kind != kind || text.is_empty() {
            // Words that cannot be read must not stay cached.
            tail.text.clear();
            tail.options = Options { route: Route::of_kind(kind), ..Options::default() };
            while let Some(word) = words.next() {
                tail.options.read(word, &mut words)?;
            }
            tail.text.push_str(text);
        }
        Ok(&tail.options)
    }
}

/// Where a tail is remembered.
fn place(tail: &str) -> usize {
    let mut mixed = tail.len() as u64;
    for chunk in tail.as_bytes().chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        mixed = (mixed ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^= mixed >> 32;
    }
    usize::try_from(mixed % RECENT as u64).unwrap_or(0)
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
                let gateway = address(addr)?;
                let fits = gateway.is_ipv6() == (family == "inet6");
                if fits { Ok(gateway) } else { Err(Fault::at(addr, Why::OtherFamily)) }
            }
            addr => address(addr),
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

impl Options {
    /// Takes one word with its value.
    fn read<'a>(&mut self, word: &'a str, words: &mut Words<'a>) -> Result<(), Fault<'a>> {
        let route = &mut self.route;
        match word {
            "via" => put(&mut route.via, word, words.gateway(word)?),
            "dev" => put(&mut route.dev, word, link(words.after(word)?)?),
            "table" => put(&mut self.table, word, table(words.after(word)?)?),
            "metric" => {
                put(&mut self.metric, word, in_range(words.after(word)?, METRIC).map(Metric)?)
            }
            "src" => put(&mut route.src, word, address(words.after(word)?)?),
            "onlink" => put(&mut route.onlink, word, true),
            "mtu" => put(&mut route.mtu, word, in_range(words.after(word)?, ROUTE_MTU)?),
            "scope" => put(&mut route.scope, word, scope(words.after(word)?)?),
            "tos" => put(&mut self.tos, word, in_range(words.after(word)?, TOS).map(Tos)?),
            "nhid" => put(
                &mut route.nexthop,
                word,
                in_range(words.after(word)?, NEXTHOP_ID).map(NexthopId)?,
            ),
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
fn check<'a>(
    destination: &IpNet,
    options: &Options,
    first: &'a str,
    to: &'a str,
) -> Result<(), Fault<'a>> {
    let route = &options.route;
    let has_way = route.via.is_some() || route.dev.is_some();
    let why = match (route.kind.accepts_nexthop(), has_way, route.nexthop.is_some()) {
        (true, true, false) | (true, false, true) | (false, false, false) => {
            return families(destination, options, to);
        }
        (true, true, true) => Why::Line("a route goes one way", "`via` and `dev`, or `nhid`"),
        (true, false, false) => {
            Why::Line("this route has no nexthop", "add `via`, `dev` or `nhid`")
        }
        (false, ..) => Why::GoesNowhere,
    };
    Err(Fault::at(first, why))
}

fn families<'a>(destination: &IpNet, options: &Options, to: &'a str) -> Result<(), Fault<'a>> {
    let Options { route, tos, .. } = options;
    let is_v6 = matches!(destination, IpNet::V6(_));
    let why = match route.via {
        Some(IpAddr::V4(_)) if is_v6 => {
            Why::Line("an IPv6 route cannot go via an IPv4 gateway", "")
        }
        Some(IpAddr::V6(_)) if to == "default" => Why::Line(
            "`default` is the IPv4 default route, and this gateway is IPv6",
            "write `::/0` (or `0.0.0.0/0` for IPv4 via IPv6)",
        ),
        _ if route.src.is_some_and(|src| src.is_ipv6() != is_v6) => {
            Why::Line("the source address is of another family than the destination", "")
        }
        _ if is_v6 && tos.is_some_and(|tos| tos.0 != 0) => {
            Why::Line("IPv6 routes have no type of service", "")
        }
        _ => return Ok(()),
    };
    Err(Fault::at(to, why))
}

/// The type that a line begins with, if it begins with one.
pub(super) fn route_type(word: &str) -> Option<RouteKind> {
    // Nearly all lines begin with a digit.
    let is_word = word.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    (is_word && TYPES.contains(&word)).then(|| word.parse().ok())?
}

pub(super) fn destination(word: &str) -> Result<IpNet, Fault<'_>> {
    // From the end, where the length is.
    let slash = word.bytes().rposition(|byte| byte == b'/');
    let prefix = match slash.and_then(|slash| word.split_at_checked(slash)) {
        Some((addr, len)) => parse_ip(addr).and_then(|addr| IpNet::new(addr, length(len)?).ok()),
        None if word == "default" => Some(Ipv4Net::default().into()),
        None => parse_ip(word).map(IpNet::from),
    };
    prefix.ok_or(Fault::at(word, Why::Destination))
}

/// A slash and a prefix length: at most three digits and no leading zero.
fn length(text: &str) -> Option<u8> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| byte - b'0');
    match *text.as_bytes() {
        [_, only] => digit(only),
        [_, b'1'..=b'9', _] | [_, b'1', _, _] => text.get(1..)?.parse().ok(),
        _ => None,
    }
}

pub(super) fn address(word: &str) -> Result<IpAddr, Fault<'_>> {
    parse_ip(word).ok_or(Fault::at(word, Why::Address))
}

pub(super) fn link(word: &str) -> Result<LinkName, Fault<'_>> {
    let fine = LinkName::fault(word).is_none();
    // The kernel would take it, and the comment would become part of the name.
    let fine = fine && !word.as_bytes().contains(&b'#');
    if fine { Ok(LinkName::padded(word)) } else { Err(Fault::at(word, Why::Link)) }
}

pub(super) fn table(word: &str) -> Result<Table, Fault<'_>> {
    let named = || TABLES.iter().find(|(name, _)| *name == word).map(|(_, table)| *table);
    let table = number(word).or_else(named).filter(|table| *table != 0);
    table.map(Table).ok_or(Fault::at(word, Why::Table))
}

pub(super) fn scope(word: &str) -> Result<Scope, Fault<'_>> {
    let named = SCOPES.iter().find(|(name, _)| *name == word).map(|(_, scope)| *scope);
    let scope = named.or_else(|| u8::try_from(number(word)?).ok());
    scope.map(Scope).ok_or(Fault::at(word, Why::Scope))
}

fn in_range<N: TryFrom<u32> + Into<u32> + Copy + PartialOrd>(
    word: &str,
    range: Number<N>,
) -> Result<N, Fault<'_>> {
    let number = number(word).and_then(|number| N::try_from(number).ok());
    let number = number.filter(|number| (range.least..=range.most).contains(number));
    let why = || Why::Number(range.what, range.least.into(), range.most.into());
    number.ok_or_else(|| Fault::at(word, why()))
}

/// A plain number. A leading zero is refused: some read it as octal.
fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let plain = plain && (radix == 16 || text == "0" || !text.starts_with('0'));
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    let bytes = text.as_bytes();
    let is_v6 = bytes.iter().take(5).any(|byte| *byte == b':');
    let plain = if is_v6 { parse_v6(bytes).map(IpAddr::V6) } else { None };
    plain.or_else(|| text.parse().ok())
}

/// Groups of hexadecimal digits, with at most one gap between two of them or at the end.
fn parse_v6(bytes: &[u8]) -> Option<Ipv6Addr> {
    let (mut bits, mut group, mut digits) = (0_u128, 0_u32, 0);
    let (mut groups, mut gap) = (0_u32, None);
    for byte in bytes {
        match (char::from(*byte).to_digit(16), byte) {
            (Some(digit), _) if digits < 4 => {
                group = group << 4 | digit;
                digits += 1;
            }
            (None, b':') if digits > 0 => {
                bits = bits << 16 | u128::from(group);
                (group, digits, groups) = (0, 0, groups + 1);
            }
            (None, b':') if groups > 0 && gap.is_none() => gap = Some(groups),
            _ => return None,
        }
    }
    if digits > 0 {
        (bits, groups) = (bits << 16 | u128::from(group), groups + 1);
    }
    match gap {
        None if groups == 8 && digits > 0 => Some(Ipv6Addr::from_bits(bits)),
        Some(gap) if groups < 8 && (digits > 0 || gap == groups) => {
            let tail = 16 * (groups - gap);
            let (first, last) = (bits >> tail, bits & ((1 << tail) - 1));
            Some(Ipv6Addr::from_bits(first << (128 - 16 * gap) | last))
        }
        _ => None,
    }
}

/// A fault and the word that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault<'a> {
    pub(super) word: &'a str,
    pub(super) why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Destination,
    Address,
    OtherFamily,
    Link,
    Table,
    Scope,
    /// What it should be, the least and the most.
    Number(&'static str, u32, u32),
    UnknownWord,
    NothingFollows,
    Twice,
    GoesNowhere,
    NotUtf8,
    TooLong,
    Unfinished,
    /// What is wrong with the line as a whole, and the way out, if there is one.
    Line(&'static str, &'static str),
}

/// A file of another program may begin with it.
pub(super) const BYTE_ORDER_MARK: Why =
    Why::Line("the file begins with a byte order mark", "save it as UTF-8 without one");

const A_LINE: &str = "a line is `PREFIX via ADDR`, then dev, table, metric and others as needed";

impl<'a> Fault<'a> {
    pub(super) const fn at(word: &'a str, why: Why) -> Self {
        Self { word, why }
    }

    /// The fault in words, with the way out.
    pub(super) fn explain(self) -> ValueError {
        let word = self.word;
        match self.why {
            Why::NotUtf8 => {
                ValueError::new("this line is not UTF-8").help("save the list as UTF-8")
            }
            Why::TooLong => {
                ValueError::new(format!("this line is longer than {LONGEST} bytes")).help(A_LINE)
            }
            Why::Unfinished => {
                ValueError::new("the last line has no end: the list may be half-written")
                    .help("end it with a newline")
            }
            _ if word.contains('#') => {
                let message = format!("`{}` runs into a comment", shorten(word));
                ValueError::new(message).help("put a space before `#`")
            }
            Why::Destination => destination_error(word),
            Why::Address => error_of(IpAddr::from_text(word), word, IpAddr::WHAT),
            Why::Link => error_of(LinkName::from_text(word), word, LinkName::WHAT),
            Why::Table => {
                let help = "names from rt_tables are not read: write the number";
                named(word, "a routing table", &names(&TABLES), help)
            }
            Why::Scope => named(word, "a scope", &names(&SCOPES), "or a number up to 255"),
            Why::Number(what, least, most) => {
                ValueError::is_not(word, what).help(format!("it must be from {least} to {most}"))
            }
            Why::UnknownWord => unknown(word),
            Why::NothingFollows => ValueError::new(format!("nothing follows `{word}`")),
            Why::Twice => ValueError::new(format!("`{word}` is there twice")),
            Why::GoesNowhere => ValueError::new(format!(
                "a route of type `{word}` goes nowhere: `via`, `dev` and `nhid` have no place"
            )),
            Why::OtherFamily => {
                ValueError::new(format!("`{word}` is of another family than `via` says"))
            }
            Why::Line(message, "") => ValueError::new(message),
            Why::Line(message, help) => ValueError::new(message).help(help),
        }
    }
}

/// What the slow and strict reader of documents says about the same text.
fn error_of<T>(read: Result<T, ValueError>, word: &str, what: &str) -> ValueError {
    read.err().unwrap_or_else(|| ValueError::is_not(word, what))
}

fn destination_error(word: &str) -> ValueError {
    let is_word = word.bytes().all(|byte| byte.is_ascii_alphabetic());
    if RouteKind::from_text(word).is_ok() {
        let help = "declare it as an entry of `routes` in the document";
        return ValueError::new(format!("a list has no routes of type `{word}`")).help(help);
    }
    let error = error_of(Destination::from_text(word), word, Destination::WHAT);
    let types = TYPES.into_iter().chain(["default"]);
    match nearest(word, types).filter(|_| is_word) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None if error.help.is_none() => error.help(A_LINE),
        None => error,
    }
}

fn names<N>(known: &[(&'static str, N)]) -> Vec<&'static str> {
    known.iter().map(|(name, _)| *name).collect()
}

fn named(word: &str, what: &str, names: &[&str], rest: &str) -> ValueError {
    let error = refuse(word, what, names);
    let help = error.help.as_ref().map(|help| format!("{help}; {rest}"));
    ValueError { help, ..error }
}

const IN_DOCUMENT: &str =
    "a list has no routes with it: declare this one as an entry of `routes` in the document";

/// Words of `ip route` that are left out for a reason, and what to do.
const LEFT_OUT: [(&str, &str); 12] = [
    ("proto", "leave it out: routes carry the protocol of the document's `settings`"),
    ("protocol", "leave it out: routes carry the protocol of the document's `settings`"),
    ("nexthop", "declare several ways as a group in `nexthops` and write `nhid ID`"),
    ("weight", "declare several ways as a group in `nexthops` and write `nhid ID`"),
    ("pref", "leave it out if it is `medium`; a list has no others"),
    ("expires", IN_DOCUMENT),
    ("encap", IN_DOCUMENT),
    ("advmss", IN_DOCUMENT),
    ("initcwnd", IN_DOCUMENT),
    ("initrwnd", IN_DOCUMENT),
    ("congctl", IN_DOCUMENT),
    ("linkdown", "leave it out: it is the kernel's own remark"),
];

fn unknown(word: &str) -> ValueError {
    let error = ValueError::is_not(word, "a word of a route");
    let left_out = LEFT_OUT.iter().find(|(other, _)| *other == word);
    let near = synonym(word, [SYNONYMS], WORDS).or_else(|| nearest(word, WORDS));
    match (left_out, near) {
        (Some((_, help)), _) => error.help(*help),
        (None, Some(near)) => error.help(format!("did you mean `{near}`?")),
        (None, None) => error.help(format!("one of {}", WORDS.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_addresses_need_no_second_look() {
        for text in ["fe80::1", "2001:db8::", "1:2:3:4:5:6:7:8", "a::b:c:d:e:f", "AbCd::0012"] {
            let parsed = parse_v6(text.as_bytes());
            assert!(parsed.is_some() && parsed == text.parse().ok(), "{text}");
        }
    }

    #[test]
    fn addresses_are_read_strictly() {
        for text in [
            "",
            ".",
            "1.2.3",
            "1.2.3.",
            "1.2.3.4.",
            ".1.2.3.4",
            "1..2.3",
            "256.0.0.1",
            "01.2.3.4",
            "00.0.0.0",
            "1.2.3.4.5",
            "1.2.3.0004",
            ":",
            "fe80",
            "fe80:",
            "fe80::1:",
            "fe80:::1",
            "1::2::3",
            "1:2:3:4:5:6:7:8:",
            "1:2:3:4:5:6:7:8:9",
            "1:2:3:4:5:6:7:8::",
            "12345::",
            "g::",
            "fe80::1%eth0",
            "::ffff:1.2.3.256",
        ] {
            assert_eq!(parse_ip(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_text_means_what_the_standard_library_says(text in "[0-9a-fA-F:.]{0,24}") {
            prop_assert_eq!(parse_ip(&text), text.parse().ok());
        }

        #[test]
        fn every_octet_is_read_alike(text in "([0-9]{0,4}\\.){2,4}[0-9]{0,4}") {
            prop_assert_eq!(parse_ip(&text), text.parse().ok());
        }

        #[test]
        fn every_group_is_read_alike(text in "([0-9a-f]{0,2}:){1,8}[0-9a-f]{0,5}") {
            prop_assert_eq!(parse_ip(&text), text.parse().ok());
        }

        #[test]
        fn every_printed_address_is_read(v4: u32, bits: u128, mask: u128) {
            let (v4, v6) = (Ipv4Addr::from_bits(v4), Ipv6Addr::from_bits(bits & mask));
            prop_assert_eq!(parse_ip(&v4.to_string()), Some(v4.into()));
            prop_assert_eq!(parse_ip(&v6.to_string()), Some(v6.into()));
        }
    }
}
