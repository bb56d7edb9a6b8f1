//! Names of hosts where addresses belong. Pure.
//!
//! `nft` looks names up while it loads a text. Where hosts can be hidden from it, it finds none; elsewhere
//! somebody may answer on a local socket or from `/etc/hosts`, and the firewall would be what the answer was
//! that day. So what cannot be anything else is refused before: a name with a dot and a letter, right after
//! `ip saddr` and the like.

use std::net::IpAddr;

use crate::statements::{At, at};

/// The first name of a host, with its place.
pub(crate) fn named(text: &str) -> Option<(&str, At)> {
    let mut looking = Looking::default();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if let Some(token) = unquoted(line).flat_map(tokens).find(|token| looking.take(token)) {
            let offset = start + token.as_ptr().addr() - line.as_ptr().addr();
            return Some((token, at(text, offset)));
        }
        start += line.len();
    }
    None
}

/// The parts of a line around what is quoted, each quotation a word of its own, up to a comment.
fn unquoted(line: &str) -> impl Iterator<Item = &str> {
    let mut is_comment = false;
    line.split('"').step_by(2).enumerate().flat_map(move |(nth, part)| {
        let code = if is_comment { "" } else { part.split('#').next().unwrap_or_default() };
        is_comment |= part.contains('#');
        [if nth == 0 { "" } else { QUOTED }, code]
    })
}

const QUOTED: &str = "\"";

/// Words, and signs that are words of their own.
fn tokens(code: &str) -> impl Iterator<Item = &str> {
    let is_sign = |c: char| "{},;".contains(c);
    code.split(char::is_whitespace).flat_map(move |word| {
        word.split_inclusive(is_sign).flat_map(move |part| match part.strip_suffix(is_sign) {
            Some(before) => [before, part.get(before.len()..).unwrap_or_default()],
            None => [part, ""],
        })
    })
}

/// What the words so far say of the next one.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Looking {
    #[default]
    Around,
    /// Behind `ip` or `ip6`.
    AtField,
    /// Behind `ip saddr`.
    AtAddress,
    /// At the beginning of an element of a list of addresses.
    AtElement,
    InsideElement,
}

impl Looking {
    /// Takes a word: whether it is the name of a host.
    fn take(&mut self, word: &str) -> bool {
        use Looking::{Around, AtAddress, AtElement, AtField, InsideElement};
        let (next, is_address) = match (*self, word) {
            (same, "") => (same, false),
            (AtField, "saddr" | "daddr") | (AtAddress, "!=" | "==" | "ne" | "eq") => {
                (AtAddress, false)
            }
            (AtAddress, "{") | (InsideElement, ",") => (AtElement, false),
            (AtElement | InsideElement, "}") => (Around, false),
            (AtElement, _) => (InsideElement, true),
            (InsideElement, _) => (InsideElement, false),
            (state, "ip" | "ip6") if state != AtAddress => (AtField, false),
            (state, _) => (Around, state == AtAddress),
        };
        *self = next;
        is_address && is_host(word)
    }
}

fn is_host(word: &str) -> bool {
    let is_dotted = word.contains('.') && word.contains(|c: char| c.is_ascii_alphabetic());
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
    word == "localhost" || is_dotted && is_plain && word.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_addresses_belong() {
        let check = |text: &str, expected: (&str, u32, u32)| {
            let found = named(text).map(|(name, at)| (name, at.line, at.column));
            assert_eq!(found, Some(expected), "{text}");
        };
        check("ip saddr www.example.org accept", ("www.example.org", 1, 10));
        check("\n\tip6 daddr != localhost drop", ("localhost", 2, 15));
        check("ip saddr { 10.0.0.1,\n  db.lan, 10.0.0.2 } drop", ("db.lan", 2, 3));
        check("ip saddr {10.0.0.1,db.lan} drop", ("db.lan", 1, 20));
        check("accept comment \"# a\"; ip saddr db.lan drop", ("db.lan", 1, 32));
    }

    #[test]
    fn whatever_else_stands_there_is_no_name() {
        for text in [
            "ip saddr 10.0.0.1 ip daddr 10.0.0.0/8 tcp dport 22 accept",
            "ip6 saddr ::ffff:10.0.0.1 accept",
            "ip saddr { 10.0.0.1-10.0.0.9, 10.1.0.0/16 } accept",
            "ip saddr . tcp dport { 10.0.0.1 . 22 } accept",
            "add @s { ip saddr timeout 1.5s }",
            "ip saddr @eth0.10 accept",
            "ip saddr $www.lan accept",
            "ip saddr map { 10.0.0.1 : 10.0.0.2 }",
            "# ip saddr www.example.org",
            "ip protocol tcp iifname eth0.10 accept",
            "ip daddr 10.0.0.1 oifname localhost",
            "iifname { eth0.10, eth0.20 } ip saddr 10.0.0.1",
            "accept comment \"ip saddr www.example.org\"",
            "comment \"a # b\" # ip saddr www.example.org",
            "ip saddr \"x\" www.example.org",
        ] {
            assert!(named(text).is_none(), "{text}");
        }
    }
}
