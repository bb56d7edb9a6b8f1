//! A kill before and after every write to the ledger and to the target, followed by a restart:
//! nothing is leaked, originals are right, foreign objects are untouched, and then all is quiet.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

#[path = "../common/child.rs"]
mod child;
mod journal;
mod target;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use homeostat_engine::{
    Alone, Config, Explain as _, Focus, LedgerKey, LedgerPage, Observer, OnRelease, Ownership,
    PassInput, Report, Source as _, SqliteLedger, Stage, Table, pass,
};
use target::{COARSE, Files, Fuse, Fused, contents};
use tempfile::TempDir;

/// What the target holds before the first pass, `made-foreign` by another owner.
const BEFORE: &str = "knob-a=0 knob-b=5 knob-coarse=30 knob-free=8 made-foreign=9";

/// The desired states of one life: claims, updates, creates, a settled value, releases, deletes.
const LIFE: [&str; 5] = [
    "knob-a=1 knob-b=5 made-x=1",
    "knob-a=2 knob-b=5 knob-coarse=11 made-x=2 made-y=1",
    "knob-a=2 knob-b=6 knob-coarse=22 made-y=1 made-z=3",
    "knob-b=6 made-y=2",
    "knob-b=7 made-x=4 made-y=2",
];

const CHILD: &str = "HOMEOSTAT_TEST_DIES_AT";

fn rows(text: &str) -> BTreeMap<String, u32> {
    let pairs = text.split_whitespace().map(|row| row.split_once('=').unwrap());
    pairs.map(|(key, number)| (key.to_owned(), number.parse().unwrap())).collect()
}

fn set_up(directory: &Path) {
    std::fs::create_dir(directory.join("target")).unwrap();
    for (key, number) in rows(BEFORE) {
        std::fs::write(directory.join("target").join(key), number.to_string()).unwrap();
    }
}

/// One process over the directory, with everything open that a pass needs.
struct Process {
    fuse: Arc<Fuse>,
    source: Files,
    observer: Observer<Files>,
    ledger_page: LedgerPage<Files>,
}

impl Process {
    fn start(directory: &Path, dies_at: Option<u64>) -> Self {
        let fuse = Fuse::new(dies_at);
        let source = Files { directory: directory.join("target"), fuse: Arc::clone(&fuse) };
        let ledger = SqliteLedger::open(&directory.join("state")).unwrap();
        let ledger = Arc::new(Fused { ledger, fuse: Arc::clone(&fuse) });
        let place = LedgerKey::new("me", "files", "here").with_identity("boot");
        let observer = Observer::open(&source, "here").unwrap();
        Process { fuse, source, observer, ledger_page: LedgerPage::open(ledger, place).unwrap() }
    }

    fn pass(&mut self, desired: &str) -> Report<Files> {
        let mut config = Config::default();
        config.on_release = OnRelease::Restore;
        let (source, ownership) = (&self.source, Ownership::Checkpoint);
        let desired = Arc::new(Table::new(rows(desired)).unwrap());
        let order = PassInput {
            source,
            desired,
            ownership: &ownership,
            focus: Focus::All,
            config: &config,
        };
        let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(pass(&order, &mut self.observer, &writer, &mut self.ledger_page)).unwrap()
    }

    /// Passes until one is converged, and checks that the next one writes nothing.
    #[track_caller]
    fn converge(&mut self, desired: &str, context: &str) {
        let converged = (0..5).any(|_| self.pass(desired).is_converged());
        assert!(converged, "{context}: never converged on {desired:?}");
        let before = self.fuse.passed();
        assert!(self.pass(desired).is_converged());
        assert_eq!(self.fuse.passed(), before, "{context}: a pass after a converged one wrote");
    }
}

