//! The ledger on disk: what it keeps, who may read it when, and every way in which its file can be
//! wrong.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be set up fails the test")]

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::rig::{Rig, place};
use common::toy::{Independent, Toy};
use common::{block_on, child, mount};
use homeostat_engine::{
    Alone, Config, Edit, Error, Focus, Ledger, LedgerKey, LedgerPage, MemoryLedger, Observer,
    Ownership, Page, Pages, PassInput, Retry, Source as _, SqliteLedger, SqlitePages, pass,
};
use rusqlite::Connection;
use tempfile::TempDir;

fn file(directory: &Path) -> PathBuf {
    directory.join("ledger.db")
}

fn put(key: &str, record: &str) -> Edit {
    Edit::Put { key: key.to_owned(), record: record.to_owned() }
}

fn drop_of(key: &str) -> Edit {
    Edit::Drop { key: key.to_owned() }
}

fn records(page: &Page) -> Vec<(&str, &str)> {
    page.records.iter().map(|(key, record)| (key.as_str(), record.as_str())).collect()
}

#[test]
fn only_the_owner_can_read_the_file_also_one_that_others_could_read() {
    let directory = TempDir::new().unwrap();
    for _ in 0..2 {
        let ledger = SqliteLedger::open(directory.path()).unwrap();
        ledger.write(&place(), &[put("a", "1")]).unwrap();
        for name in ["ledger.db", "ledger.db-wal"] {
            let mode = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        drop(ledger);
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(file(directory.path()), open).unwrap();
    }
}

#[test]
fn what_was_written_is_read_back_by_everybody() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    let edits = [put("b", "2"), put("a", "0"), put("a", "1"), put("c", "3"), drop_of("c")];
    ledger.write(&place(), &edits).unwrap();
    ledger.write(&place(), &[Edit::DesiredState(vec![1, 2, 3])]).unwrap();
    ledger.write(&place(), &[Edit::DesiredState(vec![4])]).unwrap();
    let expected =
        Page::new(vec![("a".into(), "1".into()), ("b".into(), "2".into())], Some(vec![4]));
    assert_eq!(ledger.page(&place()).unwrap(), expected);
    let pages = SqlitePages::open(directory.path()).unwrap();
    assert_eq!(pages.page(&place()).unwrap(), expected);
    drop((ledger, pages));
    let again = SqliteLedger::open(directory.path()).unwrap();
    assert_eq!(again.page(&place()).unwrap(), expected);
    assert_eq!(again.places("me").unwrap(), [place()]);
}

#[test]
fn a_place_in_which_something_was_applied_is_known_without_records() {
    let directory = TempDir::new().unwrap();
    let sqlite = SqliteLedger::open(directory.path()).unwrap();
    let memory = MemoryLedger::default();
    let ledgers: [&dyn Ledger; 2] = [&sqlite, &memory];
    for ledger in ledgers {
        ledger.write(&place(), &[Edit::DesiredState(vec![1; 8])]).unwrap();
        assert_eq!(ledger.places("me").unwrap(), [place()]);
        ledger.write(&place(), &[Edit::DesiredState(vec![])]).unwrap();
        assert_eq!(ledger.places("me").unwrap(), []);
    }
}

#[test]
fn odd_keys_and_records_survive() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    let long = "x".repeat(100_000);
    for key in ["", "'", "a'); DROP TABLE record; --", "ü ✓", "a\nb", long.as_str()] {
        ledger.write(&place(), &[put(key, key)]).unwrap();
        assert!(ledger.page(&place()).unwrap().records.contains(&(key.into(), key.into())));
    }
    assert_eq!(ledger.page(&place()).unwrap().records.len(), 6);
}

#[test]
fn owners_sources_and_scopes_are_apart() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    let others = [
        LedgerKey::new("you", "toy", "here"),
        LedgerKey::new("me", "nft", "here"),
        LedgerKey::new("me", "toy", "blue"),
    ];
    let others = others.map(|other| other.with_identity(place().identity));
    ledger.write(&place(), &[put("a", "mine"), Edit::DesiredState(vec![1])]).unwrap();
    for other in &others {
        assert_eq!(ledger.page(other).unwrap(), Page::default());
        ledger.write(other, &[put("a", "theirs"), drop_of("b")]).unwrap();
    }
    assert_eq!(records(&ledger.page(&place()).unwrap()), [("a", "mine")]);
    let here = ledger.places_in("me", &place().scope).unwrap();
    assert_eq!(here, [others[1].clone(), place()]);
    assert_eq!(ledger.places_in("me", "blue").unwrap(), others[2..]);
    for other in &others {
        ledger.write(other, &[drop_of("a")]).unwrap();
    }
    assert_eq!(records(&ledger.page(&place()).unwrap()), [("a", "mine")]);
    assert_eq!(ledger.places("you").unwrap(), []);
    assert_eq!(ledger.places("me").unwrap(), [place()]);
}

