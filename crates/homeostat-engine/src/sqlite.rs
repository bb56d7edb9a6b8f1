//! The ledger on disk: one `SQLite` file in WAL mode, which others may read while we write.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use crate::error::Error;
use crate::ledger::{Edit, Ledger, Page, Pages, Place};

const FILE: &str = "ledger.db";
const FORMAT: i64 = 1;
/// "hmst" in the header, so that another program's database is not taken for ours.
const APPLICATION: i64 = 0x686d_7374;
/// Writers hold the file for microseconds; a reader that waits longer has a stuck neighbour.
const BUSY: Duration = Duration::from_secs(5);

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
}

/// A ledger that can only be read; a missing file is an empty ledger, and is not created.
pub struct SqlitePages {
    connection: Option<Mutex<Connection>>,
}

impl SqliteLedger {
    /// Opens the ledger in a state directory; makes both if they are missing.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        make_directory(directory).map_err(|error| open_error(&path, error))?;
        let mut connection = Connection::open(&path).map_err(|error| sql_error(&path, error))?;
        prepare(&mut connection, &path)?;
        Ok(SqliteLedger { connection: Mutex::new(connection) })
    }
}

impl SqlitePages {
    /// Opens the ledger in a state directory for reading.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let exists = path.try_exists().map_err(|error| open_error(&path, error))?;
        if !exists {
            return Ok(SqlitePages { connection: None });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(|error| sql_error(&path, error))?;
        let check = || -> Result<i64, rusqlite::Error> {
            connection.busy_timeout(BUSY)?;
            format_of(&connection)
        };
        let format = check().map_err(|error| sql_error(&path, error))?;
        check_format(&connection, &path, format)?;
        let connection = (format != 0).then(|| Mutex::new(connection));
        Ok(SqlitePages { connection })
    }
}

fn make_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn prepare(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let format = settings(connection).map_err(|error| sql_error(path, error))?;
    check_format(connection, path, format)?;
    check_health(connection, path)?;
    if format == 0 {
        create(connection).map_err(|error| sql_error(path, error))?;
    }
    Ok(())
}

fn settings(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.busy_timeout(BUSY)?;
    let format = format_of(connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a commit is on the disk when it returns, as law 8 wants.
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(format)
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

fn check_format(connection: &Connection, path: &Path, format: i64) -> Result<(), Error> {
    let application: i64 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(|error| sql_error(path, error))?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| sql_error(path, error))?;
    let is_fresh = format == 0 && application == 0 && tables == 0;
    if application != APPLICATION && !is_fresh {
        let reason = "it is the database of another program".to_owned();
        return Err(Error::DamagedLedger { path: path.to_owned(), reason });
    }
    if format > FORMAT {
        let path = path.to_owned();
        return Err(Error::NewerLedger { path, found: format, known: FORMAT });
    }
    Ok(())
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

fn locked(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_page(connection: &Connection, place: &Place) -> Result<Page, rusqlite::Error> {
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
    let mut wish = connection.prepare_cached(
        "SELECT prints FROM wish WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND identity = ?4",
    )?;
    let mut rows = wish.query(params![place.owner, place.source, place.scope, place.identity])?;
    page.wish = rows.next()?.map(|row| row.get(0)).transpose()?;
    Ok(page)
}

fn read_places(connection: &Connection, owner: &str) -> Result<Vec<Place>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT source, scope, identity FROM record WHERE owner = ?1 ORDER BY 1, 2, 3",
    )?;
    let places = statement.query_map([owner], |row| {
        let (source, scope, identity) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Place { owner: owner.to_owned(), source, scope, identity })
    })?;
    places.collect()
}

fn write_page(
    connection: &mut Connection,
    place: &Place,
    edits: &[Edit],
) -> Result<(), rusqlite::Error> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for edit in edits {
        write_edit(&transaction, place, edit)?;
    }
    transaction.commit()
}

fn write_edit(connection: &Connection, at: &Place, edit: &Edit) -> Result<(), rusqlite::Error> {
    let sql = match edit {
        Edit::Put { .. } => "INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3, ?5, ?4, ?6)",
        Edit::Drop { .. } => {
            "DELETE FROM record WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND key = ?4"
        }
        Edit::Wish(_) => "INSERT OR REPLACE INTO wish VALUES (?1, ?2, ?3, ?4, ?5)",
    };
    let mut statement = connection.prepare_cached(sql)?;
    match edit {
        Edit::Put { key, record } => {
            statement.execute(params![at.owner, at.source, at.scope, at.identity, key, record])?
        }
        Edit::Drop { key } => statement.execute(params![at.owner, at.source, at.scope, key])?,
        Edit::Wish(prints) => {
            statement.execute(params![at.owner, at.source, at.scope, at.identity, prints])?
        }
    };
    Ok(())
}

impl Pages for SqliteLedger {
    fn page(&self, place: &Place) -> Result<Page, Error> {
        read_page(&locked(&self.connection), place)
            .map_err(|error| Error::ReadLedger(Box::new(error)))
    }

    fn places(&self, owner: &str) -> Result<Vec<Place>, Error> {
        read_places(&locked(&self.connection), owner)
            .map_err(|error| Error::ReadLedger(Box::new(error)))
    }
}

impl Ledger for SqliteLedger {
    fn write(&self, place: &Place, edits: &[Edit]) -> Result<(), Error> {
        write_page(&mut locked(&self.connection), place, edits)
            .map_err(|error| Error::WriteLedger(Box::new(error)))
    }
}

impl Pages for SqlitePages {
    fn page(&self, place: &Place) -> Result<Page, Error> {
        let Some(connection) = &self.connection else { return Ok(Page::default()) };
        read_page(&locked(connection), place).map_err(|error| Error::ReadLedger(Box::new(error)))
    }

    fn places(&self, owner: &str) -> Result<Vec<Place>, Error> {
        let Some(connection) = &self.connection else { return Ok(Vec::new()) };
        read_places(&locked(connection), owner).map_err(|error| Error::ReadLedger(Box::new(error)))
    }
}
