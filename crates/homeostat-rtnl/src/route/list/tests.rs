//! Lines, good and bad, and that no bytes whatsoever are a problem.

use std::io::BufReader;
use std::ops::ControlFlow;

use proptest::prelude::*;

use crate::route::line::{Fault, Parser, RouteLine};
use crate::route::list::{LONGEST, split};
use crate::route::{RouteKey, RouteKind};

/// A line as text again. What the kernel gives by itself is left out.
fn print(RouteLine { key, route }: &RouteLine) -> String {
    let usual = RouteKey::new(key.dst);
    let mut words = Vec::new();
    if route.kind != RouteKind::UNICAST {
        words.push(route.kind.to_string());
    }
    words.push(key.dst.to_string());
    let mut word = |word: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{word} {value}")));
    };
    word("via", route.via.map(|via| via.to_string()));
    word("dev", route.dev.map(|dev| dev.to_string()));
    word("nhid", route.nexthop.map(|id| id.to_string()));
    word("table", (key.table != usual.table).then(|| key.table.to_string()));
    word("metric", (key.metric != usual.metric).then(|| key.metric.0.to_string()));
    word("src", route.src.map(|src| src.to_string()));
    word("mtu", route.mtu.map(|mtu| mtu.to_string()));
    word("scope", route.scope.map(|scope| scope.to_string()));
    word("tos", (key.tos != usual.tos).then(|| key.tos.0.to_string()));
    words.extend(route.onlink.map(|_| "onlink".to_owned()));
    words.join(" ")
}

/// A line, printed in its one form; nothing for a blank one.
fn read(text: &str) -> Result<String, String> {
    match RouteLine::parse(text) {
        Ok(line) => Ok(line.map_or_else(String::new, |line| print(&line))),
        Err(error) => Err(error
            .help
            .map_or(error.message.clone(), |help| format!("{}; {help}", error.message))),
    }
}

#[test]
fn lines_are_read_as_people_write_them() {
    for (text, expected) in [
        ("", ""),
        (" \t", ""),
        ("# a comment", ""),
        ("  #10.0.0.0/8 via 10.0.0.1", ""),
        ("10.0.0.0/8 via 192.0.2.1", "10.0.0.0/8 via 192.0.2.1"),
        ("10.0.0.0/8 via 192.0.2.1 # transit", "10.0.0.0/8 via 192.0.2.1"),
        ("10.0.0.0/8 via 192.0.2.1 #", "10.0.0.0/8 via 192.0.2.1"),
        ("\t10.0.0.0/8\tvia  192.0.2.1  ", "10.0.0.0/8 via 192.0.2.1"),
        ("10.1.2.3/8 dev eth0", "10.0.0.0/8 dev eth0"),
        ("10.1.2.3 dev eth0", "10.1.2.3/32 dev eth0"),
        ("2001:DB8::1/32 via fe80::1 dev eth0", "2001:db8::/32 via fe80::1 dev eth0"),
        ("2001:db8::1 dev eth0", "2001:db8::1/128 dev eth0"),
        ("default via 192.0.2.1", "0.0.0.0/0 via 192.0.2.1"),
        ("::/0 via fe80::1 dev eth0", "::/0 via fe80::1 dev eth0"),
        ("10.0.0.0/8 via inet6 fe80::1 dev e", "10.0.0.0/8 via fe80::1 dev e"),
        ("10.0.0.0/8 via inet 192.0.2.1", "10.0.0.0/8 via 192.0.2.1"),
        (
            "10.0.0.0/8 metric 5 dev a.1 table 7 via 1.2.3.4",
            "10.0.0.0/8 via 1.2.3.4 dev a.1 table 7 metric 5",
        ),
        ("10.0.0.0/8 dev e table main", "10.0.0.0/8 dev e"),
        ("10.0.0.0/8 dev e table 0xff", "10.0.0.0/8 dev e table local"),
        ("10.0.0.0/8 dev e metric 0", "10.0.0.0/8 dev e"),
        ("fd00::/8 dev e metric 1024", "fd00::/8 dev e"),
        ("10.0.0.0/8 dev e metric 4294967295", "10.0.0.0/8 dev e metric 4294967295"),
        ("10.0.0.0/8 dev e scope link src 10.0.0.1", "10.0.0.0/8 dev e src 10.0.0.1 scope link"),
        ("10.0.0.0/8 dev e scope 200", "10.0.0.0/8 dev e scope site"),
        ("10.0.0.0/8 dev e tos 0x10 mtu 1400", "10.0.0.0/8 dev e mtu 1400 tos 16"),
        ("10.0.0.0/8 via 1.2.3.4 dev e onlink", "10.0.0.0/8 via 1.2.3.4 dev e onlink"),
        ("10.0.0.0/8 nhid 10", "10.0.0.0/8 nhid 10"),
        ("blackhole 10.0.0.0/8", "blackhole 10.0.0.0/8"),
        ("unreachable default metric 9", "unreachable 0.0.0.0/0 metric 9"),
        ("prohibit fd00::/8 table 7", "prohibit fd00::/8 table 7"),
        ("throw 10.0.0.0/8", "throw 10.0.0.0/8"),
        ("unicast 10.0.0.0/8 dev e", "10.0.0.0/8 dev e"),
    ] {
        assert_eq!(read(text).as_deref(), Ok(expected), "{text:?}");
    }
}