#[test]
fn what_other_owners_hold_at_the_same_place_is_reported_to_every_owner() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    let you = LedgerKey::new("you", "toy", "here").with_identity(place().identity);
    let elsewhere = LedgerKey::new("you", "toy", "blue").with_identity(place().identity);
    let before = LedgerKey::new("ghost", "toy", "here").with_identity("boot 0");
    ledger.write(&place(), &[put("a", "1")]).unwrap();
    for (at, key) in [(&you, "b"), (&elsewhere, "c"), (&before, "d")] {
        ledger.write(at, &[put(key, "1")]).unwrap();
    }
    let expected = [("you".to_owned(), "b".to_owned())];
    assert_eq!(ledger.others(&place()).unwrap(), expected);
    assert_eq!(SqlitePages::open(directory.path()).unwrap().others(&place()).unwrap(), expected);
}

#[test]
fn a_place_that_is_gone_is_forgotten_and_no_later_one_of_its_name() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    let reborn = place().with_identity("boot 2");
    ledger.write(&place(), &[put("a", "1"), put("b", "1"), Edit::DesiredState(vec![1])]).unwrap();
    ledger.write(&reborn, &[put("b", "2")]).unwrap();
    ledger.clear(&place()).unwrap();
    assert_eq!(ledger.page(&place()).unwrap().records, []);
    assert_eq!(ledger.page(&place()).unwrap().desired, None);
    assert_eq!(records(&ledger.page(&reborn).unwrap()), [("b", "2")]);
}

#[test]
fn records_of_a_former_scope_of_the_same_name_are_void() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    ledger.write(&place(), &[put("a", "1"), put("b", "1"), Edit::DesiredState(vec![1])]).unwrap();
    let reborn = place().with_identity("boot-2");
    let page = ledger.page(&reborn).unwrap();
    assert_eq!((records(&page), &page.desired), (vec![], &None));
    assert_eq!(page.void, ["a", "b"]);
    ledger.write(&reborn, &[put("a", "2")]).unwrap();
    let page = ledger.page(&reborn).unwrap();
    assert_eq!(records(&page), [("a", "2")]);
    assert_eq!(page.void, ["b"]);
}

#[test]
fn void_records_are_ignored_by_a_pass_and_dropped_with_its_next_write() {
    let directory = TempDir::new().unwrap();
    let ledger = Arc::new(SqliteLedger::open(directory.path()).unwrap());
    // Not even a record that nobody can read any more is in the way.
    ledger.write(&place(), &[put("a", "another format"), put("gone", "{}")]).unwrap();
    let reborn = place().with_identity("boot-2");
    let rig = Rig::<Independent>::checkpoint("a=7@unmarked");
    let mut ledger_page =
        LedgerPage::<Toy<Independent>>::open(Arc::clone(&ledger) as _, reborn.clone()).unwrap();
    assert!(ledger_page.holdings().records.is_empty());
    run(&rig, &mut ledger_page, "b=1").unwrap();
    assert_eq!(rig.world.text(), "a=7@unmarked b=1@unmarked", "a former life owns nothing");
    let page = ledger.page(&reborn).unwrap();
    assert_eq!((page.records.len(), page.void.len()), (1, 0));
    assert_eq!(ledger.places("me").unwrap(), [reborn]);
}

/// A full pass of the rig's source over another page of the ledger.
fn run(
    rig: &Rig<Independent>,
    ledger_page: &mut LedgerPage<Toy<Independent>>,
    rows: &str,
) -> Result<Vec<String>, Error> {
    let source = &rig.source;
    let (ownership, config) = (Ownership::Checkpoint, Config::default());
    let desired = Arc::new(common::toy::desired(rows));
    let order =
        PassInput { source, desired, ownership: &ownership, focus: Focus::All, config: &config };
    let writer = source.writer(&Alone::i_am_the_only_writer()).unwrap();
    let mut observer = Observer::open(source, "here")?;
    let report = block_on(pass(&order, &mut observer, &writer, ledger_page))?;
    Ok(common::rig::lines(&report))
}

