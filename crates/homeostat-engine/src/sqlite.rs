//! The ledger on disk: one `SQLite` file in WAL mode, which others may read while we write.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::error::Error;
use crate::ledger::{Edit, Ledger, LedgerKey, Page, Pages};

const FILE: &str = "ledger.db";
const FORMAT: i64 = 1;
/// "hmst" in the header, so that another program's database is not taken for ours.
const APPLICATION: i64 = 0x686d_7374;
/// A database is whole pages of this many bytes.
const PAGE: u64 = 4096;
/// Writers hold the file for microseconds; a reader that waits longer has a stuck neighbour.
const BUSY: Duration = Duration::from_secs(5);

/// The table `wish` holds the fingerprints of the last applied desired state.
const SCHEMA: &str = "
    CREATE TABLE record (
        owner TEXT NOT NULL, source TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL,
        identity TEXT NOT NULL, record TEXT NOT NULL,
        PRIMARY KEY (owner, source, scope, key)
    ) WITHOUT ROWID, STRICT;
    CREATE TABLE wish (
        owner TEXT NOT NULL, source TEXT NOT NULL, scope TEXT NOT NULL,
        identity TEXT NOT NULL, prints BLOB NOT NULL,
        PRIMARY KEY (owner, source, scope)
    ) WITHOUT ROWID, STRICT;
";

/// A ledger that can be read and written.
pub struct SqliteLedger {
    connection: Mutex<Connection>,
    path: PathBuf,
}

/// A ledger that can only be read; a missing file is an empty ledger, and is not created.
pub struct SqlitePages {
    connection: Option<Mutex<Connection>>,
    path: PathBuf,
}

impl SqliteLedger {
    /// Opens the ledger in a state directory; makes both if they are missing.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        make_directory(directory).map_err(|error| open_error(&path, error))?;
        let _turn = take_turn(directory).map_err(|error| open_error(&path, error))?;
        check_length(&path)?;
        let mut connection = Connection::open(&path).map_err(|error| sql_error(&path, error))?;
        prepare(&mut connection, &path)?;
        Ok(SqliteLedger { connection: Mutex::new(connection), path })
    }
}

impl SqlitePages {
    /// Opens the ledger in a state directory for reading.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let exists = path.try_exists().map_err(|error| open_error(&path, error))?;
        if !exists {
            return Ok(SqlitePages { connection: None, path });
        }
        check_length(&path)?;
        let connection = open_for_reading(&path).map_err(|error| sql_error(&path, error))?;
        let header = Header::read(&connection).map_err(|error| sql_error(&path, error))?;
        header.check(&path)?;
        let connection = (header.format != 0).then(|| Mutex::new(connection));
        Ok(SqlitePages { connection, path })
    }
}

/// Who may write the file opens it so, although nothing is written: only then does the store take its
/// log away again when the last reader goes.
fn open_for_reading(path: &Path) -> Result<Connection, rusqlite::Error> {
    let open = |flags| Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    match open(OpenFlags::SQLITE_OPEN_READ_WRITE) {
        Ok(connection) if !connection.is_readonly("main")? => {
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        }
        _ => open(OpenFlags::SQLITE_OPEN_READ_ONLY),
    }
}

/// The store itself takes a file that lost a part of a page, or all but its log, for a whole one.
/// With a log beside it, a torn page may be what a power cut left, and the store mends it.
fn check_length(path: &Path) -> Result<(), Error> {
    if std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        // Opening a pipe would wait for its other end.
        let reason = "it is no regular file".to_owned();
        return Err(Error::DamagedLedger { path: path.to_owned(), reason });
    }
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let has_log = length(&path.with_extension("db-wal")) > 0;
    let reason = match length(path) {
        0 if has_log => "it is empty, but its log is not",
        length if length % PAGE != 0 && !has_log => "it is cut off",
        _ => return Ok(()),
    };
    Err(Error::DamagedLedger { path: path.to_owned(), reason: reason.to_owned() })
}

