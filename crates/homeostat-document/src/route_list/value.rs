//! The values of a line. Strict as in a document, but numbers may be hexadecimal, as `ip` shows them.

use std::net::{IpAddr, Ipv4Addr};

use super::fault::{Fault, Why};
use super::ip;
use super::line::TYPES;
use crate::attributes::{Metric, Mtu, NexthopId, Reach, RouteType, Table, Tos};
use crate::name::Name;
use crate::net::Prefix;

/// The type that a line begins with, if it begins with one.
pub(super) fn route_type(word: &str) -> Option<RouteType> {
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

pub(super) fn link(word: &str) -> Result<&str, Fault<'_>> {
    let fine = Name::fault(word).is_none();
    // The kernel would take it, and the comment would become part of the name.
    let fine = fine && !word.as_bytes().contains(&b'#');
    if fine { Ok(word) } else { Err(Fault::at(word, Why::Link)) }
}

pub(super) fn table(word: &str) -> Result<Table, Fault<'_>> {
    let table = number(word).map_or_else(|| Table::from_name(word), Table::new);
    table.ok_or(Fault::at(word, Why::Table))
}

pub(super) fn scope(word: &str) -> Result<Reach, Fault<'_>> {
    let small = || number(word).and_then(|scope| u8::try_from(scope).ok());
    let scope = Reach::from_name(word).or_else(|| Reach::new(small()?));
    scope.ok_or(Fault::at(word, Why::Scope))
}

pub(super) fn metric(word: &str) -> Result<Metric, Fault<'_>> {
    let metric = number(word).and_then(Metric::new);
    metric.ok_or(Fault::at(word, Why::Number("a metric", 0, u32::MAX)))
}

pub(super) fn mtu(word: &str) -> Result<Mtu, Fault<'_>> {
    let mtu = number(word).and_then(Mtu::new);
    mtu.ok_or(Fault::at(word, Why::Number("an MTU in bytes", 68, 65_536)))
}

pub(super) fn tos(word: &str) -> Result<Tos, Fault<'_>> {
    let tos = number(word).and_then(|tos| Tos::new(u8::try_from(tos).ok()?));
    tos.ok_or(Fault::at(word, Why::Number("a type of service", 0, 255)))
}

pub(super) fn nexthop(word: &str) -> Result<NexthopId, Fault<'_>> {
    let id = number(word).and_then(NexthopId::new);
    id.ok_or(Fault::at(word, Why::Number("a nexthop id", 1, u32::MAX)))
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