#[test]
fn a_missing_ledger_is_empty_and_reading_does_not_make_it() {
    let directory = TempDir::new().unwrap();
    for inside in [directory.path().to_owned(), directory.path().join("deeper")] {
        let pages = SqlitePages::open(&inside).unwrap();
        assert_eq!(pages.page(&place()).unwrap(), Page::default());
        assert_eq!(pages.places("me").unwrap(), []);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn the_directories_that_are_made_are_private() {
    let directory = TempDir::new().unwrap();
    let deep = directory.path().join("var/lib/homeostat");
    SqliteLedger::open(&deep).unwrap();
    for made in deep.ancestors().take(3) {
        let mode = std::fs::metadata(made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", made.display());
    }
}

#[test]
fn reading_does_not_wait_for_a_writer_in_mid_transaction() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    ledger.write(&place(), &[put("a", "1")]).unwrap();
    let other = Connection::open(file(directory.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; DELETE FROM record").unwrap();
    let pages = SqlitePages::open(directory.path()).unwrap();
    assert_eq!(records(&pages.page(&place()).unwrap()), [("a", "1")], "as it was committed");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(records(&pages.page(&place()).unwrap()), []);
}

#[test]
fn many_may_make_the_same_ledger_at_once() {
    let directory = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        for nth in 0..8 {
            let directory = directory.path();
            scope.spawn(move || {
                let ledger = SqliteLedger::open(directory).unwrap();
                ledger.write(&place(), &[put(&format!("k{nth}"), "1")]).unwrap();
            });
        }
    });
    let pages = SqlitePages::open(directory.path()).unwrap();
    assert_eq!(pages.page(&place()).unwrap().records.len(), 8);
}

const WRITER: &str = "HOMEOSTAT_TEST_WRITES_IN";
const PAIRS: usize = 300;

/// Writes pairs of equal records, each pair in one go. Also runs as another process, for the test
/// below.
#[test]
fn a_writer_keeps_its_pairs_together() {
    let own = TempDir::new().unwrap();
    let directory = std::env::var_os(WRITER).map_or(own.path().to_owned(), PathBuf::from);
    let ledger = SqliteLedger::open(&directory).unwrap();
    for nth in 1..=PAIRS {
        let value = nth.to_string();
        ledger.write(&place(), &[put("left", &value), put("right", &value)]).unwrap();
    }
    assert_eq!(newest_pair(&ledger), Some(PAIRS));
}

/// The number of the pair that is recorded, if any.
#[track_caller]
fn newest_pair(pages: &dyn Pages) -> Option<usize> {
    let page = pages.page(&place()).unwrap();
    let found = records(&page);
    if found.is_empty() {
        return None;
    }
    assert_eq!(found.len(), 2, "half a write was seen");
    assert_eq!(found[0].1, found[1].1, "two writes were seen at once");
    found[0].1.parse().ok()
}

#[test]
fn a_reader_sees_whole_writes_only_while_another_process_writes() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut writer = child::start("a_writer_keeps_its_pairs_together", (WRITER, path));
    let (mut newest, mut reads) = (0, 0);
    while newest < PAIRS {
        if let Some(code) = writer.try_wait().unwrap() {
            assert!(code.success(), "the writer failed: {code}");
        }
        // Opened anew each time, as a plan would.
        let pages = SqlitePages::open(directory.path()).unwrap();
        let seen = newest_pair(&pages).unwrap_or(0);
        assert!(seen >= newest, "time went backwards: {seen} after {newest}");
        (newest, reads) = (seen, reads + 1);
    }
    assert!(writer.wait().unwrap().success());
    assert!(reads > 1, "the writer was over before the first read");
}

/// Opens the ledger both ways; both must refuse in the same words.
#[track_caller]
fn refused(directory: &Path) -> Error {
    let before = std::fs::read(file(directory)).unwrap();
    let Err(error) = SqliteLedger::open(directory) else { panic!("opened for writing") };
    let Err(other) = SqlitePages::open(directory) else { panic!("opened for reading") };
    assert_eq!(error.to_string(), other.to_string());
    assert!(error.help().is_some(), "{error} has no way out");
    assert_eq!(error.retry(), Retry::Never);
    assert!(std::fs::read(file(directory)).unwrap() == before, "a refused file was changed");
    error
}

#[test]
fn a_newer_ledger_is_refused_and_left_as_it_is() {
    let directory = TempDir::new().unwrap();
    drop(SqliteLedger::open(directory.path()).unwrap());
    let other = Connection::open(file(directory.path())).unwrap();
    other.pragma_update(None, "user_version", 7).unwrap();
    drop(other);
    let error = refused(directory.path());
    assert!(matches!(error, Error::NewerLedger { found: 7, known: 1, .. }), "{error}");
}

#[test]
fn the_database_of_another_program_is_refused_and_left_as_it_is() {
    for setup in [
        "CREATE TABLE cookies (name TEXT)",
        "PRAGMA application_id = 42; CREATE TABLE cookies (name TEXT)",
        "PRAGMA user_version = 1; CREATE TABLE cookies (name TEXT)",
        "PRAGMA application_id = 42",
    ] {
        let directory = TempDir::new().unwrap();
        let other = Connection::open(file(directory.path())).unwrap();
        other.execute_batch(setup).unwrap();
        drop(other);
        let error = refused(directory.path());
        assert!(matches!(error, Error::DamagedLedger { .. }), "{setup}: {error}");
        assert!(error.to_string().contains("another program"), "{setup}: {error}");
    }
}

#[test]
fn garbage_in_place_of_the_ledger_is_refused_and_left_as_it_is() {
    let directory = TempDir::new().unwrap();
    std::fs::write(file(directory.path()), "not a database, but long enough for one\n".repeat(99))
        .unwrap();
    let error = refused(directory.path());
    assert!(matches!(error, Error::DamagedLedger { .. }), "{error}");
    assert!(error.help().unwrap().contains("move"), "{:?}", error.help());
}

/// A ledger of several pages on disk, closed.
fn filled() -> TempDir {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    let edits: Vec<_> = (0..500).map(|nth| put(&format!("key{nth}"), &"x".repeat(100))).collect();
    ledger.write(&place(), &edits).unwrap();
    drop(ledger);
    directory
}

#[test]
fn a_truncated_ledger_is_never_taken_for_a_smaller_one() {
    let whole = std::fs::read(file(filled().path())).unwrap();
    let (half, last) = (whole.len() / 8192 * 4096, whole.len() - 4096);
    let lengths = [1, 50, 99, 100, 511, 4095, 4096, 4097, 8192, half, last, whole.len() - 1];
    for length in lengths {
        let directory = TempDir::new().unwrap();
        std::fs::write(file(directory.path()), &whole[..length]).unwrap();
        let Err(error) = SqliteLedger::open(directory.path()) else {
            panic!("{length} bytes opened")
        };
        assert!(matches!(error, Error::DamagedLedger { .. }), "{length}: {error}");
        // A reader may notice only when it reads, but then it must.
        let read = SqlitePages::open(directory.path()).and_then(|pages| pages.page(&place()));
        assert!(matches!(read, Err(Error::DamagedLedger { .. })), "{length}: {read:?}");
        let length_now = std::fs::metadata(file(directory.path())).unwrap().len();
        assert_eq!(length_now, length as u64, "it was changed");
    }
}

#[test]
fn an_empty_file_beside_a_full_log_is_no_fresh_ledger() {
    let directory = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    ledger.write(&place(), &[put("a", "1")]).unwrap();
    let log = std::fs::read(directory.path().join("ledger.db-wal")).unwrap();
    let cut = TempDir::new().unwrap();
    std::fs::write(file(cut.path()), "").unwrap();
    std::fs::write(cut.path().join("ledger.db-wal"), &log).unwrap();
    let error = refused(cut.path());
    assert!(matches!(error, Error::DamagedLedger { .. }), "{error}");
    assert!(std::fs::read(cut.path().join("ledger.db-wal")).unwrap() == log, "the log was lost");
}

#[test]
fn a_ledger_with_damage_in_its_middle_is_refused() {
    let directory = filled();
    let mut bytes = std::fs::read(file(directory.path())).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 512].fill(0xa5);
    std::fs::write(file(directory.path()), bytes).unwrap();
    let Err(error) = SqliteLedger::open(directory.path()) else { panic!("opened") };
    assert!(matches!(error, Error::DamagedLedger { .. }), "{error}");
}