fn make_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// The store does not wait for a neighbour that makes the same file, so we do.
fn take_turn(directory: &Path) -> std::io::Result<std::fs::File> {
    let turn = std::fs::File::open(directory)?;
    rustix::fs::flock(&turn, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(turn)
}

fn prepare(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let header = Header::read(connection).map_err(|error| sql_error(path, error))?;
    header.check(path)?;
    check_health(connection, path)?;
    settings(connection).map_err(|error| sql_error(path, error))?;
    if header.format == 0 {
        create(connection).map_err(|error| sql_error(path, error))?;
    }
    Ok(())
}

/// Only for a file that is known to be ours: the journal mode is kept in its header.
fn settings(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a commit is on the disk when it returns, as law 8 wants.
    connection.pragma_update(None, "synchronous", "FULL")
}

fn create(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have been first.
    if format_of(&transaction)? == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()
}

fn format_of(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// What tells our file from others.
struct Header {
    format: i64,
    application: i64,
    tables: i64,
}

impl Header {
    /// Reads all of it at one moment: another process may be making the file.
    fn read(connection: &Connection) -> Result<Self, rusqlite::Error> {
        connection.busy_timeout(BUSY)?;
        let moment = connection.unchecked_transaction()?;
        let count = "SELECT count(*) FROM sqlite_schema";
        Ok(Header {
            format: format_of(&moment)?,
            application: moment.pragma_query_value(None, "application_id", |row| row.get(0))?,
            tables: moment.query_row(count, [], |row| row.get(0))?,
        })
    }

    fn check(&self, path: &Path) -> Result<(), Error> {
        let is_fresh = self.format == 0 && self.application == 0 && self.tables == 0;
        if self.application != APPLICATION && !is_fresh {
            let reason = "it is the database of another program".to_owned();
            return Err(Error::DamagedLedger { path: path.to_owned(), reason });
        }
        if self.format > FORMAT {
            let (path, found) = (path.to_owned(), self.format);
            return Err(Error::NewerLedger { path, found, known: FORMAT });
        }
        Ok(())
    }
}

fn check_health(connection: &Connection, path: &Path) -> Result<(), Error> {
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| sql_error(path, error))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(Error::DamagedLedger { path: path.to_owned(), reason: verdict })
}

fn open_error(path: &Path, error: std::io::Error) -> Error {
    Error::OpenLedger { path: path.to_owned(), source: Box::new(error) }
}

fn sql_error(path: &Path, error: rusqlite::Error) -> Error {
    let path: PathBuf = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Error::DamagedLedger { path, reason: error.to_string() }
        }
        _ => Error::OpenLedger { path, source: Box::new(error) },
    }
}

fn read_error(path: &Path, error: rusqlite::Error) -> Error {
    match sql_error(path, error) {
        Error::OpenLedger { source, .. } => Error::ReadLedger(source),
        damaged => damaged,
    }
}

fn locked(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_page(connection: &Connection, place: &LedgerKey) -> Result<Page, rusqlite::Error> {
    let mut page = Page::default();
    let at = params![place.owner, place.source, place.scope];
    let mut records = connection.prepare_cached(
        "SELECT key, identity, record FROM record WHERE owner = ?1 AND source = ?2 AND scope = ?3",
    )?;
    let mut rows = records.query(at)?;
    while let Some(row) = rows.next()? {
        let (key, identity): (String, String) = (row.get(0)?, row.get(1)?);
        if identity == place.identity {
            page.records.push((key, row.get(2)?));
        } else {
            page.void.push(key);
        }
    }
    let mut desired = connection.prepare_cached(
        "SELECT prints FROM wish WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND identity = ?4",
    )?;
    let mut rows =
        desired.query(params![place.owner, place.source, place.scope, place.identity])?;
    page.desired = rows.next()?.map(|row| row.get(0)).transpose()?;
    Ok(page)
}

fn read_places(connection: &Connection, owner: &str) -> Result<Vec<LedgerKey>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT source, scope, identity FROM record WHERE owner = ?1
         UNION SELECT source, scope, identity FROM wish WHERE owner = ?1 AND length(prints) > 0
         ORDER BY 1, 2, 3",
    )?;
    let places = statement.query_map([owner], |row| {
        let (source, scope, identity) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(LedgerKey { owner: owner.to_owned(), source, scope, identity })
    })?;
    places.collect()
}

