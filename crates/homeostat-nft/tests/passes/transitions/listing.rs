//! What `nft list ruleset` prints, taken apart: what a text declares, and apart from it what packets and time have changed.

use std::collections::BTreeMap;

use crate::world::nft;

/// Packets have only such addresses, and texts none.
const LOOPBACK: &str = "127.";

/// The parts of all tables, by table and part, as they are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) parts: BTreeMap<(String, String), Listed>,
    /// The chains of each table, hook and priority, in the order in which they are listed, which is that of their
    /// creation.
    pub(super) hooks: BTreeMap<(String, String), Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    /// Line by line, without handles and counts. Elements have no order.
    pub(super) lines: Vec<String>,
    /// What packets counted, line by line.
    pub(super) counts: Vec<(String, String)>,
    /// As it is listed, with handles and counts.
    pub(super) whole: String,
}

impl Listing {
    /// That of the calling thread's namespace.
    pub(super) fn read() -> Self {
        let text = nft(&["-a", "list", "ruleset"], "").unwrap();
        let mut listing = Listing::default();
        let (mut table, mut part) = (String::new(), String::new());
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let mut line = line.to_owned();
            // Elements and anonymous sets may be listed in several lines.
            while line.contains("elements = {") && !line.contains('}') {
                line.push_str(lines.next().unwrap());
            }
            let depth = line.chars().take_while(|one| *one == '\t').count();
            let words = line.split(" # handle ").next().unwrap().trim();
            match depth {
                0 if words.starts_with("table ") => {
                    (table, part) = (words.trim_end_matches(" {").to_owned(), String::new());
                }
                1 if words.ends_with('{') => words.trim_end_matches(" {").clone_into(&mut part),
                1 if words == "}" => part.clear(),
                _ => {}
            }
            let key = (table.clone(), part.clone());
            let listed = listing.parts.entry(key).or_default();
            listed.take(words);
            listed.whole.push_str(&line);
            if words.starts_with("type ") && words.contains(" hook ") {
                let hook = words.split(" policy ").next().unwrap().to_owned();
                listing.hooks.entry((table.clone(), hook)).or_default().push(part.clone());
            }
        }
        listing
    }

    /// How it differs from what is declared; nothing if it does not.
    pub(super) fn differs(&self, declared: &Self) -> Option<String> {
        let lines = |listing: &Self| {
            let parts = listing.parts.iter().map(|(key, part)| (key.clone(), part.lines.clone()));
            parts.collect::<BTreeMap<_, _>>()
        };
        let (found, expected) = (lines(self), lines(declared));
        for (key, lines) in &expected {
            if found.get(key) != Some(lines) {
                return Some(format!("{key:?} is {:?}\nand not {lines:?}", found.get(key)));
            }
        }
        if let Some(key) = found.keys().find(|key| !expected.contains_key(key)) {
            return Some(format!("{key:?} is too much"));
        }
        let different = |(hook, chains): &(_, &Vec<String>)| self.hooks.get(*hook) != Some(chains);
        let hook = declared.hooks.iter().find(different);
        hook.map(|(hook, chains)| format!("{hook:?}: {:?}, not {chains:?}", self.hooks.get(hook)))
    }

    /// A line that is there as often as before in the same part, and has lost what it counted.
    pub(super) fn forgot(&self, before: &Self) -> Option<String> {
        let counts_of = |part: &Listed, words: &str| {
            let of_line = part.counts.iter().filter(|(line, _)| line == words);
            let mut counts: Vec<String> = of_line.map(|(_, count)| count.clone()).collect();
            counts.sort();
            counts
        };
        for (key, part) in &self.parts {
            let Some(former) = before.parts.get(key) else { continue };
            for (words, _) in &part.counts {
                let (now, then) = (counts_of(part, words), counts_of(former, words));
                if now.len() == then.len() && now != then {
                    return Some(format!("{key:?} {words}: {then:?} became {now:?}"));
                }
            }
        }
        None
    }
}

impl Listed {
    fn take(&mut self, words: &str) {
        // The mark of a table that is ours, alone or behind the author's words.
        let words = words.replace(" homeostat:test\"", "\"");
        if words == "comment \"homeostat:test\"" {
            return;
        }
        if let Some((_, elements)) = words.split_once("elements = {") {
            let all = elements.trim_end_matches('}').split(',').map(|one| steady(one).0);
            // What packets put into a set that rules fill is theirs.
            let mut declared: Vec<String> =
                all.filter(|element| !element.starts_with(LOOPBACK)).collect();
            declared.sort();
            self.lines.extend(declared);
            return;
        }
        let (line, counts) = steady(&words);
        if !counts.is_empty() {
            self.counts.push((line.clone(), counts));
        }
        self.lines.push(line);
    }
}

/// A line without what packets and time change, and that.
fn steady(line: &str) -> (String, String) {
    let (mut steady, mut counts) = (Vec::new(), Vec::new());
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        let rest = match word {
            "packets" => 3,
            "used" => 2,
            "expires" => 1,
            _ => {
                steady.push(word);
                continue;
            }
        };
        let value: Vec<&str> = words.by_ref().take(rest).collect();
        if word != "expires" {
            counts.extend(value);
        }
    }
    (steady.join(" "), counts.join(" "))
}