/// Checks target and ledger against a desired state that is applied.
#[track_caller]
fn check(directory: &Path, desired: &str, context: &str) {
    let mut expected = rows(BEFORE);
    expected.extend(rows(desired));
    if let Some(number) = rows(desired).get(COARSE) {
        expected.insert(COARSE.to_owned(), number.next_multiple_of(10));
    }
    let found: BTreeMap<_, _> = contents(&directory.join("target")).into_iter().collect();
    assert_eq!(found, expected, "{context}, then {desired:?}");
    let process = Process::start(directory, None);
    let owned: Vec<_> = process.ledger_page.holdings().records.keys().cloned().collect();
    let declared: Vec<_> = rows(desired).into_keys().collect();
    assert_eq!(
        owned, declared,
        "{context}, then {desired:?}: records without objects, or the other way"
    );
}

/// The whole life, from its first request to its last. Also runs as another process that dies on the
/// way, for the test below.
#[test]
fn a_run_that_is_not_killed_ends_as_declared() {
    let own = TempDir::new().unwrap();
    let order = std::env::var(CHILD).unwrap_or_default();
    let (dies_at, directory) = order.split_once(' ').unwrap_or(("", ""));
    let directory = if directory.is_empty() { own.path() } else { Path::new(directory) };
    if directory == own.path() {
        set_up(directory);
    }
    let mut process = Process::start(directory, dies_at.parse().ok());
    for desired in LIFE {
        process.pass(desired);
    }
    drop(process);
    check(directory, LIFE[LIFE.len() - 1], "a whole life");
}

/// Runs until the boundary with this number; returns whether it was killed there.
fn dies(directory: &Path, at: u64) -> bool {
    let order = format!("{at} {}", directory.display());
    let mut child = child::start("a_run_that_is_not_killed_ends_as_declared", (CHILD, &order));
    let status = child.wait().unwrap();
    assert!(status.success() || status.code().is_none(), "it failed before its end: {status}");
    !status.success()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// What the target made of our number, if we died before we could record it. It cannot be distinguished
/// from what somebody else wrote, and that is never undone.
fn unconfirmed(directory: &Path) -> Option<u32> {
    let process = Process::start(directory, None);
    let record = process.ledger_page.holdings().records.get(COARSE)?;
    let held = contents(&directory.join("target")).into_iter().find(|(key, _)| key == COARSE)?.1;
    let is_rounded = held != rows(BEFORE)[COARSE] && !record.still_holds(&held);
    (record.stage == Stage::Intent && is_rounded).then_some(held)
}

/// Restarts over a copy of what the dead process left, and goes through these desired states.
fn restart(dead: &Path, desired_states: &[&str], context: &str) {
    let copied = TempDir::new().unwrap();
    copy(dead, copied.path());
    let spared = unconfirmed(copied.path()).filter(|_| !desired_states[0].contains(COARSE));
    let mut process = Process::start(copied.path(), None);
    process.converge(desired_states[0], context);
    if let Some(held) = spared {
        let knob = copied.path().join("target").join(COARSE);
        assert_eq!(std::fs::read_to_string(&knob).unwrap(), held.to_string(), "{context}");
        std::fs::write(knob, rows(BEFORE)[COARSE].to_string()).unwrap();
    }
    for desired in &desired_states[1..] {
        process.converge(desired, context);
    }
    drop(process);
    check(copied.path(), desired_states[desired_states.len() - 1], context);
}

#[test]
fn a_kill_at_any_write_leaks_nothing_and_loses_no_original() {
    let mut boundaries = 0;
    for at in 1.. {
        let dead = TempDir::new().unwrap();
        set_up(dead.path());
        if !dies(dead.path(), at) {
            break;
        }
        boundaries = at;
        let context = format!("killed at boundary {at}");
        restart(dead.path(), &LIFE, &context);
        restart(dead.path(), &[""], &context);
        for desired in LIFE {
            restart(dead.path(), &[desired, ""], &context);
        }
    }
    assert!(boundaries > 40, "only {boundaries} boundaries");
}