fn read_others(
    connection: &Connection,
    place: &LedgerKey,
) -> Result<Vec<(String, String)>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT owner, key FROM record WHERE owner != ?1 AND source = ?2 AND scope = ?3
         AND identity = ?4 ORDER BY 1, 2",
    )?;
    let at = params![place.owner, place.source, place.scope, place.identity];
    statement.query_map(at, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn clear_place(connection: &mut Connection, place: &LedgerKey) -> Result<(), rusqlite::Error> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for table in ["record", "wish"] {
        let sql = format!(
            "DELETE FROM {table} WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND identity = ?4"
        );
        let at = params![place.owner, place.source, place.scope, place.identity];
        transaction.execute(&sql, at)?;
    }
    transaction.commit()
}

fn write_page(
    connection: &mut Connection,
    place: &LedgerKey,
    edits: &[Edit],
) -> Result<(), rusqlite::Error> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for edit in edits {
        write_edit(&transaction, place, edit)?;
    }
    transaction.commit()
}

fn write_edit(connection: &Connection, at: &LedgerKey, edit: &Edit) -> Result<(), rusqlite::Error> {
    let sql = match edit {
        Edit::Put { .. } => "INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3, ?5, ?4, ?6)",
        Edit::Drop { .. } => {
            "DELETE FROM record WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND key = ?4"
        }
        Edit::DesiredState(_) => "INSERT OR REPLACE INTO wish VALUES (?1, ?2, ?3, ?4, ?5)",
    };
    let mut statement = connection.prepare_cached(sql)?;
    match edit {
        Edit::Put { key, record } => {
            statement.execute(params![at.owner, at.source, at.scope, at.identity, key, record])?
        }
        Edit::Drop { key } => statement.execute(params![at.owner, at.source, at.scope, key])?,
        Edit::DesiredState(prints) => {
            statement.execute(params![at.owner, at.source, at.scope, at.identity, prints])?
        }
    };
    Ok(())
}

impl Pages for SqliteLedger {
    fn page(&self, place: &LedgerKey) -> Result<Page, Error> {
        read_page(&locked(&self.connection), place).map_err(|error| read_error(&self.path, error))
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        read_places(&locked(&self.connection), owner).map_err(|error| read_error(&self.path, error))
    }

    fn others(&self, place: &LedgerKey) -> Result<Vec<(String, String)>, Error> {
        read_others(&locked(&self.connection), place).map_err(|error| read_error(&self.path, error))
    }
}

impl Ledger for SqliteLedger {
    fn write(&self, place: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        write_page(&mut locked(&self.connection), place, edits)
            .map_err(|error| Error::WriteLedger(Box::new(error)))
    }

    fn clear(&self, place: &LedgerKey) -> Result<(), Error> {
        clear_place(&mut locked(&self.connection), place)
            .map_err(|error| Error::WriteLedger(Box::new(error)))
    }
}

impl Pages for SqlitePages {
    fn page(&self, place: &LedgerKey) -> Result<Page, Error> {
        let Some(connection) = &self.connection else { return Ok(Page::default()) };
        read_page(&locked(connection), place).map_err(|error| read_error(&self.path, error))
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        let Some(connection) = &self.connection else { return Ok(Vec::new()) };
        read_places(&locked(connection), owner).map_err(|error| read_error(&self.path, error))
    }

    fn others(&self, place: &LedgerKey) -> Result<Vec<(String, String)>, Error> {
        let Some(connection) = &self.connection else { return Ok(Vec::new()) };
        read_others(&locked(connection), place).map_err(|error| read_error(&self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_on_the_disk_when_it_returns_and_readers_do_not_wait() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(directory.path()).unwrap();
        let connection = locked(&ledger.connection);
        let full: i64 =
            connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        let mode: String =
            connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!((full, mode.as_str()), (2, "wal"));
    }
}
