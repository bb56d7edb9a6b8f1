//! What `nft list` prints: the text of each rule, and our tables as a text for `show`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Output;

use homeostat_core::{Failure, Records, Retry, Snapshot};
use homeostat_netlink::Family;

use crate::dump::{self, Head};
use crate::key::Key;
use crate::model::Handle;
use crate::object::Object;
use crate::observe::is_taken_over;
use crate::program::{not_started, run};
use crate::rule_lines::RuleText;
use crate::source::Nft;

/// Rules in nft's own words, by their table and number.
type Texts = BTreeMap<Key, BTreeMap<Handle, String>>;

/// Reads a listing. What it does not understand is left out: the texts are for people only.
pub(crate) fn read_rules(listing: &str) -> Texts {
    let (mut texts, mut key, mut open) = (Texts::new(), None::<Key>, Vec::new());
    for line in listing.lines() {
        let (words, handle) = split(line);
        match (line.len() - line.trim_start_matches('\t').len(), handle) {
            (0, _) if line.is_empty() => {}
            (0, _) => key = words.strip_suffix(" {").and_then(|words| words.parse().ok()),
            (1, _) => open.clear(),
            // A rule may span lines; the last one has its number.
            (_, None) if !open.is_empty() || words.ends_with('{') => open.push(words),
            (_, None) => {}
            (_, Some(handle)) => {
                open.push(words);
                let listed = std::mem::take(&mut open).join(" ");
                if let Some(key) = &key {
                    texts.entry(key.clone()).or_default().insert(handle, listed);
                }
            }
        }
    }
    texts
}

/// A line without its number.
fn split(line: &str) -> (&str, Option<Handle>) {
    let line = line.trim();
    match line.rsplit_once(" # handle ") {
        Some((words, handle)) => (words, handle.parse().ok().map(Handle)),
        None => line.strip_prefix("# handle ").map_or((line, None), |_| ("", None)),
    }
}

/// The tables of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Ours, without our mark; empty if there are none.
    pub ruleset: String,
    /// The names of all others.
    pub foreign: Vec<Key>,
}

/// Lists our tables with `nft`; a pass never does.
pub fn show(nft: &Nft, records: &Records<Key, Object>) -> Result<Shown, Failure> {
    let heads = nft.connect(Family::Netfilter).and_then(|mut open| dump::heads(&mut open));
    let mut shown = Shown::default();
    // A kernel without tables has nothing to show.
    for head in heads.unwrap_or_default() {
        if is_ours(nft, &head, records) {
            let listing = nft.mark.taken_off(&listing(nft, &["-s"], &head.key)?);
            shown.ruleset.push_str(&without_data(&listing));
        } else {
            shown.foreign.push(head.key);
        }
    }
    Ok(shown)
}

/// The rules of a table in nft's words. For people only, so that a failure only costs the words.
pub(crate) fn texts(nft: &Nft, key: &Key) -> BTreeMap<Handle, RuleText> {
    let ran = list(nft, &["-t", "-a"], key);
    let listed = ran.ok().and_then(Result::ok).filter(|ran| ran.status.success());
    let listed = listed.map(|ran| read_rules(&String::from_utf8_lossy(&ran.stdout)));
    let listed = listed.and_then(|mut texts| texts.remove(key)).unwrap_or_default();
    let text = |(handle, listed)| (handle, RuleText { listed, source: None });
    listed.into_iter().map(text).collect()
}

/// Runs `nft list table`.
fn list(
    nft: &Nft,
    options: &[&str],
    key: &Key,
) -> Result<io::Result<Output>, homeostat_netns::Error> {
    let family = key.family.to_string();
    let arguments = [options, &["list", "table", &family, &key.name]].concat();
    nft.run(|| run("nft".as_ref(), Path::new("/"), &arguments, ""))
}

fn is_ours(nft: &Nft, head: &Head, records: &Records<Key, Object>) -> bool {
    let identity = records.get(&head.key).and_then(|record| record.identity.as_ref());
    let is_same = identity.is_none_or(|identity| *identity == head.handle.0.to_string());
    match &head.comment.mark {
        Some(mark) => *mark == nft.mark,
        None => is_taken_over(records, &head.key) && is_same,
    }
}

/// A table in full, with counters and elements, for the day on which it is given back or made again. It has the mark
/// that it has.
pub(crate) fn snapshot(nft: &Nft, key: &Key) -> Result<Snapshot, Failure> {
    listing(nft, &[], key).map(Snapshot)
}

fn listing(nft: &Nft, options: &[&str], key: &Key) -> Result<String, Failure> {
    let ran = list(nft, options, key);
    let ran = ran.map_err(|error| Failure::from_error(&error, Retry::Soon))?;
    let ran =
        ran.map_err(|error| not_started(&error).with_help("install the package `nftables`"))?;
    if !ran.status.success() {
        let words = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        return Err(Failure::new(format!("cannot list `{key}`: {words}"), Retry::Soon));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// A listing without the elements of sets that packets fill.
fn without_data(listing: &str) -> String {
    let (mut kept, mut is_data, mut in_elements) = (String::new(), false, false);
    for line in listing.lines() {
        let words = line.trim();
        if line.starts_with("\t}") {
            is_data = false;
        }
        if words.starts_with("flags ") && !words.ends_with('{') {
            is_data = words.contains("dynamic") || words.contains("timeout");
        }
        in_elements |= is_data && words.starts_with("elements = {");
        if !in_elements {
            kept.push_str(line);
            kept.push('\n');
        }
        in_elements &= !words.ends_with('}');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_found_by_its_number_also_if_it_spans_lines() {
        let listing = "table inet filter { # handle 1\n\tset s { # handle 4\n\t\ttype ipv4_addr\n\t}\n\
            \n\tchain input { # handle 2\n\t\ttype filter hook input priority filter; policy drop;\n\
            \t\ttcp dport 22 accept comment \"a # b\" # handle 8\n\t\tiif \"lo\" jump {\n\
            \t\t\tcounter packets 0 bytes 0\n\t\t\taccept\n\t\t} # handle 14\n\t}\n}\n";
        let texts = read_rules(listing);
        let key: Key = "table inet filter".parse().unwrap();
        let found = texts[&key].iter().map(|(at, words)| (at.0, words.as_str()));
        let found: Vec<_> = found.collect();
        let expected = [
            (8, "tcp dport 22 accept comment \"a # b\""),
            (14, "iif \"lo\" jump { counter packets 0 bytes 0 accept }"),
        ];
        assert_eq!(found, expected);
    }
}

#[cfg(test)]
mod show_tests {
    use super::*;

    #[test]
    fn elements_of_sets_that_packets_fill_are_left_out() {
        let listing = "table ip a {\n\tset d {\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n\
            \t\telements = { 1.1.1.1 timeout 5s,\n\t\t\t     2.2.2.2 }\n\t}\n\n\tset s {\n\
            \t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = { 3.3.3.3 }\n\t}\n}\n";
        let kept = without_data(listing);
        assert!(!kept.contains("1.1.1.1") && !kept.contains("2.2.2.2"), "{kept}");
        assert!(kept.contains("elements = { 3.3.3.3 }\n\t}\n}\n"), "{kept}");
        assert!(kept.contains("flags dynamic,timeout\n\t}\n"), "{kept}");
    }
}
