//! The values of a line. Strict as in a document, but numbers may be hexadecimal, as `ip` shows them.

use std::net::{IpAddr, Ipv4Addr};

use homeostat_document::Number;

use super::fault::{Fault, Why};
use super::ip;
use super::line::TYPES;
use crate::link::LinkName;
use crate::nexthop::NexthopId;
use crate::number::{Metric, SCOPES, Scope, TABLES, Table, Tos};
use crate::route::RouteKind;
use crate::values::{METRIC, MTU, NEXTHOP_ID, Prefix, TOS};

/// The type that a line begins with, if it begins with one.
pub(super) fn route_type(word: &str) -> Option<RouteKind> {
    // Nearly all lines begin with a digit.
    let is_word = word.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    TYPES.into_iter().find(|kind| is_word && kind.word() == word)
}

pub(super) fn destination(word: &str) -> Result<Prefix, Fault<'_>> {
    // From the end, where the length is.
    let slash = word.bytes().rposition(|byte| byte == b'/');
    let prefix = match slash.and_then(|slash| word.split_at_checked(slash)) {
        Some((addr, len)) => ip::parse(addr).and_then(|addr| Prefix::new(addr, length(len)?)),
        None if word == "default" => Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        None => ip::parse(word).map(Prefix::host),
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
    ip::parse(word).ok_or(Fault::at(word, Why::Address))
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

pub(super) fn metric(word: &str) -> Result<Metric, Fault<'_>> {
    in_range(word, METRIC).map(Metric)
}

pub(super) fn mtu(word: &str) -> Result<u32, Fault<'_>> {
    in_range(word, MTU)
}

pub(super) fn tos(word: &str) -> Result<Tos, Fault<'_>> {
    in_range(word, TOS).map(Tos)
}

pub(super) fn nexthop(word: &str) -> Result<NexthopId, Fault<'_>> {
    in_range(word, NEXTHOP_ID).map(NexthopId)
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