const A_LINE: &str = "a line is `PREFIX via ADDR`, then dev, table, metric and others as needed";

#[test]
fn a_word_that_is_wrong_is_named_with_the_way_out() {
    for (text, expected) in [
        ("10.0.0.0/8 vai 1.2.3.4", "`vai` is not a word of a route; did you mean `via`?"),
        ("10.0.0.0/8 gateway 1.2.3.4", "`gateway` is not a word of a route; did you mean `via`?"),
        (
            "10.0.0.0/8 dev e colour 1",
            "`colour` is not a word of a route; one of via, dev, table, metric, src, onlink, mtu, scope, tos, nhid",
        ),
        (
            "10.0.0.0/8 dev e proto static",
            "`proto` is not a word of a route; leave it out: routes carry the protocol of the document's `settings`",
        ),
        (
            "10.0.0.0/8 nexthop via 1.2.3.4",
            "`nexthop` is not a word of a route; declare several ways as a group in `nexthops` and write `nhid ID`",
        ),
        ("10.0.0.0/8 via", "nothing follows `via`"),
        ("10.0.0.0/8 via # 1.2.3.4", "nothing follows `via`"),
        ("10.0.0.0/8 via inet6", "nothing follows `inet6`"),
        ("blackhole", "nothing follows `blackhole`"),
        ("blakhole 10.0.0.0/8", "`blakhole` is not an IP address; did you mean `blackhole`?"),
        ("defualt via 1.2.3.4", "`defualt` is not an IP address; did you mean `default`?"),
        (
            "local 10.0.0.1 dev lo",
            "a list has no routes of type `local`; declare it as an entry of `routes` in the document",
        ),
        ("10.0.0/8 dev e", &format!("`10.0.0` is not an IP address; {A_LINE}")),
        ("10.0.0.0/33 dev e", "`/33` is not a prefix length of IPv4; it must be from /0 to /32"),
        ("10.0.0.0/08 dev e", "`/08` is not a prefix length of IPv4; it must be from /0 to /32"),
        ("::/129 dev e", "`/129` is not a prefix length of IPv6; it must be from /0 to /128"),
        (
            "10.0.0.0/8 via 1.2.3.4/24",
            "`1.2.3.4/24` is not an IP address; write it without a prefix length: `1.2.3.4`",
        ),
        ("10.0.0.0/8 via 1.2.3.4#x", "`1.2.3.4#x` runs into a comment; put a space before `#`"),
        ("10.0.0.0/8 dev eth0#x", "`eth0#x` runs into a comment; put a space before `#`"),
        ("10.0.0.0/8 dev a/b", "`a/b` is not an interface name; it has a `/`, `:` or `%` in it"),
        (
            "10.0.0.0/8 dev 1234567890123456",
            "`1234567890123456` is not an interface name; it has more than 15 bytes",
        ),
        ("10.0.0.0/8 dev e metric -1", "`-1` is not a metric; it must be from 0 to 4294967295"),
        ("10.0.0.0/8 dev e metric 010", "`010` is not a metric; it must be from 0 to 4294967295"),
        ("10.0.0.0/8 dev e mtu 67", "`67` is not an MTU in bytes; it must be from 68 to 65520"),
        ("10.0.0.0/8 dev e tos 256", "`256` is not a type of service; it must be from 0 to 255"),
        ("10.0.0.0/8 nhid 0", "`0` is not a nexthop id; it must be from 1 to 4294967295"),
        (
            "10.0.0.0/8 dev e table 0",
            "`0` is not a routing table; one of default, main, local; names from rt_tables are not read: write the number",
        ),
        (
            "10.0.0.0/8 dev e table mian",
            "`mian` is not a routing table; did you mean `main`? (one of default, main, local); names from rt_tables are not read: write the number",
        ),
        (
            "10.0.0.0/8 dev e scope linc",
            "`linc` is not a scope; did you mean `link`? (one of global, site, link, host, nowhere); or a number up to 255",
        ),
    ] {
        assert_eq!(read(text).as_ref().map_err(String::as_str), Err(expected), "{text:?}");
    }
}

