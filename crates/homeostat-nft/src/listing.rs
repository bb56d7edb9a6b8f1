//! Finds the text of each rule in what `nft -a list ruleset` prints.

use std::collections::BTreeMap;

use crate::key::Key;
use crate::model::Handle;
use crate::own::Words;

/// Rules in nft's own words, by their table and number.
pub(crate) type Texts = BTreeMap<Key, BTreeMap<Handle, Words>>;

/// Reads a listing. What it does not understand is left out: the texts are for people only.
pub(crate) fn read(listing: &str) -> Texts {
    let mut texts = Texts::new();
    let mut key: Option<Key> = None;
    let mut open = Vec::new();
    for line in listing.lines() {
        let (words, handle) = split(line);
        let depth = line.len() - line.trim_start_matches('\t').len();
        match depth {
            0 if line.is_empty() => {}
            0 => key = words.strip_suffix(" {").and_then(|words| words.parse().ok()),
            1 => open.clear(),
            _ => take(words, handle, &mut open, key.as_ref().map(|key| (key, &mut texts))),
        }
    }
    texts
}

/// One line inside of a chain: a rule, or a part of one that spans lines.
fn take(
    words: &str,
    handle: Option<Handle>,
    open: &mut Vec<String>,
    to: Option<(&Key, &mut Texts)>,
) {
    let continues = !open.is_empty() || words.ends_with('{');
    match handle {
        None if continues => open.push(words.to_owned()),
        None => {}
        Some(handle) => {
            open.push(words.to_owned());
            let text = std::mem::take(open).join(" ");
            if let Some((key, texts)) = to {
                let words = Words { listed: text, own: None };
                texts.entry(key.clone()).or_default().insert(handle, words);
            }
        }
    }
}

/// A line without its number.
fn split(line: &str) -> (&str, Option<Handle>) {
    let line = line.trim();
    match line.rsplit_once(" # handle ") {
        Some((words, handle)) => (words, handle.parse().ok().map(Handle)),
        None => line.strip_prefix("# handle ").map_or((line, None), |_| ("", None)),
    }
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
        let texts = read(listing);
        let key: Key = "table inet filter".parse().unwrap();
        let found = texts[&key].iter().map(|(at, words)| (at.0, words.listed.as_str()));
        let found: Vec<_> = found.collect();
        let expected = [
            (8, "tcp dport 22 accept comment \"a # b\""),
            (14, "iif \"lo\" jump { counter packets 0 bytes 0 accept }"),
        ];
        assert_eq!(found, expected);
    }
}
