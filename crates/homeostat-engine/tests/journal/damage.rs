//! Files that are damaged, torn, foreign or old: an error with a way out, never a fresh start.

use std::fs;
use std::path::Path;

use homeostat_engine::journal::{JournalError, Record, follow};
use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::{FAST, busy, intent, open, try_open};

fn file(directory: &Path) -> std::path::PathBuf {
    directory.join("journal")
}

/// Adds a record behind the back of the journal, with a checksum that fits.
fn forge(directory: &Path, record: &str) {
    let file = Connection::open(file(directory)).unwrap();
    let number: i64 =
        file.query_row("SELECT max(number) + 1 FROM record", [], |row| row.get(0)).unwrap();
    let sum = crc32fast::hash(&[&number.to_le_bytes(), record.as_bytes()].concat());
    file.execute("INSERT INTO record VALUES (?1, ?2, NULL, ?3)", params![number, record, sum])
        .unwrap();
}

#[track_caller]
fn is_damaged(directory: &Path, why: &str) {
    let before = fs::read(file(directory)).unwrap();
    let error = try_open(directory).map(|_| ()).unwrap_err();
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(why), "{why}: {error}");
    assert!(error.help().unwrap().contains("move "), "{error}");
    assert_eq!(fs::read(file(directory)).unwrap(), before, "nothing is written");
}

#[tokio::test]
async fn what_could_not_have_been_written_is_damage_when_it_is_read_back() {
    let begins = |id: &str, key: &str, more: &str| {
        format!(
            "{{\"id\":\"{id}\",\"at\":1,\"is\":\"intent\",\"source\":\"guests\",\"scope\":\"pve\",\"key\":\"{key}\",\
             \"kind\":\"start\",\"parameters\":\"x\"{more}}}"
        )
    };
    let is_named = |name: &str| format!(",\"command\":{{\"name\":\"{name}\",\"expires\":99}}");
    let dispatched =
        "{\"id\":\"1-3\",\"at\":1,\"is\":\"dispatched\",\"task\":\"UPID:d\"}".to_owned();
    let ended = |id: &str| format!("{{\"id\":\"{id}\",\"at\":1,\"is\":\"succeeded\"}}");
    let table = [
        (begins("1-4", "guest 9", ""), "step 1-4 is begun after a later one"),
        (begins("1-2", "guest 9", ""), "step 1-2 is begun after a later one"),
        (begins("1-5", "guest 104", ""), "step 1-4 of `guest 104` has no end yet"),
        (begins("1-5", "guest 9", &is_named("k")), "the command `k` was already begun"),
        (dispatched, "step 1-3 was already dispatched, as task UPID:c"),
        (ended("1-1"), "step 1-1 is not open"),
        (ended("7-1"), "step 7-1 is not open"),
        ("{}".to_owned(), "record 9 cannot be understood"),
    ];
    for (bad, why) in table {
        let directory = TempDir::new_in(FAST).unwrap();
        busy(directory.path()).await;
        forge(directory.path(), &bad);
        is_damaged(directory.path(), why);
    }
}

fn records(journal: &Path) -> Result<Vec<Record>, JournalError> {
    let (mut following, mut all) = (follow(journal), Vec::new());
    loop {
        match following.more()? {
            more if more.is_empty() => return Ok(all),
            more => all.extend(more),
        }
    }
}

/// A byte that is changed is found, or it is one that says nothing.
#[tokio::test]
async fn no_changed_byte_is_believed() {
    let directory = TempDir::new().unwrap();
    busy(directory.path()).await;
    let whole = fs::read(file(directory.path())).unwrap();
    let sound = records(directory.path()).unwrap();
    let (mut found, changed) = (0, TempDir::new_in(FAST).unwrap());
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x01;
        fs::write(file(changed.path()), bytes).unwrap();
        let read = records(changed.path());
        match try_open(changed.path()) {
            Ok(journal) => {
                drop(journal);
                assert_eq!(read.unwrap(), sound, "byte {at} was changed, and nobody noticed");
            }
            Err(_) => found += 1,
        }
    }
    assert!(found > 1000, "only {found} bytes of {} mean something", whole.len());
}

/// A process that dies leaves its last commits in the log. What the disk did not get of it is cut, commit by commit.
#[tokio::test]
async fn a_log_torn_at_any_byte_is_cut_and_everything_before_it_stands() {
    let directory = TempDir::new_in(FAST).unwrap();
    busy(directory.path()).await;
    let journal = open(directory.path());
    for guest in 0..5 {
        journal.begin(intent(&format!("guest {guest}"), "start")).await.unwrap();
    }
    let log = |directory: &Path| directory.join("journal-wal");
    let (main, whole) = (file(directory.path()), fs::read(log(directory.path())).unwrap());
    let mut known = 0;
    for length in (0..whole.len()).step_by(61).chain([whole.len()]) {
        let torn = TempDir::new_in(FAST).unwrap();
        fs::copy(&main, file(torn.path())).unwrap();
        fs::write(log(torn.path()), &whole[..length]).unwrap();
        let journal = open(torn.path());
        let now = journal.open_steps().len();
        assert!(now >= known && now >= 2, "at {length}: {now} open steps, and {known} before");
        known = now;
        // It goes on as if what is torn had never been begun.
        journal.begin(intent("guest 999", "start")).await.unwrap();
        drop(journal);
        assert_eq!(open(torn.path()).open_steps().len(), now + 1, "at {length}");
    }
    assert_eq!(known, 7);
}

#[tokio::test]
async fn a_reader_returns_the_records_before_damage_and_then_the_damage() {
    let directory = TempDir::new().unwrap();
    busy(directory.path()).await;
    let damage = Connection::open(file(directory.path())).unwrap();
    let change = "UPDATE record SET record = replace(record, 'UPID:a', 'UPID:b') WHERE number = 2";
    assert_eq!(damage.execute(change, []).unwrap(), 1);
    drop(damage);
    let mut following = follow(directory.path());
    assert_eq!(following.more().unwrap().len(), 1, "what stands before it");
    for _ in 0..2 {
        let error = following.more().unwrap_err();
        let why = "is damaged: the checksum of record 2 does not fit";
        assert!(error.to_string().ends_with(why), "{error}");
    }
    is_damaged(directory.path(), "the checksum of record 2 does not fit");
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_neither_written_nor_read_as_an_empty_one() {
    let database = TempDir::new_in(FAST).unwrap();
    let other = Connection::open(database.path().join("other")).unwrap();
    other.execute_batch("CREATE TABLE diary (day TEXT)").unwrap();
    drop(other);
    let other = fs::read(database.path().join("other")).unwrap();
    let long = "x".repeat(8192);
    for bytes in [&b"my diary\n"[..], b"one\ntwo\n", long.as_bytes(), b"\n", other.as_slice()] {
        let directory = TempDir::new_in(FAST).unwrap();
        fs::write(file(directory.path()), bytes).unwrap();
        is_damaged(directory.path(), "is damaged: ");
        assert!(follow(directory.path()).more().is_err(), "{bytes:?}");
    }
}
