//! A tiny language for desired states, observations and records, so that a case of the diff is one row.
//!
//! A desired state is `KEY=MAIN[/EXTRA][!]`, where `!` is leave to adopt, or `KEY?WHY` where it is not known. An observation is
//! `KEY=MAIN[/EXTRA]@OWNER`, or `KEY?WHY` where the target cannot tell. A record is
//! `KEY=MAIN,ORIGINAL,STAGE[,SETTLED]`, where the original is a number or `absent`.

#![allow(dead_code, reason = "every test binary uses another part of it")]
#![allow(clippy::panic, reason = "a row that cannot be read is a mistake in the test")]
#![allow(clippy::unwrap_used, reason = "a row that cannot be read is a mistake in the test")]

use std::collections::BTreeSet;

use homeostat_core::desired::find_near;
use homeostat_core::{
    Agreement, Change, Changes, Desired, Diff, Exclusive, Finding, Focus, Kind, OnRelease,
    Original, Owner, Ownership, Prefixes, Record, Records, Rights, Seen, Slot, Snapshot, Stage,
    Standing, Standings, WaitsOn,
};
use proptest::test_runner::Config;
use serde::{Deserialize, Serialize};

/// How many cases a property gets; the soak multiplies them.
pub(crate) fn cases(few: u32) -> Config {
    let soak = std::env::var_os("HOMEOSTAT_SOAK").is_some();
    Config { failure_persistence: None, ..Config::with_cases(if soak { few * 50 } else { few }) }
}

/// An object with a field that may be undeclared in a desired state and unreadable in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Thing {
    pub(crate) main: u32,
    pub(crate) extra: Option<u32>,
}

pub(crate) fn thing(text: &str) -> Thing {
    let (main, extra) = text.split_once('/').map_or((text, None), |(m, e)| (m, Some(e)));
    Thing { main: main.parse().unwrap(), extra: extra.map(|extra| extra.parse().unwrap()) }
}

pub(crate) fn text(thing: &Thing) -> String {
    thing.extra.map_or(thing.main.to_string(), |extra| format!("{}/{extra}", thing.main))
}

#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) key: String,
    pub(crate) object: Thing,
    pub(crate) adopt: bool,
}

/// A desired state whose undeclared fields agree with anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct DesiredState {
    pub(crate) list: Vec<Declared>,
    pub(crate) unknown: Vec<(String, String)>,
    /// Whether lookups use the hint of the stream.
    pub(crate) ignores_near: bool,
}

impl DesiredState {
    pub(crate) fn new(mut list: Vec<Declared>) -> Self {
        list.sort_by(|a, b| a.key.cmp(&b.key));
        DesiredState { list, ..DesiredState::default() }
    }
}

pub(crate) fn desired(rows: &str) -> DesiredState {
    let (unknown, known): (Vec<_>, Vec<_>) =
        rows.split_whitespace().partition(|row| row.contains('?'));
    let unknown = unknown.iter().filter_map(|row| row.split_once('?'));
    let unknown = unknown.map(|(key, why)| (key.to_owned(), why.to_owned())).collect();
    DesiredState { unknown, ..DesiredState::new(known.into_iter().map(declared).collect()) }
}

fn declared(row: &str) -> Declared {
    let adopt = row.ends_with('!');
    let (key, object) = row.trim_end_matches('!').split_once('=').unwrap();
    Declared { key: key.to_owned(), object: thing(object), adopt }
}

impl Desired for DesiredState {
    type Key = String;
    type Object = Thing;

    fn len(&self) -> usize {
        self.list.len()
    }

    fn slot(&self, key: &String, near: Option<Slot>) -> Option<Slot> {
        let near = near.filter(|_| !self.ignores_near);
        find_near(&self.list, near, |declared| declared.key.cmp(key))
    }

    fn key(&self, slot: Slot) -> String {
        self.list[slot.index()].key.clone()
    }

