//! Random rulesets, one after the other: after each the kernel must hold what `nft -f` of that text gives
//! in an empty namespace, chains of one hook must run in the same order, rules must have kept what they counted, other
//! tables must be as they were, and a second plan must be empty, also after packets.
//!
//! Where [`crate::random`] edits one table of a fixed shape, here tables of all families come and go, with chains, sets,
//! maps, elements and named objects of every kind. Many sequences share a namespace, each with tables of its own names,
//! so that `nft` is not started for each of them; one that fails is run alone and made smaller. Seeds are fixed;
//! `HOMEOSTAT_SOAK` adds more, and `HOMEOSTAT_SEED` runs one of them alone, or those of a range such as `500..2500`. What
//! failed once is in [`cases`].

mod cases;
mod listing;
mod ruleset;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homeostat_engine::Explain as _;

use crate::world::{World, by_hand, explained, ip_here};
use cases::send_packets;
use listing::Listing;
use ruleset::Ruleset;

/// Others' tables, one of them with the name that one of ours has in another family.
const FOREIGN: &str = "
table ip foreign {
    set s { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
    chain x { type filter hook input priority 0; ip saddr @s counter packets 7 bytes 8 accept; }
}
table arp t0_0 { chain x { type filter hook input priority 0; counter packets 1 bytes 2; }; }
";

/// How many smaller sequences are tried once one has failed.
const SHRINKS: usize = 300;

/// How many sequences share a namespace.
const TOGETHER: u64 = 25;

/// Rulesets that follow each other.
type Sequence = Vec<Ruleset>;

/// What `nft -f` of a text gives beside the foreign tables.
fn expected(text: &str) -> Listing {
    let text = format!("{FOREIGN}\n{text}");
    let load = move || {
        let _world = World::new();
        by_hand(&text);
        Listing::read()
    };
    std::thread::spawn(load).join().unwrap()
}

/// The foreign tables, down to the handles.
fn foreign(listing: &Listing) -> Vec<&String> {
    let is_foreign = |table: &str| ["table ip foreign", "table arp t0_0"].contains(&table);
    let parts = listing.parts.iter().filter(|((table, _), _)| is_foreign(table));
    parts.map(|(_, part)| &part.whole).collect()
}

fn check(sequences: &[Sequence]) -> Result<(), String> {
    let mut world = World::new();
    ip_here("link set lo up");
    by_hand(FOREIGN);
    let mut before = Listing::read();
    let longest = sequences.iter().map(Vec::len).max().unwrap_or_default();
    // Some are answered by notifications alone, as in a daemon, and others by what is read, as in `apply`.
    let is_read = sequences.first().is_some_and(|sequence| sequence.len() % 2 == 1);
    for step in 0..=longest {
        if is_read {
            world.read_anew();
        } else if step > 0 {
            world.rest_from_reading();
        }
        let ruleset = |sequence: &Sequence| sequence.get(step.min(sequence.len() - 1)).cloned();
        let texts = sequences.iter().enumerate();
        let texts = texts.map(|(at, one)| ruleset(one).unwrap_or_default().text(at));
        let text: String = if step == longest { String::new() } else { texts.collect() };
        let desired = world.compile(&text).map_err(|error| format!("{step}: {error}"))?;
        let desired = Arc::new(desired);
        let report = world.pass(&desired);
        if !report.is_converged() {
            return Err(format!("{step} did not converge: {}", explained(&report)));
        }
        let after = Listing::read();
        let wrong = after.differs(&expected(&text)).or(after.forgot(&before));
        if let Some(wrong) = wrong {
            return Err(format!("{step}: {wrong}"));
        }
        if foreign(&after) != foreign(&before) {
            return Err(format!("{step}, foreign tables: {after:?} were {before:?}"));
        }
        for what in ["the second plan", "the plan after packets"] {
            let plan = world.plan(&desired);
            if !plan.steps.is_empty() {
                return Err(format!("{step}, {what}: {}", explained(&plan)));
            }
            send_packets();
        }
        before = Listing::read();
    }
    Ok(())
}

/// In a thread of its own, since a namespace is for the life of a thread.
fn run(sequences: &[Sequence]) -> Result<(), String> {
    let sequences = sequences.to_vec();
    let outcome = std::thread::spawn(move || check(&sequences)).join();
    outcome.unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// Takes away what the failure does not need, as long as it fails in the same way: whole sequences first.
fn shrunk(mut sequences: Vec<Sequence>, mut why: String) -> (Vec<Sequence>, String) {
    let kind = |why: &str| {
        let letters = why.chars().filter(|letter| letter.is_alphabetic());
        letters.take(20).collect::<String>()
    };
    let (mut tries, mut at) = (0, 0);
    while tries < SHRINKS {
        let Some(candidate) = smaller(&sequences, at) else { break };
        tries += 1;
        match run(&candidate) {
            Err(other) if kind(&other) == kind(&why) => (sequences, why) = (candidate, other),
            _ => at += 1,
        }
    }
    (sequences, why)
}

/// The sequences without one of them, or one of them without one of its parts.
fn smaller(sequences: &[Sequence], mut at: usize) -> Option<Vec<Sequence>> {
    let mut smaller = sequences.to_vec();
    if sequences.len() > 1 {
        if at < sequences.len() {
            smaller.remove(at);
            return Some(smaller);
        }
        at -= sequences.len();
    }
    for (sequence, candidate) in sequences.iter().zip(&mut smaller) {
        if sequence.len() > 1 {
            if at < sequence.len() {
                candidate.remove(at);
                return Some(smaller);
            }
            at -= sequence.len();
        }
        for (ruleset, candidate) in sequence.iter().zip(candidate) {
            let parts = ruleset.parts();
            if let Some(part) = parts.get(at) {
                candidate.remove(part);
                return Some(smaller);
            }
            at -= parts.len();
        }
    }
    None
}

/// The texts of sequences that were made smaller.
fn shown(sequences: &[Sequence]) -> String {
    let mut all = Vec::new();
    for (at, sequence) in sequences.iter().enumerate() {
        let texts: Vec<String> = sequence.iter().map(|ruleset| ruleset.text(at)).collect();
        all.push(texts.join("\n--- then:\n"));
    }
    all.join("\n--- together with:\n")
}

/// Runs one after the other, alone; the first that fails is made smaller and shown.
fn run_alone(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let sequence = ruleset::sequence(seed);
        if let Err(why) = run(std::slice::from_ref(&sequence)) {
            let (sequences, why) = shrunk(vec![sequence], why);
            panic!("seed {seed}, shrunk:\n{}\n--- {why}", shown(&sequences));
        }
    }
}

#[test]
fn any_ruleset_after_any_other_gives_what_nft_loads_and_touches_nothing_foreign() {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let seeds = match (std::env::var("HOMEOSTAT_SEED"), std::env::var("HOMEOSTAT_SOAK")) {
        (Ok(text), _) => {
            let Some((first, end)) = text.split_once("..") else {
                return run_alone(number(&text)..number(&text) + 1);
            };
            number(first)..number(end)
        }
        (_, Ok(times)) => 0..20_000 * times.parse().unwrap_or(1),
        _ => 0..500,
    };
    let (end, next) = (seeds.end, AtomicU64::new(seeds.start));
    let work = || {
        while let first = next.fetch_add(TOGETHER, Ordering::Relaxed)
            && first < end
        {
            let seeds = first..end.min(first + TOGETHER);
            let sequences: Vec<Sequence> = seeds.clone().map(ruleset::sequence).collect();
            if let Err(why) = run(&sequences) {
                run_alone(seeds.clone());
                let (sequences, why) = shrunk(sequences, why);
                panic!("seeds {seeds:?}, only together:\n{}\n--- {why}", shown(&sequences));
            }
        }
    };
    std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        for worker in workers {
            worker.join().unwrap();
        }
    });
}
