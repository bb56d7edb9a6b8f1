//! Which parts of a configuration `HAProxy` can change without a reload. Pure.
//!
//! Those parts are masked in the texts of a set, so that its generation stays the same while only they change; what they
//! declare is returned beside them, to be compared with what runs. Everything that is not understood stays in the text,
//! and so changes by a reload. A mask hides only what the process reports (`show servers state`): two texts that are the
//! same under it, and the same report, are the same configuration.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use crate::key::FilePath;
use crate::model::Content;
use crate::programs::haproxy::certificate::Certificate;
use crate::programs::haproxy::map;
use crate::programs::haproxy::runtime::{Backend, Declared, Members, Server};

/// A set in two parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    /// The texts of files without what can change at runtime; a file that is not here has nothing of that.
    pub(crate) masked: BTreeMap<FilePath, Vec<u8>>,
    pub(crate) declared: Declared,
}

/// Splits the files of a set, of which one is the main file.
pub(crate) fn split(main: &FilePath, files: &BTreeMap<FilePath, &Content>) -> Split {
    let mut split = Split::default();
    let text = |path| files.get(path).and_then(|content| str::from_utf8(content.bytes()).ok());
    let Some(main_text) = text(main) else { return split };
    let Some(file) = File::read(main_text) else { return split };
    for (path, content) in files.iter().filter(|(path, _)| *path != main) {
        let others = files.iter().filter(|(other, _)| *other != path);
        let others = others.filter_map(|(_, content)| str::from_utf8(content.bytes()).ok());
        if !is_named_only_in_full(path, others) {
            continue;
        }
        if is_map(path, main_text)
            && let Some(entries) = map::parse(content.bytes())
        {
            split.masked.insert(path.clone(), b"map".to_vec());
            split.declared.maps.insert(path.to_string(), entries);
        } else if is_certificate(path, &file, files)
            && let Some((certificate, rest)) = Certificate::parse(content.bytes())
        {
            split.masked.insert(path.clone(), rest);
            split.declared.certificates.insert(path.to_string(), certificate);
        }
    }
    let (masked, backends) = file.mask();
    split.masked.insert(main.clone(), masked.into_bytes());
    split.declared.backends = backends;
    split
}

/// Whether the name of a file appears as its whole path only. By another path, the process would know it as another file.
fn is_named_only_in_full<'a>(path: &FilePath, mut texts: impl Iterator<Item = &'a str>) -> bool {
    let name = path.split().1;
    texts.all(|text| {
        text.match_indices(name).all(|(at, _)| {
            let before = text.get(..at).unwrap_or_default();
            let is_whole_name =
                !before.ends_with(|c: char| c.is_alphanumeric() || "._-".contains(c));
            !is_whole_name || before.ends_with(path.as_str().strip_suffix(name).unwrap_or_default())
        })
    })
}

/// Whether a file is a map that only this set changes: each mention is the argument of a converter. `set-map` and its like
/// let requests change it.
fn is_map(path: &FilePath, text: &str) -> bool {
    let mut mentions = text.match_indices(path.as_str()).peekable();
    mentions.peek().is_some()
        && mentions.all(|(at, mention)| {
            let before = text.get(..at).unwrap_or_default();
            let after = text.get(at + mention.len()..).unwrap_or_default();
            let word = before.strip_suffix('(').unwrap_or_default();
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let word = word.rsplit(|c: char| !is_word(c)).next().unwrap_or_default();
            (word == "map" || word.starts_with("map_")) && after.starts_with([',', ')'])
        })
}

/// Whether a file is a certificate that the process keeps under this path, and nothing beside it belongs to it.
fn is_certificate(path: &FilePath, file: &File<'_>, all: &BTreeMap<FilePath, &Content>) -> bool {
    let (directory, name) = path.split();
    let stem = path.as_str().rsplit_once('.').map_or(path.as_str(), |(stem, _)| stem);
    let belongs = |other: &FilePath| {
        let rest = other.as_str().strip_prefix(path.as_str());
        other != path
            && (rest.is_some_and(|rest| rest.starts_with('.'))
                || other.as_str().rsplit_once('.').is_some_and(|(other, _)| other == stem))
    };
    let is_named = |word: &str| word == path.as_str() || word.trim_end_matches('/') == directory;
    !name.starts_with('.')
        && !all.keys().any(belongs)
        && file.lines.iter().any(|line| {
            line.words.windows(2).any(|pair| matches!(pair, ["crt", word] if is_named(word)))
        })
}