    fn object(&self, slot: Slot) -> Thing {
        self.list[slot.index()].object
    }

    fn compare(&self, slot: Slot, seen: &Thing) -> Agreement {
        compare(&self.list[slot.index()].object, seen)
    }

    fn may_adopt(&self, slot: Slot) -> bool {
        self.list[slot.index()].adopt
    }

    fn unknown(&self, emit: &mut dyn FnMut(&String, &str)) {
        self.unknown.iter().for_each(|(key, why)| emit(key, why));
    }

    /// Of `KIND:NAME` the name.
    fn name(&self, key: &String) -> String {
        key.split_once(':').map_or(key.as_str(), |(_, name)| name).to_owned()
    }
}

pub(crate) fn compare(wanted: &Thing, seen: &Thing) -> Agreement {
    let differs = wanted.main != seen.main;
    match (wanted.extra, seen.extra) {
        (Some(_), None) => Agreement::Unsure { differs, why: "extra is unreadable".to_owned() },
        (Some(wanted), Some(seen)) => Agreement::when(!differs && wanted == seen),
        (None, _) => Agreement::when(!differs),
    }
}

pub(crate) fn seen(rows: &str) -> Vec<Seen<String, Thing>> {
    rows.split_whitespace().map(seen_one).collect()
}

fn seen_one(row: &str) -> Seen<String, Thing> {
    if let Some((key, why)) = row.split_once('?') {
        return Seen::Unknown { key: key.to_owned(), why: why.to_owned() };
    }
    let (thing_row, owner) = row.split_once('@').unwrap();
    let (key, object) = thing_row.split_once('=').unwrap();
    Seen::Present { key: key.to_owned(), object: thing(object), owner: owner_named(owner) }
}

fn owner_named(name: &str) -> Owner {
    match name {
        "ours" => Owner::Ours,
        "kernel" => Owner::Kernel,
        "unmarked" => Owner::Unmarked,
        "nobody" => Owner::Nobody,
        who => Owner::Foreign(who.to_owned().into()),
    }
}

pub(crate) fn records(rows: &str) -> Records<String, Thing> {
    rows.split_whitespace().map(record).collect()
}

fn record(row: &str) -> (String, Record<Thing>) {
    let (key, parts) = row.split_once('=').unwrap();
    let parts: Vec<_> = parts.split(',').collect();
    let original = match parts[1] {
        "absent" => Original::Absent,
        was => Original::Was(thing(was)),
    };
    let stage = if parts[2] == "intent" { Stage::Intent } else { Stage::Done };
    let taken = parts.get(3).is_some_and(|part| *part == "taken");
    let snapshot = taken.then(|| Snapshot("in full".to_owned()));
    let settled = parts.get(3).filter(|_| !taken).map(|settled| thing(settled));
    let wrote = thing(parts[0]);
    (key.to_owned(), Record { settled, snapshot, ..Record::new(wrote, original, stage) })
}

/// `marked`, `checkpoint`, `exclusive`, or a prefix such as `web-*`.
pub(crate) fn ownership(name: &str) -> Ownership {
    match name {
        "marked" => Ownership::Marked,
        "checkpoint" => Ownership::Checkpoint,
        "exclusive" => Ownership::Exclusive(Exclusive::everything_in_this_scope_is_mine()),
        prefix => {
            Ownership::Prefix(Prefixes::default().claim(prefix.trim_end_matches('*')).unwrap())
        }
    }
}

/// How conditions let keys stand: `KEY-` is withdrawn, `KEY~` undecided, `KEY+` has just returned.
pub(crate) fn standings(text: &str) -> Standings<String> {
    let on = || WaitsOn::Check { check: "c".to_owned(), why: "no".to_owned() };
    let standing = |word: &str| {
        let (key, sign) = word.split_at(word.len() - 1);
        let standing = match sign {
            "-" => Standing::Withdrawn(on()),
            "~" => Standing::Undecided(on()),
            "+" => Standing::Returned,
            other => panic!("{other} is no standing"),
        };
        (key.to_owned(), standing)
    };
    text.split_whitespace().map(standing).collect()
}

