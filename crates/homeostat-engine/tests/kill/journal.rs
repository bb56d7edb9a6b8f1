//! A process that writes a journal and is killed at any moment: also while records are written that many wait
//! for, and while old ones are deleted.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use homeostat_engine::Journal;
use homeostat_engine::journal::{End, Fact, Intent, Millis, Record, Repeat, Subject, follow};
use serde_json::Value;
use tempfile::TempDir;

use crate::child;

/// Set where the test runs in a process of its own, to be killed.
const TO_BE_KILLED: &str = "HOMEOSTAT_TEST_JOURNAL_TO_BE_KILLED";
/// Where a wait for the disk is none.
const FAST: &str = "/dev/shm";

fn open(directory: &Path) -> Journal {
    Journal::open(directory, Arc::new(|| Millis(1000))).unwrap()
}

fn intent(guest: u32) -> Intent {
    let [source, scope, kind] = ["guests", "pve", "start"].map(str::to_owned);
    let subject = Subject { source, scope, key: format!("guest {guest}") };
    let (precondition, node, repeat, command) = (None, String::new(), Repeat::Hurts, None);
    Intent { subject, kind, parameters: "x".repeat(2000), precondition, node, repeat, command }
}

/// Writes as fast as it can, prints what was acknowledged, and never ends by itself. Long records let
/// old ones be deleted every few hundred steps, so that some kills fall into that.
async fn write_until_killed(directory: &Path) {
    let journal = open(directory);
    let reported = fs::File::create(directory.join("reported")).unwrap();
    let lives = (0..16).map(|guest| {
        let (journal, mut reported) = (&journal, &reported);
        async move {
            loop {
                let step = journal.begin(intent(guest)).await.unwrap();
                reported.write_all(format!("begun {step}\n").as_bytes()).unwrap();
                journal.end(step, End::Succeeded { answer: Value::Null }).await.unwrap();
                reported.write_all(format!("ended {step}\n").as_bytes()).unwrap();
            }
        }
    });
    futures_util::future::join_all(lives).await;
}

/// What the process reported in whole lines.
fn reported(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("reported")).unwrap_or_default();
    text.split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n'))
        .map(str::to_owned)
        .collect()
}

/// Nothing is newer than what was acknowledged, but what was on its way.
fn check(directory: &Path, killed: usize) {
    let journal = open(directory);
    let open_steps: Vec<_> = journal.open_steps().iter().map(|step| step.id.to_string()).collect();
    let records = follow(directory).more().unwrap();
    let ended = |record: &&Record| matches!(record.fact, Fact::Ended(_));
    let ended: Vec<_> = records.iter().filter(ended).map(|record| record.id.to_string()).collect();
    let reported = reported(directory);
    let is_ended = |id: &str| reported.iter().any(|line| line == &format!("ended {id}"));
    for id in reported.iter().filter_map(|line| line.strip_prefix("begun ")) {
        let stands = if is_ended(id) {
            !open_steps.contains(&id.to_owned())
        } else {
            open_steps.contains(&id.to_owned()) || ended.contains(&id.to_owned())
        };
        assert!(stands, "kill {killed}: step {id} was acknowledged, and is lost");
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    let name = "journal::a_kill_at_any_moment_loses_nothing_that_was_acknowledged";
    if let Some(directory) = std::env::var_os(TO_BE_KILLED) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        return runtime.block_on(write_until_killed(Path::new(&directory)));
    }
    for killed in 0..8 {
        let directory = TempDir::new_in(FAST).unwrap();
        let path = directory.path().to_str().unwrap();
        let mut child = child::start(name, (TO_BE_KILLED, path));
        // Each life is longer than the one before it by a prime number of acknowledgements.
        while reported(directory.path()).len() < 100 + killed * 397 {
            std::thread::yield_now();
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        check(directory.path(), killed);
    }
}
