//! The journal: what it knows after a restart, what it refuses, and that nothing acknowledged is lost.
//!
//! No test here starts a process: until it runs its own program, a child shares the locks of its parent, and
//! a journal that another test has just closed is still busy.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod damage;
mod disks;
mod lives;
#[path = "../common/mount.rs"]
mod mount;
mod reading;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use homeostat_core::outcome::Later;
use homeostat_engine::journal::{
    Batch, Clock, CommandKey, End, Entry, Intent, Journal, JournalError, Known, Millis, OpenStep,
    Repeat, StepId, Store, Subject,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where a wait for the disk is none: for tests with thousands of files.
const FAST: &str = "/dev/shm";
const FAR: Millis = Millis(u64::MAX);

fn subject(key: &str) -> Subject {
    Subject { source: "guests".to_owned(), scope: "pve".to_owned(), key: key.to_owned() }
}

fn intent(key: &str, kind: &str) -> Intent {
    let (kind, parameters) = (kind.to_owned(), "9f2c".to_owned());
    let (precondition, node, repeat, command) = (None, String::new(), Repeat::Hurts, None);
    Intent { subject: subject(key), kind, parameters, precondition, node, repeat, command }
}

fn named(key: &str, name: &str, expires: Millis) -> Intent {
    let command = Some(CommandKey { name: name.to_owned(), expires });
    Intent { command, ..intent(key, "start") }
}

fn succeeded() -> End {
    End::Succeeded { answer: Value::Null }
}

fn open(directory: &Path) -> Journal {
    try_open(directory).unwrap()
}

fn try_open(directory: &Path) -> Result<Journal, JournalError> {
    Journal::open(directory, Arc::new(|| Millis(1000)))
}

fn id(text: &str) -> StepId {
    text.parse().unwrap()
}

fn in_flight(journal: &Journal) -> Vec<String> {
    let one = |OpenStep { id, intent, task, .. }: &OpenStep| {
        let task = task.as_deref().unwrap_or("no task");
        format!("{id} {} {}: {task}", intent.kind, intent.subject.key)
    };
    journal.open_steps().iter().map(one).collect()
}

/// Makes a journal into one that a newer version wrote.
fn write_newer(directory: &Path) {
    drop(open(directory));
    let file = rusqlite::Connection::open(directory.join("journal")).unwrap();
    file.pragma_update(None, "user_version", 3).unwrap();
}

/// Two ended steps, one that was dispatched and one that was only begun.
async fn busy(directory: &Path) {
    let journal = open(directory);
    let first = journal.begin(intent("guest 101", "start")).await.unwrap();
    journal.dispatched(first, "UPID:a").await.unwrap();
    journal.end(first, succeeded()).await.unwrap();
    let second = journal.begin(named("guest 102", "k", FAR)).await.unwrap();
    journal.end(second, End::Failed { why: "CT is locked".to_owned() }).await.unwrap();
    let third = journal.begin(intent("guest 103", "stop")).await.unwrap();
    journal.dispatched(third, "UPID:c").await.unwrap();
    journal.begin(intent("guest 104", "set")).await.unwrap();
}

#[tokio::test]
async fn what_was_in_flight_is_known_after_a_restart() {
    let directory = TempDir::new().unwrap();
    busy(directory.path()).await;
    let journal = open(directory.path());
    assert_eq!(in_flight(&journal), ["1-3 stop guest 103: UPID:c", "1-4 set guest 104: no task"]);
    assert_eq!(journal.open_step(&subject("guest 103")).unwrap().task.as_deref(), Some("UPID:c"));
    assert_eq!(journal.open_step(&subject("guest 101")), None);
    // What begins now has a name that no earlier step had.
    assert_eq!(journal.begin(intent("guest 101", "start")).await.unwrap(), id("2-1"));
}

#[tokio::test]
async fn a_key_with_an_open_step_gets_no_other_one() {
    let directory = TempDir::new().unwrap();
    busy(directory.path()).await;
    let journal = open(directory.path());
    let refused = journal.begin(intent("guest 104", "start")).await.unwrap_err();
    assert_eq!(refused.to_string(), "step 1-4 of `guest 104` has no end yet");
    journal.end(id("1-4"), End::Unknown { why: "a crash".to_owned() }).await.unwrap();
    journal.begin(intent("guest 104", "start")).await.unwrap();
}

#[tokio::test]
async fn what_cannot_follow_is_refused_and_leaves_no_trace() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    let step = journal.begin(intent("guest 101", "start")).await.unwrap();
    journal.dispatched(step, "UPID:a").await.unwrap();
    let twice = journal.dispatched(step, "UPID:b").await.unwrap_err();
    assert_eq!(twice.to_string(), "step 1-1 was already dispatched, as task UPID:a");
    journal.end(step, succeeded()).await.unwrap();
    for refused in [journal.end(step, succeeded()).await, journal.dispatched(step, "UPID:c").await]
    {
        assert_eq!(refused.unwrap_err().to_string(), "step 1-1 is not open");
    }
    assert!(journal.dispatched(id("9-9"), "UPID:d").await.is_err());
    drop(journal);
    assert_eq!(in_flight(&open(directory.path())), [""; 0]);
}

#[tokio::test]
async fn a_command_is_done_once_and_its_end_is_returned_again() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    assert_eq!(journal.known("k"), None);
    let step = journal.begin(named("guest 101", "k", FAR)).await.unwrap();
    assert_eq!(journal.known("k"), Some(Known::Running(step)));
    journal.end(step, End::Succeeded { answer: json!({"task": "UPID:a"}) }).await.unwrap();
    let again = journal.begin(named("guest 101", "k", FAR)).await.unwrap_err();
    assert_eq!(again.to_string(), "the command `k` was already begun");
    drop(journal);
    let journal = open(directory.path());
    let end = End::Succeeded { answer: json!({"task": "UPID:a"}) };
    assert_eq!(journal.known("k"), Some(Known::Ended(end)));
    // One whose time is over is forgotten, and may be begun again.
    let old = journal.begin(named("guest 101", "old", Millis(1))).await.unwrap();
    journal.end(old, succeeded()).await.unwrap();
    assert_eq!(journal.known("old"), None);
    journal.begin(named("guest 101", "old", FAR)).await.unwrap();
}

