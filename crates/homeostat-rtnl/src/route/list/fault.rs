//! What is wrong with a line. Cheap to make: of a million bad lines only a few are put into words.

use std::net::IpAddr;

use homeostat_document::{Text, ValueError, nearest, refuse, shorten};

use super::line::{TYPES, WORDS};
use super::read::LONGEST;
use crate::link::LinkName;
use crate::number::{SCOPES, TABLES};
use crate::route::RouteKind;
use crate::values::Destination;

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
    TwoWays,
    LeadsNowhere,
    GoesNowhere,
    GatewayFamily,
    DefaultFamily,
    SourceFamily,
    TosOnIpv6,
    NotUtf8,
    TooLong,
    ByteOrderMark,
}

const A_LINE: &str = "a line is `PREFIX via ADDR`, then dev, table, metric and others as needed";

impl<'a> Fault<'a> {
    pub(super) const fn at(word: &'a str, why: Why) -> Self {
        Self { word, why }
    }

    /// The fault in words, with the way out.
    pub(super) fn explain(self) -> ValueError {
        let word = self.word;
        match self.why {
            Why::NotUtf8 | Why::TooLong => of_the_line(self.why, word),
            _ if word.contains('#') => {
                let message = format!("`{}` runs into a comment", shorten(word));
                ValueError::new(message).help("put a space before `#`")
            }
            Why::Destination => destination(word),
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
            why => of_the_line(why, word),
        }
    }
}

/// Faults of a line as a whole.
fn of_the_line(why: Why, word: &str) -> ValueError {
    let (message, help) = match why {
        Why::Twice => (format!("`{word}` is there twice"), None),
        Why::TwoWays => ("a route goes one way".to_owned(), Some("`via` and `dev`, or `nhid`")),
        Why::LeadsNowhere => {
            ("this route leads nowhere".to_owned(), Some("add `via`, `dev` or `nhid`"))
        }
        Why::GoesNowhere => (
            format!("a route of type `{word}` goes nowhere: `via`, `dev` and `nhid` have no place"),
            None,
        ),
        Why::OtherFamily => (format!("`{word}` is of another family than `via` says"), None),
        Why::GatewayFamily => ("an IPv6 route cannot go via an IPv4 gateway".to_owned(), None),
        Why::DefaultFamily => {
            let message = "`default` is the IPv4 default route, and this gateway is IPv6";
            (message.to_owned(), Some("write `::/0` (or `0.0.0.0/0` for IPv4 via IPv6)"))
        }
        Why::SourceFamily => {
            ("the source address is of another family than the destination".to_owned(), None)
        }
        Why::TosOnIpv6 => ("IPv6 routes have no type of service".to_owned(), None),
        Why::NotUtf8 => ("this line is not UTF-8".to_owned(), Some("save the list as UTF-8")),
        Why::ByteOrderMark => (
            "the file begins with a byte order mark".to_owned(),
            Some("save it as UTF-8 without one"),
        ),
        Why::TooLong => (format!("this line is longer than {LONGEST} bytes"), Some(A_LINE)),
        _ => (format!("`{word}` has no place here"), Some(A_LINE)),
    };
    let error = ValueError::new(message);
    ValueError { help: help.map(str::to_owned), ..error }
}

/// What the slow and strict reader of documents says about the same text.
fn error_of<T>(read: Result<T, ValueError>, word: &str, what: &str) -> ValueError {
    read.err().unwrap_or_else(|| ValueError::is_not(word, what))
}

fn destination(word: &str) -> ValueError {
    let is_word = word.bytes().all(|byte| byte.is_ascii_alphabetic());
    if RouteKind::of_word(word).is_some() {
        let help = "declare it as an entry of `routes` in the document";
        return ValueError::new(format!("a list has no routes of type `{word}`")).help(help);
    }
    let error = error_of(Destination::from_text(word), word, Destination::WHAT);
    let types = TYPES.iter().map(|kind| kind.word()).chain(["default"]);
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

/// Words of `ip route` that are left out for a reason, and what to do.
const LEFT_OUT: [(&str, &str); 6] = [
    ("proto", "leave it out: routes carry the protocol of the document's `settings`"),
    ("protocol", "leave it out: routes carry the protocol of the document's `settings`"),
    ("nexthop", "declare several ways as a group in `nexthops` and write `nhid ID`"),
    ("weight", "declare several ways as a group in `nexthops` and write `nhid ID`"),
    ("pref", "leave it out; `metric` says which of several routes is preferred"),
    ("linkdown", "leave it out: it is the kernel's own remark"),
];

fn unknown(word: &str) -> ValueError {
    let error = ValueError::is_not(word, "a word of a route");
    let left_out = LEFT_OUT.iter().find(|(other, _)| *other == word);
    match (left_out, nearest(word, WORDS)) {
        (Some((_, help)), _) => error.help(*help),
        (None, Some(near)) => error.help(format!("did you mean `{near}`?")),
        (None, None) => error.help(format!("one of {}", WORDS.join(", "))),
    }
}
