//! Disks that are full or read-only: what was acknowledged stands, the rest is refused, and the error says
//! the way out.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use homeostat_engine::journal::{End, Journal, JournalError, Known, follow};
use tempfile::TempDir;

use crate::{FAR, in_flight, intent, mount, named, open, subject, succeeded, try_open};

/// Fills the disk step by step, until the journal gives up.
async fn fill(directory: &Path) -> (Journal, JournalError) {
    let journal = open(directory);
    for guest in 0..10_000 {
        let key = format!("guest {guest} {}", "x".repeat(1000));
        if let Err(error) = journal.begin(intent(&key, "start")).await {
            return (journal, error);
        }
    }
    panic!("the disk is not small");
}

/// A command whose end is unknown.
async fn lose(directory: &Path, name: &str) {
    let journal = open(directory);
    let step = journal.begin(named("guest 3", name, FAR)).await.unwrap();
    journal.end(step, End::Unknown { why: "lost".to_owned() }).await.unwrap();
}

async fn fill_and_make_room(directory: &Path) {
    lose(directory, "lost").await;
    fs::write(directory.join("ballast"), vec![0; 160 << 10]).unwrap();
    let (journal, error) = fill(directory).await;
    assert!(matches!(error, JournalError::Write { .. }), "{error}");
    assert!(error.help().unwrap().contains("room"), "{error}");
    let known = journal.open_steps().len();
    let ended = journal.open_steps()[0].id;
    for _ in 0..3 {
        let again = journal.begin(named("guest 1", "k", FAR)).await.unwrap_err();
        assert!(matches!(again, JournalError::Write { .. }), "{again}");
    }
    journal.begin(named("guest 3", "lost", FAR)).await.unwrap_err();
    assert!(journal.doubted("lost").is_some(), "what may be at work is not forgotten");
    // It could not be written down, and was all the same: what is asked of the target later knows it.
    journal.end(ended, succeeded()).await.unwrap_err();
    assert_eq!(journal.open_steps().len(), known - 1, "a refused step was never begun");
    assert_eq!(journal.known("k"), None, "nor was its command");
    fs::remove_file(directory.join("ballast")).unwrap();
    journal.begin(named("guest 1", "k", FAR)).await.unwrap();
    journal.begin(intent("guest 2", "stop")).await.unwrap();
    drop(journal);
    let journal = open(directory);
    assert_eq!(journal.open_steps().len(), known + 1);
    assert!(matches!(journal.known("k"), Some(Known::Running(_))));
}

#[test]
fn a_journal_that_cannot_be_written_refuses_every_step_until_there_is_room() {
    let directory = TempDir::new().unwrap();
    mount::with_small_disk(directory.path(), "256k", || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(fill_and_make_room(directory.path()));
    });
}

async fn fail_and_go_on(directory: &Path) {
    let journal = open(directory);
    let ends = journal.begin(named("guest 1", "k", FAR)).await.unwrap();
    let runs = journal.begin(intent("guest 2", "start")).await.unwrap();
    let ballast = directory.join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    for failed in [
        journal.dispatched(runs, "UPID:b").await,
        journal.end(ends, succeeded()).await,
        journal.begin(intent("guest 3", "start")).await.map(|_| ()),
    ] {
        assert!(matches!(failed, Err(JournalError::Write { .. })), "{failed:?}");
    }
    assert_eq!(in_flight(&journal), ["1-2 start guest 2: UPID:b"]);
    drop(file);
    fs::remove_file(ballast).unwrap();
    let third = journal.begin(intent("guest 3", "start")).await.unwrap();
    let before = (in_flight(&journal), journal.known("k"));
    drop(journal);
    let journal = open(directory);
    assert_eq!((in_flight(&journal), journal.known("k")), before);
    assert_eq!(journal.open_step(&subject("guest 3")).unwrap().id, third);
}

#[test]
fn a_record_that_could_not_be_written_goes_with_the_next_one_and_an_intent_never_was() {
    let directory = TempDir::new().unwrap();
    mount::with_small_disk(directory.path(), "256k", || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(fail_and_go_on(directory.path()));
    });
}

#[test]
fn a_state_directory_that_is_read_only_is_a_clear_error_and_can_still_be_read() {
    let directory = TempDir::new().unwrap();
    mount::with_small_disk(directory.path(), "256k", || {
        drop(try_open(directory.path()).unwrap());
        mount::make_read_only(directory.path());
        let error = try_open(directory.path()).map(|_| ()).unwrap_err();
        assert!(matches!(error, JournalError::Open { .. }), "{error}");
        assert!(error.to_string().contains("Read-only file system"), "{error}");
        assert!(error.help().unwrap().contains("rights in the state directory"), "{error}");
        assert_eq!(follow(directory.path()).more().unwrap(), []);
    });
}
