//! The section `[resolver]`: which name servers programs ask, as the set of files that has `/etc/resolv.conf` alone.

use std::net::IpAddr;

use homeostat_document::{
    Diagnostic, Fields, Join, Record, Scope, Scopes, Section, Span, Spanned, Text, ValueError,
    record,
};

use crate::key::FilePath;
use crate::model::Attributes;
use crate::section::{Set, SetName, Source, Write};

/// The name of the set. No set of a document can have it.
pub(crate) const SET: &str = "resolv.conf";

const PATH: &str = "/etc/resolv.conf";

/// How many servers the C library asks.
const MOST_SERVERS: usize = 3;

/// `[resolver]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    servers: Vec<IpAddr>,
    search: Vec<String>,
    options: Vec<String>,
    /// The set with the file; without a file, if nothing is declared.
    set: Set,
}

/// The set of a scope, if it has the section.
pub(crate) fn set(scope: &Scope) -> Option<&Set> {
    scope.get::<Resolver>().map(|resolver| &resolver.set)
}

impl Section for Resolver {
    const NAME: &'static str = "resolver";
    const DOC: &'static str = "The name servers that programs ask: /etc/resolv.conf";
    const SCOPES: Scopes = Scopes::Host("resolv.conf belongs to the host, not to a namespace");
    const JOIN: Join = Join::Tables(&[]);

    type Value = Self;
    const NEW: fn(Self::Value) -> Self = |resolver| resolver;
}

record!(Resolver);

impl Record for Resolver {
    const NAME: &'static str = "resolver";
    const DOC: &'static str = "What is written to /etc/resolv.conf; nothing, if no field is given";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let servers: Option<Vec<Spanned<IpAddr>>> =
            fields.optional("servers", "Addresses of name servers, in this order; 3 at most");
        let search: Option<Vec<Domain>> =
            fields.optional("search", "Domains that short names are looked up in");
        let options: Option<Vec<ResolverOption>> =
            fields.optional("options", "Options as in resolv.conf(5), such as \"edns0\"");
        let adopt = fields.flag("adopt", "Take the file over from anybody");
        let mut servers = servers.unwrap_or_default();
        if let Some(ignored) = servers.get(MOST_SERVERS) {
            let message =
                format!("the C library asks {MOST_SERVERS} servers and ignores the others");
            let help = "let a local resolver ask more of them, such as unbound, and name that one";
            fields.report(Diagnostic::new(ignored.span, message).help(help));
        }
        if adopt && fields.lacks(&["servers", "search", "options"]) {
            let message = "nothing is declared that could take the file over";
            fields.report(Diagnostic::new(fields.at("adopt"), message));
        }
        servers.truncate(MOST_SERVERS);
        let servers = servers.into_iter().map(|server| server.value).collect();
        let search = search.unwrap_or_default().into_iter().map(|Domain(name)| name).collect();
        let options = options.unwrap_or_default().into_iter().map(|option| option.0).collect();
        Resolver::new(servers, search, options, adopt, fields.span())
    }
}

impl Resolver {
    fn new(
        servers: Vec<IpAddr>,
        search: Vec<String>,
        options: Vec<String>,
        adopt: bool,
        span: Span,
    ) -> Option<Self> {
        let content = content(&servers, &search, &options);
        let path: FilePath = PATH.parse().ok()?;
        let write = content.map(|text| Write {
            path: Spanned::new(path, span),
            source: Some(Source::Text(Spanned::new(text, span))),
            attributes: Attributes::default(),
            secret: false,
            adopt,
        });
        let set = Set {
            name: Spanned::new(SetName::of_a_section(SET), span),
            check: None,
            program: None,
            namespace: None,
            certificate_days: None,
            inputs: Vec::new(),
            write: write.into_iter().collect(),
            directories: Vec::new(),
        };
        Some(Resolver { servers, search, options, set })
    }
}

/// The text of the file; nothing, if nothing is declared.
fn content(servers: &[IpAddr], search: &[String], options: &[String]) -> Option<String> {
    let servers = servers.iter().map(|server| format!("nameserver {server}\n"));
    let lists = [("search", search), ("options", options)].into_iter();
    let lists = lists.filter(|(_, values)| !values.is_empty());
    let lists = lists.map(|(word, values)| format!("{word} {}\n", values.join(" ")));
    let text: String = servers.chain(lists).collect();
    (!text.is_empty()).then(|| format!("# Kept by homeostat: [resolver] of its document.\n{text}"))
}

/// A domain in which short names are looked up.
struct Domain(String);

impl Text for Domain {
    const WHAT: &'static str = "a domain, such as \"example.org\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_label =
            |label: &str| (1..=63).contains(&label.len()) && label.chars().all(is_letter);
        let plain = text.strip_suffix('.').unwrap_or(text);
        // The root alone means that nothing is appended.
        let is_domain = text == "." || text.len() <= 253 && plain.split('.').all(is_label);
        let error = || {
            ValueError::is_not(text, Self::WHAT)
                .help("names in other scripts are written as xn--, one list entry each")
        };
        is_domain.then(|| Domain(text.to_owned())).ok_or_else(error)
    }
}

/// An option of the C library's resolver. Which ones it knows differs: it ignores others.
struct ResolverOption(String);

impl Text for ResolverOption {
    const WHAT: &'static str = "an option of resolv.conf, such as \"timeout:1\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
        let is_option = !text.is_empty() && text.chars().all(is_letter);
        let error = || ValueError::is_not(text, Self::WHAT).help("one list entry for each option");
        is_option.then(|| ResolverOption(text.to_owned())).ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_what_is_declared_and_none_is_written_for_nothing() {
        let servers: Vec<IpAddr> =
            ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap()).into();
        let [search, options] =
            [["example.org", "."], ["edns0", "timeout:1"]].map(|all| all.map(str::to_owned));
        let text = content(&servers, &search, &options).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "nameserver 192.0.2.1",
                "nameserver 2001:db8::1",
                "search example.org .",
                "options edns0 timeout:1"
            ]
        );
        assert!(text.starts_with("# "), "people see whose it is");
        assert_eq!(content(&[], &[], &[]), None);
    }

    #[test]
    fn no_value_can_add_a_line() {
        for text in ["", "a b", "a\nnameserver 192.0.2.66", "a..b", "-\t", "{{ x }}", "ä.example"]
        {
            assert!(Domain::from_text(text).is_err(), "{text:?}");
        }
        for text in ["", "a b", "edns0\n", "timeout=1", "{{ x }}"] {
            assert!(ResolverOption::from_text(text).is_err(), "{text:?}");
        }
        for text in ["example.org", "example.org.", "localdomain", ".", "_x.example"] {
            assert!(Domain::from_text(text).is_ok(), "{text}");
        }
    }
}
