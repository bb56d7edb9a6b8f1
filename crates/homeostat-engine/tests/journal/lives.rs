//! Long lives and many short ones: file and memory stay small, and nothing that is needed is lost.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use homeostat_engine::journal::{End, Fact, Journal, Known, Millis, StepId, follow};
use tempfile::TempDir;

use crate::{FAR, FAST, SlowStore, in_flight, intent, named, open, subject, succeeded};

#[tokio::test]
async fn a_long_life_leaves_a_short_file_with_all_that_is_needed() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    let kept = journal.begin(named("guest 1", "kept", FAR)).await.unwrap();
    journal.end(kept, succeeded()).await.unwrap();
    let running = journal.begin(intent("guest 2", "start")).await.unwrap();
    journal.dispatched(running, "UPID:b").await.unwrap();
    for _ in 0..200 {
        let steps = (100..150).map(|guest| {
            let journal = &journal;
            async move {
                let step = journal.begin(intent(&format!("guest {guest}"), "set")).await.unwrap();
                journal.end(step, End::Failed { why: "x".repeat(100) }).await.unwrap();
            }
        });
        join_all(steps).await;
    }
    drop(journal);
    let length = fs::metadata(directory.path().join("journal")).unwrap().len();
    assert!(length < 2 << 20, "{length} bytes are left of ten thousand steps");
    let journal = open(directory.path());
    assert_eq!(in_flight(&journal), ["1-2 start guest 2: UPID:b"]);
    assert!(matches!(journal.known("kept"), Some(Known::Ended(_))));
    let records = follow(directory.path()).more().unwrap();
    let last = records.iter().rev().find(|record| matches!(record.fact, Fact::Ended(_))).unwrap();
    assert_eq!(last.fact, Fact::Ended(End::Failed { why: "x".repeat(100) }));
}

#[tokio::test]
async fn a_step_knows_the_last_work_on_its_key_across_steps_without_any_lives_and_deleted_records()
{
    let directory = TempDir::new_in(FAST).unwrap();
    let journal = open(directory.path());
    let after = |journal: &Journal| journal.open_step(&subject("guest 1")).unwrap().after;
    let worked = journal.begin(intent("guest 1", "start")).await.unwrap();
    assert_eq!(after(&journal), None);
    journal.dispatched(worked, "UPID:a").await.unwrap();
    journal.end(worked, succeeded()).await.unwrap();
    grow_by(&journal, 10).await;
    drop(journal);
    assert!(length(directory.path()) < 2 << 20, "old records were deleted");
    for _ in 0..2 {
        let journal = open(directory.path());
        let lost = journal.begin(intent("guest 1", "start")).await.unwrap();
        assert_eq!(after(&journal).as_deref(), Some("UPID:a"));
        journal.end(lost, End::Unknown { why: "lost".to_owned() }).await.unwrap();
        grow_by(&journal, 10).await;
    }
    let journal = open(directory.path());
    let next = journal.begin(intent("guest 1", "stop")).await.unwrap();
    journal.dispatched(next, "UPID:b").await.unwrap();
    assert_eq!(after(&journal).as_deref(), Some("UPID:a"), "what it is about came after that");
    journal.end(next, succeeded()).await.unwrap();
    journal.begin(intent("guest 1", "start")).await.unwrap();
    assert_eq!(after(&journal).as_deref(), Some("UPID:b"));
}

/// The same by the steps of five guests, from this number on.
async fn grow_by(journal: &Journal, first: u32) {
    for guest in 0..2500 {
        let key = format!("guest {}", first + guest % 5);
        let step = journal.begin(intent(&key, "set")).await.unwrap();
        journal.end(step, End::Failed { why: "x".repeat(1000) }).await.unwrap();
    }
}

/// Writes so much that old records are deleted, again and again.
pub(crate) async fn grow(journal: &Journal) {
    grow_by(journal, 0).await;
}

/// Many steps of a guest, one after the other; returns the last one.
async fn live(journal: &Journal, guest: usize, steps: usize) -> StepId {
    let mut last = None;
    for _ in 0..steps {
        let step = journal.begin(intent(&format!("guest {guest}"), "set")).await.unwrap();
        journal.dispatched(step, &"x".repeat(600)).await.unwrap();
        journal.end(step, succeeded()).await.unwrap();
        last = Some(step);
    }
    last.unwrap()
}

/// Old records, and the pages that the file has for them.
const SHORT: u64 = 2 << 20;

fn length(directory: &Path) -> u64 {
    fs::metadata(directory.join("journal")).unwrap().len()
}

/// A journal whose clock the test sets.
fn open_at(directory: &Path, now: &Arc<AtomicU64>) -> Journal {
    let now = Arc::clone(now);
    Journal::open(directory, Arc::new(move || Millis(now.load(Ordering::Relaxed)))).unwrap()
}

#[tokio::test]
async fn many_short_lives_leave_a_short_file_too() {
    let directory = TempDir::new_in(FAST).unwrap();
    for _ in 0..60 {
        let journal = open(directory.path());
        for guest in 0..50 {
            let step = journal.begin(intent(&format!("guest {guest}"), "set")).await.unwrap();
            journal.end(step, End::Failed { why: "x".repeat(1000) }).await.unwrap();
        }
    }
    let length = length(directory.path());
    assert!(length < SHORT, "{length} bytes are left of three thousand steps");
}

