//! Readers: they follow along, and say what they cannot read.

use std::fs;

use homeostat_engine::journal::{Fact, JournalError, follow};
use tempfile::TempDir;

use crate::{intent, open, succeeded};

#[tokio::test]
async fn a_reader_follows_another_writer() {
    let directory = TempDir::new().unwrap();
    let mut following = follow(directory.path());
    assert_eq!(following.more().unwrap(), []);
    let journal = open(directory.path());
    let step = journal.begin(intent("guest 101", "start")).await.unwrap();
    assert_eq!(following.more().unwrap().len(), 1);
    assert_eq!(following.more().unwrap().len(), 0);
    journal.dispatched(step, "UPID:a").await.unwrap();
    journal.end(step, succeeded()).await.unwrap();
    let more = following.more().unwrap();
    assert_eq!(more[0].fact, Fact::Dispatched { task: "UPID:a".to_owned() });
    assert_eq!(more[1].fact, Fact::Ended(succeeded()));
}

#[tokio::test]
async fn a_reader_of_a_newer_format_says_so() {
    let directory = TempDir::new().unwrap();
    crate::write_newer(directory.path());
    let error = follow(directory.path()).more().unwrap_err();
    assert!(matches!(error, JournalError::Newer { found: 3, known: 2, .. }), "{error}");
}

#[tokio::test]
async fn a_reader_gets_everything_once_also_when_old_records_are_deleted() {
    let directory = TempDir::new_in(crate::FAST).unwrap();
    let journal = open(directory.path());
    let mut following = follow(directory.path());
    let kept = journal.begin(intent("guest 9", "start")).await.unwrap();
    journal.dispatched(kept, "UPID:a").await.unwrap();
    let mut records = following.more().unwrap();
    crate::lives::grow(&journal).await;
    journal.end(kept, succeeded()).await.unwrap();
    records.extend(following.more().unwrap());
    let of_it: Vec<_> = records.iter().filter(|record| record.id == kept).collect();
    assert_eq!(of_it.len(), 3, "{of_it:?}");
    let mut all: Vec<_> = records.iter().map(|record| format!("{record:?}")).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "something was reported twice");
    assert!(count < 5000, "nothing was deleted");
}

#[tokio::test]
async fn a_reader_goes_on_with_the_new_journal_when_somebody_has_moved_the_old_one_away() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (intent("guest 1", "start"), intent("guest 2", "start"));
    open(directory.path()).begin(old.clone()).await.unwrap();
    let mut following = follow(directory.path());
    assert_eq!(following.more().unwrap()[0].fact, Fact::Intent(old));
    fs::rename(directory.path().join("journal"), directory.path().join("old")).unwrap();
    assert_eq!(following.more().unwrap(), []);
    open(directory.path()).begin(new.clone()).await.unwrap();
    assert_eq!(following.more().unwrap()[0].fact, Fact::Intent(new));
}