/// A line that says something.
struct Line<'a> {
    text: &'a str,
    words: Vec<&'a str>,
}

/// The main file, in sections.
struct File<'a> {
    lines: Vec<Line<'a>>,
    sections: Vec<Section<'a>>,
    /// Whether anything speaks of single servers by their names.
    refers_to_servers: bool,
}

struct Section<'a> {
    /// Its first line, by number.
    first: usize,
    /// Behind its last.
    end: usize,
    kind: &'a str,
    name: &'a str,
    /// The section that it takes its defaults from, by number.
    defaults: Option<usize>,
}

/// What begins a section, whatever stands before it in the line.
const SECTIONS: [&str; 19] = [
    "acme",
    "backend",
    "cache",
    "crt-store",
    "defaults",
    "fcgi-app",
    "frontend",
    "global",
    "http-errors",
    "listen",
    "log-forward",
    "log-profile",
    "mailers",
    "peers",
    "program",
    "resolvers",
    "ring",
    "traces",
    "userlist",
];

/// What makes a word mean something else than it says.
const QUOTING: [char; 5] = ['"', '\'', '\\', '$', '#'];

impl<'a> File<'a> {
    /// Nothing, if the text has conditions, or words whose meaning depends on more than the line.
    fn read(text: &'a str) -> Option<Self> {
        let lines =
            text.lines().map(|text| Line { text, words: text.split_whitespace().collect() });
        let says = |line: &Line<'_>| line.words.first().is_some_and(|word| !word.starts_with('#'));
        let lines: Vec<Line<'_>> = lines.filter(says).collect();
        let is_plain = |word: &str| !word.starts_with('.') && !word.contains(QUOTING);
        if !lines.iter().all(|line| line.words.first().is_some_and(|word| is_plain(word))) {
            return None;
        }
        let mut sections: Vec<Section<'a>> = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let [kind, rest @ ..] = line.words.as_slice() else { continue };
            if !SECTIONS.contains(kind) {
                continue;
            }
            let name = rest.first().copied().filter(|name| *name != "from").unwrap_or_default();
            let from = rest.iter().position(|word| *word == "from");
            let from = from.map(|from| rest.get(from + 1).copied().unwrap_or_default());
            let is_defaults = |one: &Section<'_>| one.kind == "defaults";
            let defaults = match (*kind, from) {
                (_, Some(from)) => {
                    Some(sections.iter().rposition(|one| is_defaults(one) && one.name == from)?)
                }
                ("defaults", None) => None,
                (_, None) => sections.iter().rposition(is_defaults),
            };
            if let Some(last) = sections.last_mut() {
                last.end = at;
            }
            sections.push(Section { first: at, end: lines.len(), kind, name, defaults });
        }
        let refers_to_servers = lines.iter().any(refers_to_servers);
        Some(File { lines, sections, refers_to_servers })
    }

    /// The text without what can change at runtime, and what that declares. Comments and empty lines are left out: they declare nothing.
    fn mask(&self) -> (String, BTreeMap<String, Backend>) {
        let mut masked = String::new();
        let mut backends = BTreeMap::new();
        let head = self.sections.first().map_or(self.lines.len(), |section| section.first);
        self.copy(0, head, &mut masked);
        for section in &self.sections {
            match self.backend(section) {
                Some((backend, text)) => {
                    masked.push_str(&text);
                    backends.insert(section.name.to_owned(), backend);
                }
                None => self.copy(section.first, section.end, &mut masked),
            }
        }
        (masked, backends)
    }

    fn copy(&self, first: usize, end: usize, into: &mut String) {
        for line in self.lines.get(first..end).unwrap_or_default() {
            into.push_str(line.text.trim_end());
            into.push('\n');
        }
    }

    /// A backend whose servers can be changed at runtime; and its text without that.
    fn backend(&self, section: &Section<'a>) -> Option<(Backend, String)> {
        let is_backend = ["backend", "listen"].contains(&section.kind);
        let names = self.sections.iter().filter(|other| {
            ["backend", "listen"].contains(&other.kind) && other.name == section.name
        });
        let algorithm = self.words(section, "balance").and_then(|words| words.get(1).copied());
        let is_dynamic = matches!(algorithm, None | Some("roundrobin" | "leastconn"));
        if !is_backend || !is_dynamic || !is_plain_name(section.name) || names.count() != 1 {
            return None;
        }
        let default_server = self.words(section, "default-server");
        let is_weighted = default_server.is_none_or(|words| !sets_weights(words));
        let lines = self.lines.get(section.first..section.end).unwrap_or_default();
        let is_server = |line: &&Line<'_>| line.words.first() == Some(&"server");
        let mut servers = Vec::new();
        let mut seen = HashSet::new();
        for line in lines.iter().filter(is_server) {
            let server = ServerLine::read(line, is_weighted)?;
            if !seen.insert(server.name) {
                return None;
            }
            servers.push(server);
        }
        let has = |word| lines.iter().any(|line| line.words.first() == Some(&word));
        let keywords = servers.first().map(|server| server.keywords.join(" "));
        let members = if has("server-template") {
            Members::Open
        } else {
            let is_uniform = |keywords: &str| {
                servers.iter().all(|server| {
                    server.is_numeric && server.has_weight && server.keywords.join(" ") == keywords
                })
            };
            let are_addable = servers.first().is_some_and(|one| can_be_added(&one.keywords));
            match keywords {
                Some(keywords)
                    if default_server.is_none()
                        && are_addable
                        && !has("stick")
                        && !has("stick-table")
                        && !self.refers_to_servers
                        && is_uniform(&keywords) =>
                {
                    Members::Free { keywords }
                }
                _ => Members::Fixed,
            }
        };
        let text = masked_section(lines, &servers, &members);
        let servers = servers.into_iter().map(|server| (server.name.to_owned(), server.server));
        Some((Backend { servers: servers.collect(), members }, text))
    }

    /// The last line of a section that begins with a word, else that of its defaults.
    fn words(&self, section: &Section<'a>, word: &str) -> Option<&[&'a str]> {
        let mut section = Some(section);
        // Sections take their defaults from earlier ones, so this ends.
        while let Some(one) = section {
            let lines = self.lines.get(one.first + 1..one.end).unwrap_or_default();
            let found = lines.iter().rev().find(|line| line.words.first() == Some(&word));
            if let Some(line) = found {
                return Some(&line.words);
            }
            section = one.defaults.and_then(|at| self.sections.get(at));
        }
        None
    }
}