#[test]
fn words_that_do_not_fit_together_are_refused() {
    for (text, expected) in [
        ("10.0.0.0/8", "this route has no nexthop; add `via`, `dev` or `nhid`"),
        ("10.0.0.0/8 metric 5", "this route has no nexthop; add `via`, `dev` or `nhid`"),
        ("10.0.0.0/8 dev e dev f", "`dev` is there twice"),
        ("10.0.0.0/8 dev e onlink onlink", "`onlink` is there twice"),
        ("10.0.0.0/8 dev e nhid 1", "a route goes one way; `via` and `dev`, or `nhid`"),
        (
            "throw 10.0.0.0/8 dev e",
            "a route of type `throw` goes nowhere: `via`, `dev` and `nhid` have no place",
        ),
        (
            "throw 10.0.0.0/8 nhid 1",
            "a route of type `throw` goes nowhere: `via`, `dev` and `nhid` have no place",
        ),
        ("fd00::/8 via 1.2.3.4", "an IPv6 route cannot go via an IPv4 gateway"),
        (
            "default via fe80::1 dev e",
            "`default` is the IPv4 default route, and this gateway is IPv6; write `::/0` (or `0.0.0.0/0` for IPv4 via IPv6)",
        ),
        ("10.0.0.0/8 via inet6 1.2.3.4", "`1.2.3.4` is of another family than `via` says"),
        (
            "10.0.0.0/8 dev e src fd00::1",
            "the source address is of another family than the destination",
        ),
        ("fd00::/8 dev e tos 4", "IPv6 routes have no type of service"),
    ] {
        assert_eq!(read(text).as_ref().map_err(String::as_str), Err(expected), "{text:?}");
    }
}

/// Numbers of all lines that say something, with what they say, read in pieces of `piece` bytes.
fn lines(bytes: &[u8], piece: usize) -> Vec<(usize, Result<String, String>)> {
    let mut lines = Vec::new();
    let mut each = |line: super::Line<'_>| {
        let said = line.read.map(|route| print(&route));
        lines.push((line.number, said.map_err(|fault| fault.explain().message)));
        ControlFlow::Continue(())
    };
    split(BufReader::with_capacity(piece, bytes), &mut each).unwrap();
    lines
}

