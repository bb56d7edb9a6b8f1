//! Opens a database file of ours: `SQLite` in WAL mode, which others may read while one process writes. A file that is
//! damaged, newer than this version or another program's is an error, never a fresh start.

use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

/// A database is whole pages of this many bytes.
const PAGE: u64 = 4096;
/// Writers hold the file for microseconds; a reader that waits longer has a stuck neighbour.
const BUSY: Duration = Duration::from_secs(5);

/// What distinguishes one kind of file from others.
pub(crate) struct Format {
    /// In the header, so that another program's database is not taken for ours.
    pub(crate) application: i64,
    /// The newest version that is known.
    pub(crate) version: i64,
    pub(crate) schema: &'static str,
}

#[derive(Debug)]
pub(crate) enum OpenError {
    Failed(Box<dyn std::error::Error + Send + Sync>),
    Damaged(String),
    /// A newer version wrote it: its format.
    Newer(i64),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                OpenError::Damaged(error.to_string())
            }
            _ => OpenError::Failed(Box::new(error)),
        }
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        OpenError::Failed(Box::new(error))
    }
}

impl Format {
    /// Opens the file, and makes it if it is missing. Two processes must not make it at the same time.
    pub(crate) fn open(&self, path: &Path) -> Result<Connection, OpenError> {
        check_length(path)?;
        make_private(path)?;
        let mut connection = Connection::open(path)?;
        let is_new = self.check_header(&connection)?;
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if verdict != "ok" {
            return Err(OpenError::Damaged(verdict));
        }
        // Only for a file that is known to be ours: the journal mode is kept in its header.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // FULL: a commit is on the disk when it returns, as law 8 wants.
        connection.pragma_update(None, "synchronous", "FULL")?;
        if is_new {
            let transaction = immediate(&mut connection)?;
            // Another process may have been first.
            if version_of(&transaction)? == 0 {
                transaction.execute_batch(self.schema)?;
                transaction.pragma_update(None, "application_id", self.application)?;
                transaction.pragma_update(None, "user_version", self.version)?;
            }
            transaction.commit()?;
        }
        Ok(connection)
    }

    /// Opens the file for reading. Nothing, if it is missing or has just been made.
    pub(crate) fn open_for_reading(&self, path: &Path) -> Result<Option<Connection>, OpenError> {
        if !path.try_exists()? {
            return Ok(None);
        }
        check_length(path)?;
        let connection = open_for_reading(path)?;
        let (connection, is_new) = match self.check_header(&connection) {
            // A full disk has no room for the index of a log, and there is no log.
            Err(OpenError::Failed(_)) if length(&log_of(path)) == 0 => {
                let connection = open_unchanging(path)?;
                let is_new = self.check_header(&connection)?;
                (connection, is_new)
            }
            is_new => (connection, is_new?),
        };
        Ok((!is_new).then_some(connection))
    }

    /// Checks that the file is ours, at one moment: another process may be making it. Returns whether it is still empty.
    fn check_header(&self, connection: &Connection) -> Result<bool, OpenError> {
        connection.busy_timeout(BUSY)?;
        let moment = connection.unchecked_transaction()?;
        let version = version_of(&moment)?;
        let application: i64 =
            moment.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let tables: i64 =
            moment.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let is_new = version == 0 && application == 0 && tables == 0;
        if application != self.application && !is_new {
            return Err(OpenError::Damaged("it is the database of another program".to_owned()));
        }
        if version > self.version {
            return Err(OpenError::Newer(version));
        }
        Ok(version == 0)
    }
}

/// A transaction that waits for the writer before it, and not in its middle.
pub(crate) fn immediate(connection: &mut Connection) -> Result<Transaction<'_>, rusqlite::Error> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn version_of(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Opened for writing where permitted, because `SQLite` removes its log only then, when the last reader closes. On a
/// read-only disk, a file without a log is read as it is.
fn open_for_reading(path: &Path) -> Result<Connection, rusqlite::Error> {
    let open = |flags| Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    match open(OpenFlags::SQLITE_OPEN_READ_WRITE) {
        Ok(connection) if !connection.is_readonly("main")? => {
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        }
        _ if log_of(path).exists() => open(OpenFlags::SQLITE_OPEN_READ_ONLY),
        _ => open_unchanging(path),
    }
}

/// Opens a file without a log: no process writes it.
fn open_unchanging(path: &Path) -> Result<Connection, rusqlite::Error> {
    let name = path.to_string_lossy();
    let name = name.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// What is read from targets and written to them is private to the owner. `SQLite` gives its log the mode of the file.
fn make_private(path: &Path) -> Result<(), std::io::Error> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push("-wal");
    name.into()
}

/// `SQLite` itself takes a file that lost a part of a page, or all but its log, for a whole one. With a log beside it,
/// a torn page may be what a power cut left, and `SQLite` mends it.
fn check_length(path: &Path) -> Result<(), OpenError> {
    if std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        // Opening a pipe would wait for its other end.
        return Err(OpenError::Damaged("it is no regular file".to_owned()));
    }
    let has_log = length(&log_of(path)) > 0;
    match length(path) {
        0 if has_log => Err(OpenError::Damaged("it is empty, but its log is not".to_owned())),
        length if length % PAGE != 0 && !has_log => {
            Err(OpenError::Damaged("it is cut off".to_owned()))
        }
        _ => Ok(()),
    }
}