fn refers_to_servers(line: &Line<'_>) -> bool {
    line.words.iter().any(|word| {
        ["use-server", "track"].contains(word) || word.contains("srv_") && word.contains('(')
    })
}

fn sets_weights(words: &[&str]) -> bool {
    words.iter().any(|word| ["weight", "agent-check"].contains(word) || word.contains(QUOTING))
}

fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    !name.is_empty() && name.chars().all(is_plain)
}

/// A line `server NAME ADDRESS KEYWORDS`.
struct ServerLine<'a> {
    name: &'a str,
    address: &'a str,
    server: Server,
    /// Whether its address is a number, so that it can be changed at runtime.
    is_numeric: bool,
    /// Whether its weight can be changed at runtime.
    has_weight: bool,
    /// Without the weight, if that can be changed at runtime.
    keywords: Vec<&'a str>,
}

impl<'a> ServerLine<'a> {
    fn read(line: &Line<'a>, is_weighted: bool) -> Option<Self> {
        let ["server", name, address, keywords @ ..] = line.words.as_slice() else { return None };
        if line.text.contains(QUOTING) || !is_plain_name(name) {
            return None;
        }
        let mut keywords = keywords.to_vec();
        let socket = socket_address(address);
        let has_weight = is_weighted && !keywords.contains(&"agent-check");
        let mut weight = None;
        if has_weight {
            weight = Some(1);
            if let Some(at) = keywords.iter().position(|word| *word == "weight") {
                // A second one, or one that is no number, is not understood.
                weight = Some(keywords.get(at + 1)?.parse().ok().filter(|weight| *weight <= 256)?);
                keywords.drain(at..at + 2);
                if keywords.contains(&"weight") {
                    return None;
                }
            }
        }
        let is_numeric = socket.is_some() && !keywords.contains(&"resolvers");
        let socket = socket.filter(|_| is_numeric);
        let server = Server { address: socket.map(|socket| (socket.ip(), socket.port())), weight };
        Some(ServerLine { name, address, server, is_numeric, has_weight, keywords })
    }
}