#[test]
fn lines_keep_their_numbers_however_the_file_is_cut_and_ended() {
    let text = "# list\r\n\r\n10.0.0.0/8 dev a\r\n\n10.1.0.0/16 dev b\nx\n10.2.0.0/16 dev c";
    let expected = [(3, "10.0.0.0/8 dev a"), (5, "10.1.0.0/16 dev b"), (7, "10.2.0.0/16 dev c")];
    for text in [format!("{text}\n"), format!("{text}\r\n")] {
        for piece in 1..=text.len() + 1 {
            let mut lines = lines(text.as_bytes(), piece);
            assert_eq!(lines.remove(2), (6, Err("`x` is not an IP address".to_owned())));
            let good = expected.map(|(number, line)| (number, Ok(line.to_owned())));
            assert_eq!(lines, good, "in pieces of {piece}");
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_an_error_of_their_line_only() {
    let bytes = b"10.0.0.0/8 dev a\n# caf\xe9 #\n10.1.0.0/16 dev \xff\n10.2.0.0/16 dev b\n\0\n";
    let not_utf8 = || Err("this line is not UTF-8".to_owned());
    for piece in [1, 7, 1000] {
        let lines = lines(bytes, piece);
        assert_eq!(lines[1..3], [(2, not_utf8()), (3, not_utf8())]);
        assert_eq!(lines[3], (4, Ok("10.2.0.0/16 dev b".to_owned())));
        assert_eq!(lines[4], (5, Err("`\0` is not an IP address".to_owned())));
    }
    let marked = lines("\u{feff}10.0.0.0/8 dev a\n".as_bytes(), 1000);
    assert_eq!(marked, [(1, Err("the file begins with a byte order mark".to_owned()))]);
}

#[test]
fn a_line_without_an_end_is_refused_and_the_next_one_read() {
    let long = |length: usize| format!("{}\n10.0.0.0/8 dev a\n", "#".repeat(length));
    let too_long = (1, Err(format!("this line is longer than {LONGEST} bytes")));
    let next = (2, Ok("10.0.0.0/8 dev a".to_owned()));
    for piece in [100, LONGEST, LONGEST * 4] {
        assert_eq!(lines(long(LONGEST).as_bytes(), piece), vec![next.clone()], "{piece}");
        for length in [LONGEST + 1, LONGEST + 2, LONGEST + 3, LONGEST * 9] {
            let lines = lines(long(length).as_bytes(), piece);
            assert_eq!(lines, [too_long.clone(), next.clone()], "{length} in {piece}");
        }
        let cut = "ü".repeat(LONGEST);
        assert_eq!(lines(cut.as_bytes(), piece), vec![too_long.clone()]);
    }
}

#[test]
fn half_of_a_last_line_is_never_a_route() {
    let whole = "10.0.0.0/8 dev a\nblackhole 172.16.0.0/12\n";
    let first = (1, Ok("10.0.0.0/8 dev a".to_owned()));
    let unfinished = "the last line has no end: the list may be half-written".to_owned();
    for cut in 1..whole.len() {
        let expected = match cut {
            0..17 => vec![(1, Err(unfinished.clone()))],
            17 => vec![first.clone()],
            _ => vec![first.clone(), (2, Err(unfinished.clone()))],
        };
        for piece in [1, 7, 1000] {
            assert_eq!(lines(&whole.as_bytes()[..cut], piece), expected, "{cut} in {piece}");
        }
    }
}

/// A line with any of the words.
fn any_line() -> impl Strategy<Value = String> {
    let v4 = (any::<u32>(), 0..=32_u8).prop_map(|(bits, len)| {
        (format!("{}/{len}", std::net::Ipv4Addr::from_bits(bits)), "10.0.0.1")
    });
    let v6 = (any::<u128>(), 0..=128_u8).prop_map(|(bits, len)| {
        (format!("{}/{len}", std::net::Ipv6Addr::from_bits(bits)), "fe80::1")
    });
    let way = prop_oneof![Just("via"), Just("dev eth0"), Just("nhid 7"), Just("dev eth0 via")];
    let words = proptest::sample::subsequence(
        vec!["table 7", "metric 0x20", "mtu 1400", "scope link", "onlink"],
        0..=5,
    );
    (prop_oneof![v4, v6], way, words).prop_map(|((to, gateway), way, words)| {
        let way = if way.ends_with("via") { format!("{way} {gateway}") } else { way.to_owned() };
        format!("{to} {way} {}", words.join(" "))
    })
}

proptest! {
    #[test]
    fn a_printed_line_is_read_as_the_same_route(text in any_line()) {
        let line = RouteLine::parse(&text).unwrap().unwrap();
        let printed = print(&line);
        prop_assert_eq!(RouteLine::parse(&printed).unwrap(), Some(line), "{}", printed);
    }

    /// Whatever was read before: good tails, bad ones, and those of other types and families.
    #[test]
    fn a_line_says_the_same_after_any_others(
        lines in prop::collection::vec(
            (
                prop::sample::select(vec!["10.0.0.0/8", "throw 10.0.0.0/8", "::/0", "blackhole ::/0", "x"]),
                prop::sample::select(vec![
                    "", " ", " via 10.0.0.1", " via fe80::1 dev a", " dev a", " dev a tos 4", " nhid 7", " dev", " mtu 9",
                    " metric 5", " dev a dev a", " # c",
                ]),
            ),
            1..40,
        ),
    ) {
        let mut parser = Parser::default();
        for (to, tail) in lines {
            let text = format!("{to}{tail}");
            let read = parser.parse(&text).map_err(Fault::explain);
            prop_assert_eq!(read, RouteLine::parse(&text), "{}", text);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>(), piece in 1..64_usize) {
        let last = lines(&bytes, piece).last().map_or(0, |(number, _)| *number);
        prop_assert!(last <= bytes.split(|byte| *byte == b'\n').count());
    }

    #[test]
    fn any_soup_of_words_is_read_or_refused(
        text in "((10.0.0.0/8|::/0|default|throw|via|dev|metric|e0|1|0x|#|ü|/|\0|\r|\n|\t) ?){0,30}",
        piece in 1..64_usize,
    ) {
        prop_assert_eq!(lines(text.as_bytes(), piece), lines(text.as_bytes(), 1 << 16));
    }
}
