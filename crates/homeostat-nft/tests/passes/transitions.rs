//! Random rulesets, one after the other: after each the kernel must hold what `nft -f` of that text gives
//! in an empty namespace, other tables must be as they were, and a second plan must be empty.
//!
//! Where [`crate::random`] edits one table of a fixed shape, here tables of several families come and
//! go, with chains, sets, maps, elements and named objects of every kind. Seeds are fixed;
//! `HOMEOSTAT_SOAK` adds more, and `HOMEOSTAT_SEED` runs one of them again. What failed once is in [`cases`].

mod cases;
mod ruleset;

use homeostat_engine::Explain as _;
use serde_json::Value;

use crate::world::{World, by_hand, explained, listed, nft};
use ruleset::Ruleset;

/// Others' tables, one of them with the name that one of ours has in another family.
const FOREIGN: &str = "
table ip foreign {
    set s { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
    chain x { type filter hook input priority 0; ip saddr @s counter packets 7 bytes 8 accept; }
}
table arp t0 { chain x { type filter hook input priority 0; counter packets 1 bytes 2; }; }
";

/// How many smaller sequences are tried once one has failed.
const SHRINKS: usize = 150;

/// What `nft` lists: objects as JSON, and every word of the text without counts, which has some values
/// that the JSON form is compared without.
type Listed = (Vec<Value>, Vec<String>);

fn listed_twice() -> Listed {
    let text = nft(&["-s", "list", "ruleset"], "").unwrap();
    // The mark of a table that is ours, alone or behind the author's words.
    let text = text.replace("comment \"homeostat:test\"", "").replace(" homeostat:test\"", "\"");
    let words = text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty());
    let mut words: Vec<String> = words.map(str::to_owned).collect();
    words.sort();
    (listed(), words)
}

fn expected(text: &str) -> Listed {
    let text = format!("{FOREIGN}\n{text}");
    let load = move || {
        let _world = World::new();
        by_hand(&text);
        listed_twice()
    };
    std::thread::spawn(load).join().unwrap()
}

fn foreign() -> [String; 2] {
    [["ip", "foreign"], ["arp", "t0"]]
        .map(|[family, name]| nft(&["-a", "list", "table", family, name], "").unwrap())
}

fn check(rulesets: &[Ruleset]) -> Result<(), String> {
    let mut world = World::new();
    by_hand(FOREIGN);
    let before = foreign();
    let texts = rulesets.iter().map(Ruleset::text).chain([String::new()]);
    for (number, text) in texts.enumerate() {
        let desired = world.compile(&text).map_err(|error| format!("{number}: {error}"))?;
        let desired = std::sync::Arc::new(desired);
        let report = world.pass(&desired);
        if !report.is_converged() {
            return Err(format!("{number} did not converge: {}", explained(&report)));
        }
        let plan = world.plan(&desired);
        if !plan.steps.is_empty() {
            return Err(format!("{number}, the second plan: {}", explained(&plan)));
        }
        same(&listed_twice(), &expected(&text)).map_err(|lines| format!("{number}: {lines}"))?;
        if foreign() != before {
            return Err(format!("{number}, foreign tables: {:?} were {before:?}", foreign()));
        }
    }
    Ok(())
}

fn same(found: &Listed, expected: &Listed) -> Result<(), String> {
    let texts = |all: &Listed| {
        let objects = all.0.iter().map(ToString::to_string);
        objects.chain(all.1.iter().cloned()).collect::<Vec<_>>()
    };
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (texts(found), texts(expected));
    let missing = expected.iter().filter(|line| !found.contains(line));
    let surplus = found.iter().filter(|line| !expected.contains(line));
    let missing = missing.map(|line| format!("missing: {line}"));
    let lines = missing.chain(surplus.map(|line| format!("surplus: {line}")));
    Err(format!("it differs from what nft loads:\n{}", lines.collect::<Vec<_>>().join("\n")))
}

/// In a thread of its own, since a namespace is for the life of a thread.
fn run(rulesets: &[Ruleset]) -> Result<(), String> {
    let rulesets = rulesets.to_vec();
    let outcome = std::thread::spawn(move || check(&rulesets)).join();
    outcome.unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// Takes away what the failure does not need, as long as it fails in the same way.
fn shrunk(mut rulesets: Vec<Ruleset>, mut why: String) -> (Vec<Ruleset>, String) {
    let kind = |why: &str| {
        let letters = why.chars().filter(|letter| letter.is_alphabetic());
        letters.take(20).collect::<String>()
    };
    let (mut tries, mut at) = (0, 0);
    while tries < SHRINKS {
        let Some(candidate) = smaller(&rulesets, at) else { break };
        tries += 1;
        match run(&candidate) {
            Err(other) if kind(&other) == kind(&why) => (rulesets, why) = (candidate, other),
            _ => at += 1,
        }
    }
    (rulesets, why)
}

/// The sequence without one of its parts.
fn smaller(rulesets: &[Ruleset], at: usize) -> Option<Vec<Ruleset>> {
    let mut smaller = rulesets.to_vec();
    if at < rulesets.len() {
        smaller.remove(at);
        return Some(smaller);
    }
    let mut at = at - rulesets.len();
    for (number, ruleset) in rulesets.iter().enumerate() {
        let parts = ruleset.parts();
        if let Some(part) = parts.get(at) {
            smaller[number].remove(part);
            return Some(smaller);
        }
        at -= parts.len();
    }
    None
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap_or(1));
    match (number("HOMEOSTAT_SEED"), number("HOMEOSTAT_SOAK")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(times)) => 0..600 * times,
        (None, None) => 0..12,
    }
}

#[test]
fn any_ruleset_after_any_other_gives_what_nft_loads_and_touches_nothing_foreign() {
    for seed in seeds() {
        let rulesets = ruleset::sequence(seed);
        if let Err(why) = run(&rulesets) {
            let (rulesets, why) = shrunk(rulesets, why);
            let texts: Vec<String> = rulesets.iter().map(Ruleset::text).collect();
            panic!("seed {seed}, shrunk:\n{}\n--- {why}", texts.join("\n--- then:\n"));
        }
    }
}