/// An address and a port in numbers.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let socket: SocketAddr = text.parse().ok()?;
    let is_usual = match socket.ip() {
        IpAddr::V4(ip) => !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_unspecified() && ip.to_ipv4_mapped().is_none(),
    };
    (is_usual && socket.port() != 0).then_some(socket)
}

/// Whether a server with these keywords, added to the running process, is as one that was read from a file. What is not on
/// this list is not known to be: `add server` refuses `cookie`, for example, and leaves a host name unresolved.
fn can_be_added(keywords: &[&str]) -> bool {
    const FLAGS: [&str; 4] = ["check", "backup", "send-proxy", "send-proxy-v2"];
    const WITH_VALUE: [&str; 7] =
        ["inter", "fastinter", "downinter", "rise", "fall", "maxconn", "maxqueue"];
    let mut keywords = keywords.iter();
    while let Some(keyword) = keywords.next() {
        if WITH_VALUE.contains(keyword) {
            if keywords.next().is_none_or(|value| !value.starts_with(|c: char| c.is_ascii_digit()))
            {
                return false;
            }
        } else if !FLAGS.contains(keyword) {
            return false;
        }
    }
    true
}

/// The text of a section in which servers are named only as far as they cannot be changed at runtime.
fn masked_section(lines: &[Line<'_>], servers: &[ServerLine<'_>], members: &Members) -> String {
    let by_name: HashMap<&str, &ServerLine<'_>> =
        servers.iter().map(|server| (server.name, server)).collect();
    let mut text = String::new();
    let mut is_written = false;
    for line in lines {
        let server = match line.words.as_slice() {
            ["server", name, ..] => by_name.get(name),
            _ => None,
        };
        match (server, members) {
            (None, _) => text.push_str(line.text.trim_end()),
            (Some(_), Members::Free { .. }) if is_written => continue,
            (Some(_), Members::Free { keywords }) => {
                text.push_str("servers ");
                text.push_str(keywords);
                is_written = true;
            }
            (Some(server), Members::Fixed | Members::Open) => {
                let address = if server.is_numeric { "address" } else { server.address };
                let weight = if server.has_weight { " weight" } else { "" };
                text.push_str("server ");
                for word in [server.name, address, weight] {
                    text.push_str(word);
                    text.push(' ');
                }
                text.push_str(&server.keywords.join(" "));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        text.parse().unwrap()
    }

    fn split_of(main: &str, more: &[(&str, &str)]) -> Split {
        let main = [("/etc/haproxy.cfg", main)];
        let files = main.iter().chain(more);
        let files = files.map(|(name, text)| (path(name), Content::new(text.as_bytes())));
        let files: BTreeMap<FilePath, Content> = files.collect();
        split(
            &path("/etc/haproxy.cfg"),
            &files.iter().map(|(path, one)| (path.clone(), one)).collect(),
        )
    }

    fn masked(main: &str) -> String {
        let split = split_of(main, &[]);
        let masked = split.masked.get(&path("/etc/haproxy.cfg"));
        String::from_utf8(masked.cloned().unwrap_or_else(|| main.into())).unwrap()
    }

    #[test]
    fn texts_that_differ_in_what_can_be_told_are_the_same_under_the_mask() {
        let web =
            |lines: &str| format!("defaults\n  mode http\nbackend web\n{lines}backend last\n");
        for (before, after, expected) in [
            (" server a 192.0.2.1:80\n", " server a 192.0.2.2:81 weight 5\n", true),
            (" server a 192.0.2.1:80\n", " server b [2001:db8::1]:80\n", true),
            (
                " server a 192.0.2.1:80\n",
                " # none\n\n server a 192.0.2.1:80\n server b 192.0.2.2:80\n",
                true,
            ),
            (" server a 192.0.2.1:80 check\n", " server a 192.0.2.1:80\n", false),
            (
                " server a 192.0.2.1:80 cookie x\n",
                " server a 192.0.2.9:80 cookie x weight 9\n",
                true,
            ),
            (" server a 192.0.2.1:80 cookie x\n", " server b 192.0.2.1:80 cookie x\n", false),
            (" server a host:80 weight 1\n", " server a host:80 weight 2\n", true),
            (" server a host:80\n", " server a other:80\n", false),
            (
                " server a 192.0.2.1:80 agent-check weight 1\n",
                " server a 192.0.2.1:80 agent-check weight 2\n",
                false,
            ),
            (" server a 192.0.2.1:80 weight 1\n", " server a 192.0.2.1:80 weight 257\n", false),
            (" server a 192.0.2.1:80\n", " server a 192.0.2.1:$PORT\n", false),
            (" server a 192.0.2.1:80\n", " server a 192.0.2.1:80\n server a 192.0.2.1:80\n", false),
            (
                " balance source\n server a 192.0.2.1:80 weight 1\n",
                " balance source\n server a 192.0.2.1:80 weight 2\n",
                false,
            ),
        ] {
            let is_same = masked(&web(before)) == masked(&web(after));
            assert_eq!(is_same, expected, "{before} became {after}");
        }
        // Servers of peers are none of a backend, and what a condition keeps out may not be there.
        for text in [
            "peers web\n server a 192.0.2.1:80\n",
            ".if defined(X)\nbackend web\n server a 192.0.2.1:80\n.endif\n",
        ] {
            assert_ne!(masked(text), masked(&text.replace(".1:", ".2:")), "{text}");
        }
    }

    #[test]
    fn defaults_count_where_a_section_takes_them_from() {
        let text = "defaults one\n balance source\ndefaults two\n mode http\nbackend a from one\n server s 192.0.2.1:80\n\
            backend b\n server s 192.0.2.1:80\nbackend c from one\n balance leastconn\n server s 192.0.2.1:80\n";
        let backends = split_of(text, &[]).declared.backends;
        assert_eq!(backends.keys().collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn a_map_is_told_only_if_nothing_else_names_it() {
        let maps = |line: &str, more: &[(&str, &str)]| {
            let text = format!("frontend f\n  {line}\n");
            let all = [&[("/etc/maps/a.map", "k v\n")], more].concat();
            split_of(&text, &all).declared.maps.len()
        };
        for (line, expected) in [
            ("use_backend %[hdr(host),map(/etc/maps/a.map,b)]", 1),
            ("use_backend %[hdr(host),lower,map_dom(/etc/maps/a.map)]", 1),
            ("http-request deny if { hdr(host) -f /etc/maps/a.map }", 0),
            ("http-request set-map(/etc/maps/a.map) %[src] x", 0),
            ("use_backend %[hdr(host),map(maps/a.map,b)]", 0),
            (
                "use_backend %[hdr(host),map(/etc/maps/a.map,b)] if { hdr(x),map(a.map) -m found }",
                0,
            ),
            (
                "use_backend %[hdr(host),map(/etc/maps/a.map,b)] if { hdr(x),map(/etc/maps/aa.map) -m found }",
                1,
            ),
        ] {
            assert_eq!(maps(line, &[]), expected, "{line}");
        }
        let line = "use_backend %[hdr(host),map(/etc/maps/a.map,b)]";
        assert_eq!(maps(line, &[("/etc/x.lua", "open('a.map')")]), 0);
    }
}