#[tokio::test]
async fn a_command_whose_end_is_unknown_may_be_begun_again_and_only_then() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    let command = || named("guest 101", "k", FAR);
    let step = journal.begin(command()).await.unwrap();
    journal.dispatched(step, "UPID:a").await.unwrap();
    assert_eq!(journal.doubted("k"), None, "it runs");
    let unknown = End::Unknown { why: "lost".to_owned() };
    journal.end(step, unknown.clone()).await.unwrap();
    drop(journal);
    let journal = open(directory.path());
    assert_eq!(journal.known("k"), Some(Known::Ended(unknown)));
    let doubted = journal.doubted("k").unwrap();
    assert_eq!((doubted.id, doubted.task.as_deref()), (step, Some("UPID:a")));
    assert_eq!(doubted.intent, command());
    let again = journal.begin(command()).await.unwrap();
    assert_eq!(journal.known("k"), Some(Known::Running(again)));
    assert_eq!(journal.doubted("k"), None);
    let twice = journal.begin(named("guest 102", "k", FAR)).await.unwrap_err();
    assert_eq!(twice.to_string(), "the command `k` was already begun");
    journal.end(again, succeeded()).await.unwrap();
    drop(journal);
    let journal = open(directory.path());
    assert_eq!(journal.known("k"), Some(Known::Ended(succeeded())));
    assert_eq!(journal.doubted("k"), None);
    assert!(journal.begin(command()).await.is_err(), "it is done");
}

#[tokio::test]
async fn one_process_writes_at_a_time_and_a_newer_format_is_refused() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    let second = try_open(directory.path()).map(|_| ()).unwrap_err();
    assert!(matches!(second, JournalError::Busy { .. }), "{second}");
    drop(journal);
    write_newer(directory.path());
    let newer = try_open(directory.path()).map(|_| ()).unwrap_err();
    let says = "has format 3, and this version knows formats up to 2";
    assert!(newer.to_string().ends_with(says), "{newer}");
}

#[tokio::test]
async fn only_its_owner_reads_a_journal() {
    let directory = TempDir::new_in(FAST).unwrap();
    let journal = open(directory.path());
    journal.begin(intent("guest 1", "start")).await.unwrap();
    for name in ["journal", "journal-wal", "journal-shm", "journal.lock"] {
        let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// A store that is not a file: every answer takes a while.
#[derive(Clone, Default)]
struct SlowStore {
    entries: Arc<Mutex<Vec<Entry>>>,
    writes: Arc<AtomicUsize>,
}

impl Store for SlowStore {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Later<'a, Result<(), JournalError>> {
        Box::pin(async {
            self.writes.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            let mut entries = self.entries.lock().unwrap();
            entries.extend_from_slice(&batch.put);
            entries.retain(|entry| !batch.delete.contains(&entry.number));
            Ok(())
        })
    }
}

#[tokio::test]
async fn another_store_can_keep_the_records_and_may_answer_late() {
    let store = SlowStore::default();
    let clock = || -> Clock { Arc::new(|| Millis(1000)) };
    let journal = Journal::new(store.clone(), &[], clock()).unwrap();
    let ends = journal.begin(named("guest 1", "k", FAR)).await.unwrap();
    let runs = journal.begin(intent("guest 2", "start")).await.unwrap();
    journal.dispatched(runs, "UPID:b").await.unwrap();
    journal.end(ends, succeeded()).await.unwrap();
    let before = (in_flight(&journal), journal.known("k"));
    assert_eq!(before.0, ["1-2 start guest 2: UPID:b"]);
    drop(journal);
    let entries = store.entries.lock().unwrap().clone();
    let journal = Journal::new(store, &entries, clock()).unwrap();
    assert_eq!((in_flight(&journal), journal.known("k")), before);
}

#[test]
fn a_runtime_that_has_ended_takes_no_record_along() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let handle = runtime.handle().clone();
    drop(runtime);
    // A task that ends with the runtime still has its handle, and the handle drops all futures that it is given.
    let inside = handle.enter();
    let _ = journal.begin(intent("guest 1", "start")).now_or_never();
    drop(inside);
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(journal);
        done.send(())
    });
    finished.recv_timeout(Duration::from_mins(1)).unwrap();
    assert_eq!(in_flight(&open(directory.path())), ["1-1 start guest 1: no task"]);
}

#[tokio::test]
async fn many_writers_share_one_order_and_nothing_is_lost() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    let steps = (0..64).map(|guest| {
        let journal = &journal;
        async move {
            let step = journal.begin(intent(&format!("guest {guest}"), "start")).await.unwrap();
            tokio::time::timeout(Duration::from_mins(1), journal.dispatched(step, "UPID"))
                .await
                .unwrap()
                .unwrap();
        }
    });
    futures_util::future::join_all(steps).await;
    drop(journal);
    assert_eq!(open(directory.path()).open_steps().len(), 64);
}

#[test]
fn ids_read_back_and_nothing_else_does() {
    for text in ["1-1", "0-0", "4294967295-18446744073709551615"] {
        assert_eq!(id(text).to_string(), text);
    }
    for text in ["", "1", "1-", "-1", "01-1", "1-1-1", "a-b", " 1-1"] {
        assert!(text.parse::<StepId>().is_err(), "{text:?}");
    }
}