/// Everything that a diff depends on.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) ownership: Ownership,
    pub(crate) desired: DesiredState,
    pub(crate) seen: Vec<Seen<String, Thing>>,
    pub(crate) records: Records<String, Thing>,
    pub(crate) adopt: BTreeSet<String>,
    pub(crate) focus: Focus<String>,
    pub(crate) on_release: OnRelease,
    pub(crate) standings: Standings<String>,
}

impl World {
    pub(crate) fn diff(&self) -> Changes<String, Thing> {
        let rights = Rights {
            ownership: &self.ownership,
            records: &self.records,
            adopt: &self.adopt,
            on_release: self.on_release,
        };
        let mut diff = Diff::new(&self.desired, &self.focus, rights).heeding(&self.standings);
        self.seen.iter().cloned().for_each(|seen| diff.see(seen));
        diff.finish()
    }

    pub(crate) fn findings(&self) -> Vec<String> {
        findings(&self.desired, &self.diff())
    }
}

/// Everything that was found, in words and in the order of the report.
pub(crate) fn findings(desired: &DesiredState, found: &Changes<String, Thing>) -> Vec<String> {
    let key = |slot: &Slot| desired.key(*slot);
    let mut lines: Vec<_> =
        found.list.clone().into_iter().map(|change| text_of(desired, &change)).collect();
    lines.extend(found.claims.iter().map(|slot| format!("claim {}", key(slot))));
    lines.extend(found.originals.iter().map(|(key, was)| format!("{key} was {}", text(was))));
    for kind in [Kind::Conflict, Kind::Matched, Kind::Settled, Kind::Unknown, Kind::Withdrawn] {
        let findings = found.findings.iter().filter(|(_, finding)| finding.kind() == kind);
        lines.extend(findings.map(finding_line));
    }
    let withheld: Vec<_> = found.list.withheld().keys().cloned().collect();
    if !withheld.is_empty() {
        lines.push(format!("withheld {}", withheld.join(" ")));
    }
    lines.extend(found.by_check.iter().map(|key| format!("by check {key}")));
    lines.extend(found.pruned.iter().map(|key| format!("prune {key}")));
    lines.extend(found.confirmed.iter().map(|key| format!("confirm {key}")));
    if found.owned > 0 {
        lines.push(format!("owned {}", found.owned));
    }
    lines
}

fn finding_line((key, finding): &(String, Finding)) -> String {
    match finding {
        Finding::Conflict { owner, reason } => {
            format!("conflict {key} {reason:?} {owner}").to_lowercase()
        }
        Finding::Matched { owner } => format!("matched {key} {owner}"),
        Finding::Settled { held, .. } => {
            let held: Thing = serde_json::from_value((**held).clone()).unwrap();
            format!("settled {key} {}", text(&held))
        }
        Finding::Unknown { why } => format!("unknown {key} {why}"),
        Finding::Pending { on } => format!("withdrawn {key} by {on}"),
        other => unreachable!("a diff does not find {other:?}"),
    }
}

fn text_of(desired: &DesiredState, change: &Change<String, Thing>) -> String {
    match change {
        Change::Create { slot } => format!("create {}", desired.key(*slot)),
        Change::Update { slot, before, adopts: None } => {
            format!("update {} from {}", desired.key(*slot), text(before))
        }
        Change::Update { slot, before, adopts: Some(owner) } => {
            format!("adopt {} from {} of {owner}", desired.key(*slot), text(before))
        }
        Change::Delete { key, before } => format!("delete {key} {}", text(before)),
        Change::GiveBack { key, taken, .. } => format!("give back {key} {}", text(&taken.original)),
        Change::Release { key, restore: None, .. } => format!("release {key}"),
        Change::Release { key, restore: Some(original), .. } => {
            format!("release {key} restoring {}", text(original))
        }
    }
}
