//! Readers: they follow along, and say what they cannot read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use homeostat_engine::journal::{Fact, JournalError, follow};
use tempfile::TempDir;

use crate::{busy, intent, open, succeeded};

#[tokio::test]
async fn a_reader_follows_what_somebody_else_writes() {
    let directory = TempDir::new().unwrap();
    let mut following = follow(directory.path());
    assert_eq!(following.more().unwrap(), []);
    let (journal, _) = open(directory.path());
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
async fn a_reader_that_has_seen_a_torn_line_sees_what_is_written_in_its_place() {
    let directory = TempDir::new().unwrap();
    busy(directory.path()).await;
    let path = directory.path().join("journal");
    let sound = fs::read(&path).unwrap();
    let torn = format!("0123abcd {{\"id\":\"1-5\",\"key\":\"{}", "x".repeat(1000));
    fs::write(&path, [sound.as_slice(), torn.as_bytes()].concat()).unwrap();
    let mut following = follow(directory.path());
    assert_eq!(following.more().unwrap().len(), 8);
    let (journal, recovered) = open(directory.path());
    assert!(recovered.cut > 0);
    let step = journal.begin(intent("guest 101", "start")).await.unwrap();
    let more = following.more().unwrap();
    assert_eq!(more.iter().map(|record| record.id).collect::<Vec<_>>(), [step]);
}

#[tokio::test]
async fn a_reader_tells_what_stands_before_damage_and_then_where_it_is() {
    let directory = TempDir::new().unwrap();
    busy(directory.path()).await;
    let path = directory.path().join("journal");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("UPID:a", "UPID:b", 1)).unwrap();
    let mut following = follow(directory.path());
    assert_eq!(following.more().unwrap().len(), 1, "what stands before it");
    for _ in 0..2 {
        let error = following.more().unwrap_err();
        assert!(error.to_string().ends_with("is damaged in line 3: its checksum does not fit"));
    }
}

#[tokio::test]
async fn a_reader_of_a_newer_format_says_so() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("journal"), crate::newer()).unwrap();
    let error = follow(directory.path()).more().unwrap_err();
    assert!(matches!(error, JournalError::Newer { found: 2, known: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_reader_waits_for_a_whole_line_that_makes_no_sense_and_has_nothing_after_it() {
    let directory = TempDir::new().unwrap();
    busy(directory.path()).await;
    let path = directory.path().join("journal");
    let sound = fs::read(&path).unwrap();
    fs::write(&path, [sound.as_slice(), b"\0\0\0\0\n"].concat()).unwrap();
    let mut following = follow(directory.path());
    assert_eq!(following.more().unwrap().len(), 8);
    let (journal, recovered) = open(directory.path());
    assert_eq!(recovered.cut, 5, "torn in its middle");
    journal.begin(intent("guest 101", "start")).await.unwrap();
    assert_eq!(following.more().unwrap().len(), 1);
}

#[tokio::test]
async fn a_reader_is_told_everything_once_also_when_the_file_is_made_anew() {
    let directory = TempDir::new_in(crate::FAST).unwrap();
    let (journal, _) = open(directory.path());
    let mut following = follow(directory.path());
    let kept = journal.begin(intent("guest 9", "start")).await.unwrap();
    journal.dispatched(kept, "UPID:a").await.unwrap();
    let mut told = following.more().unwrap();
    let inode = |path: &Path| fs::metadata(path.join("journal")).unwrap().ino();
    let first = inode(directory.path());
    crate::lives::grow(&journal).await;
    assert_ne!(inode(directory.path()), first, "it was made anew");
    journal.end(kept, succeeded()).await.unwrap();
    told.extend(following.more().unwrap());
    let of_it: Vec<_> = told.iter().filter(|record| record.id == kept).collect();
    assert_eq!(of_it.len(), 3, "{of_it:?}");
    let mut all: Vec<_> = told.iter().map(|record| format!("{record:?}")).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "something was told twice");
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_neither_cut_nor_read_as_an_empty_one() {
    let headless = |text: &str| text.split_once('\n').unwrap().1.to_owned();
    let sound = TempDir::new().unwrap();
    busy(sound.path()).await;
    let sound = fs::read_to_string(sound.path().join("journal")).unwrap();
    for text in ["my diary\n", "one\ntwo\n", &"x".repeat(300), "\n", &headless(&sound)] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("journal");
        fs::write(&path, text).unwrap();
        let error = crate::try_open(directory.path()).map(|_| ()).unwrap_err();
        assert!(error.to_string().ends_with("it does not begin as a journal does"), "{error}");
        assert!(error.help().unwrap().contains("move"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is cut or written");
        assert!(follow(directory.path()).more().is_err(), "{text}");
    }
}