#[test]
fn a_file_that_a_crash_left_empty_at_its_making_is_a_fresh_ledger() {
    let directory = TempDir::new().unwrap();
    std::fs::write(file(directory.path()), "").unwrap();
    let pages = SqlitePages::open(directory.path()).unwrap();
    assert_eq!(pages.page(&place()).unwrap(), Page::default());
    assert_eq!(
        std::fs::metadata(file(directory.path())).unwrap().len(),
        0,
        "readers write nothing"
    );
    let ledger = SqliteLedger::open(directory.path()).unwrap();
    ledger.write(&place(), &[put("a", "1")]).unwrap();
    assert_eq!(
        records(&SqlitePages::open(directory.path()).unwrap().page(&place()).unwrap()).len(),
        1
    );
}

#[test]
fn what_is_no_regular_file_is_a_clear_error_and_never_waited_for() {
    let directory = TempDir::new().unwrap();
    let refused = || {
        let written = SqliteLedger::open(directory.path()).map(|_| ());
        let read = SqlitePages::open(directory.path()).map(|_| ());
        for error in [written.unwrap_err(), read.unwrap_err()] {
            assert!(matches!(error, Error::DamagedLedger { .. }), "{error}");
            assert!(error.help().is_some());
        }
        let _ = std::fs::remove_dir(file(directory.path()));
        let _ = std::fs::remove_file(file(directory.path()));
    };
    std::fs::create_dir(file(directory.path())).unwrap();
    refused();
    std::os::unix::fs::symlink("/dev/null", file(directory.path())).unwrap();
    refused();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, file(directory.path()), fifo, mode, 0).unwrap();
    refused();
}