#[tokio::test]
async fn commands_are_forgotten_when_their_time_is_over_and_not_before() {
    let directory = TempDir::new_in(FAST).unwrap();
    let now = Arc::new(AtomicU64::new(0));
    let journal = open_at(directory.path(), &now);
    for nth in 0..10_000_u64 {
        now.store(nth, Ordering::Relaxed);
        let command = named("guest 1", &format!("{nth} {}", "x".repeat(300)), Millis(nth + 100));
        let step = journal.begin(command).await.unwrap();
        journal.end(step, succeeded()).await.unwrap();
        let earlier = nth.saturating_sub(90);
        let known = journal.known(&format!("{earlier} {}", "x".repeat(300)));
        assert_eq!(known, Some(Known::Ended(succeeded())), "{earlier} at {nth}");
    }
    assert!(length(directory.path()) < SHORT, "{}", length(directory.path()));
    let names = journal.names();
    assert!(names < 5000, "{names} names are left of ten thousand commands");
}

/// A clock that was wrong and is put right makes expired names unexpired again. Those that the file has left
/// out are new; those that it still has are known. Either way it can be read back.
#[tokio::test]
async fn a_clock_that_goes_back_makes_no_journal_that_cannot_be_read() {
    let directory = TempDir::new_in(FAST).unwrap();
    let now = Arc::new(AtomicU64::new(1000));
    let journal = open_at(directory.path(), &now);
    for guest in ["guest 1", "guest 2"] {
        let step =
            journal.begin(named(guest, &format!("once {guest}"), Millis(2000))).await.unwrap();
        journal.end(step, succeeded()).await.unwrap();
    }
    // Only of the first one the step is not the last one of its key.
    let step = journal.begin(intent("guest 1", "stop")).await.unwrap();
    journal.end(step, succeeded()).await.unwrap();
    now.store(1_000_000, Ordering::Relaxed);
    for guest in 0..2500 {
        let step = journal.begin(intent(&format!("guest {}", 5 + guest % 5), "set")).await.unwrap();
        journal.end(step, End::Failed { why: "x".repeat(1000) }).await.unwrap();
    }
    assert!(length(directory.path()) < SHORT, "old records were deleted");
    now.store(1500, Ordering::Relaxed);
    assert_eq!(journal.known("once guest 1"), None);
    assert_eq!(journal.known("once guest 2"), Some(Known::Ended(succeeded())));
    let step = journal.begin(named("guest 1", "once guest 1", Millis(2500))).await.unwrap();
    assert!(journal.begin(named("guest 2", "once guest 2", Millis(2500))).await.is_err());
    drop(journal);
    let journal = open_at(directory.path(), &now);
    assert_eq!(journal.known("once guest 1"), Some(Known::Running(step)));
    assert_eq!(journal.known("once guest 2"), Some(Known::Ended(succeeded())));
}

#[tokio::test]
async fn what_is_appended_while_old_records_are_deleted_stays() {
    let directory = TempDir::new_in(FAST).unwrap();
    let journal = open(directory.path());
    let lives = (0..32).map(|guest| live(&journal, guest, 200));
    let mut last = join_all(lives).await;
    drop(journal);
    assert!(length(directory.path()) < SHORT, "{}", length(directory.path()));
    assert!(in_flight(&open(directory.path())).is_empty());
    let records = follow(directory.path()).more().unwrap();
    let ended = |record: &&_| {
        matches!(record, homeostat_engine::journal::Record { fact: Fact::Ended(_), .. })
    };
    let ended: std::collections::BTreeSet<_> =
        records.iter().filter(ended).map(|record| record.id).collect();
    last.retain(|step| !ended.contains(step));
    assert_eq!(last, [], "the last end of each key is kept");
}

/// Appends and does not wait.
fn append_all(journal: &Journal, thread: u32) {
    for nth in 0..1500 {
        let key = format!("guest {thread} {nth} {}", "x".repeat(1000));
        let _ = journal.begin(intent(&key, "start")).now_or_never();
    }
}

/// On a real disk, so that there is always something in the queue when a write is done.
#[test]
fn a_record_is_written_although_no_caller_waits_for_it() {
    let directory = TempDir::new().unwrap();
    let journal = open(directory.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let journal = &journal;
            scope.spawn(move || append_all(journal, thread));
        }
    });
    drop(journal);
    assert_eq!(open(directory.path()).open_steps().len(), 6000);
}

/// Records that were appended before a flush has begun are written at once.
#[test]
fn many_writers_share_one_wait_for_the_disk() {
    let store = SlowStore::default();
    let journal = Journal::new(store.clone(), &[], Arc::new(|| Millis(1000))).unwrap();
    let runtime =
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        // The only thread that could write is busy until all records are appended.
        let busy = tokio::task::spawn_blocking(move || gone.recv());
        let steps = (0..64).map(|guest| journal.begin(intent(&format!("guest {guest}"), "start")));
        let handed_in = async {
            tokio::task::yield_now().await;
            go.send(()).unwrap();
        };
        let (begun, ()) = futures_util::future::join(join_all(steps), handed_in).await;
        assert_eq!(begun.iter().filter(|step| step.is_ok()).count(), 64);
        busy.await.unwrap().unwrap();
    });
    assert_eq!(store.writes.load(Ordering::Relaxed), 1);
}