#[test]
fn a_state_directory_that_cannot_be_written_is_a_clear_error() {
    let directory = TempDir::new().unwrap();
    mount::with_small_disk(directory.path(), "256k", || {
        drop(SqliteLedger::open(directory.path()).unwrap());
        let inside = directory.path().join("missing");
        mount::make_read_only(directory.path());
        for path in [directory.path(), &inside] {
            let Err(error) = SqliteLedger::open(path) else { panic!("{} opened", path.display()) };
            assert!(matches!(error, Error::OpenLedger { .. }), "{error}");
            assert!(
                error.help().unwrap().contains("the state directory must be"),
                "{:?}",
                error.help()
            );
        }
        assert_eq!(SqlitePages::open(&inside).unwrap().page(&place()).unwrap(), Page::default());
    });
}

#[test]
fn a_full_disk_is_an_error_before_anything_is_written_to_the_target() {
    let directory = TempDir::new().unwrap();
    mount::with_small_disk(directory.path(), "512k", || {
        let ledger = Arc::new(SqliteLedger::open(directory.path()).unwrap());
        let rig = Rig::<Independent>::checkpoint("k=0@nobody");
        let mut ledger_page = LedgerPage::open(Arc::clone(&ledger) as _, place()).unwrap();
        run(&rig, &mut ledger_page, "a=1").unwrap();
        fill(&directory.path().join("filler"));
        let rows: Vec<_> = (0..2000).map(|nth| format!("a{nth}=1")).collect();
        let more = format!("a=1 k=1 {}", rows.join(" "));
        let report = run(&rig, &mut ledger_page, &more).unwrap();
        assert!(report.contains(&"held k".to_owned()), "{report:?}");
        assert_eq!(report.last().unwrap(), "not converged");
        assert_eq!(rig.world.text(), "a=1@unmarked k=0@nobody");
        std::fs::remove_file(directory.path().join("filler")).unwrap();
        let report = run(&rig, &mut ledger_page, "a=1 k=1").unwrap();
        assert_eq!(report, ["update k", "converged"]);
        assert_eq!(ledger.page(&place()).unwrap().records.len(), 2, "and no trace of the rest");
    });
}

/// Fills the disk to its last byte.
fn fill(path: &Path) {
    use std::io::Write as _;
    let mut filler = std::fs::File::create(path).unwrap();
    while filler.write_all(&[0; 1024]).is_ok() {}
    while filler.write_all(&[0]).is_ok() {}
}
