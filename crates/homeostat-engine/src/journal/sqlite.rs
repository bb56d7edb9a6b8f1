//! The journal of a state directory: one `SQLite` file, written by one process and read by any.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_core::outcome::Later;
use rusqlite::{Connection, ErrorCode, Row, ffi, params};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::record::{Entry, Record};
use super::{Batch, JournalError, Store};
use crate::database::{Format, OpenError, immediate};

const FORMAT: Format = Format {
    application: 0x686d_736a,
    version: 2,
    schema: "CREATE TABLE record (
        number INTEGER PRIMARY KEY, record TEXT NOT NULL, previous_task TEXT, checksum INTEGER NOT NULL
    ) STRICT;",
};

/// The journal file of a state directory, opened for writing.
pub(super) struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    /// Keeps a second writer out for as long as it is open.
    _lock: File,
}

impl SqliteStore {
    /// Opens or makes the file, and returns what it holds.
    pub(super) fn open(directory: &Path) -> Result<(Self, Vec<Entry>), JournalError> {
        let path = directory.join("journal");
        let lock = lock(directory, &path)?;
        let connection = FORMAT.open(&path).map_err(|error| open_error(&path, error))?;
        let mut entries = Vec::new();
        for_each(&connection, 0, &path, |entry| entries.push(entry))?;
        Ok((SqliteStore { path, connection, _lock: lock }, entries))
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), rusqlite::Error> {
        let transaction = immediate(&mut self.connection)?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO record VALUES (?1, ?2, ?3, ?4)")?;
            for Entry { number, record, previous_task } in &batch.put {
                let text = serde_json::to_string(record)
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
                let sum = checksum(*number, &text, previous_task.as_deref());
                insert.execute(params![number, text, previous_task, sum])?;
            }
            let mut delete = transaction.prepare_cached("DELETE FROM record WHERE number = ?1")?;
            for number in &batch.delete {
                delete.execute([number])?;
            }
        }
        transaction.commit()
    }
}

impl Store for SqliteStore {
    fn write<'a>(&'a mut self, batch: &'a Batch) -> Later<'a, Result<(), JournalError>> {
        Box::pin(async {
            self.commit(batch).map_err(|error| {
                let source = Arc::new(system_error(error));
                JournalError::Write { path: self.path.clone(), source }
            })
        })
    }
}

fn lock(directory: &Path, journal: &Path) -> Result<File, JournalError> {
    let path = directory.join("journal.lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let lock = lock.map_err(|error| failed(&path, error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(JournalError::Busy { path: journal.to_owned() }),
        Err(error) => Err(failed(&path, error.into())),
    }
}

/// Follows a journal from its first record on.
pub struct Following {
    path: PathBuf,
    file: Option<OpenFile>,
    /// Why nothing more can be read.
    failed: Option<JournalError>,
}

struct OpenFile {
    connection: Connection,
    inode: u64,
    /// The number of the last record that was read.
    last: i64,
}

/// Follows the journal of a state directory. One that does not exist yet has no records.
#[must_use]
pub fn follow(directory: &Path) -> Following {
    Following { path: directory.join("journal"), file: None, failed: None }
}

impl Following {
    /// The records that came since the last call. Records before damage come first, and the error with the call after
    /// it.
    pub fn more(&mut self) -> Result<Vec<Record>, JournalError> {
        let mut records = Vec::new();
        if self.failed.is_none() {
            self.failed = self.read_on(&mut records).err();
        }
        match &self.failed {
            Some(error) if records.is_empty() => Err(error.clone()),
            _ => Ok(records),
        }
    }

    fn read_on(&mut self, records: &mut Vec<Record>) -> Result<(), JournalError> {
        let Some(inode) = inode(&self.path).map_err(|error| failed(&self.path, error))? else {
            return Ok(());
        };
        // The former file was moved away.
        self.file.take_if(|file| file.inode != inode);
        if self.file.is_none() {
            let opened = FORMAT.open_for_reading(&self.path);
            let opened = opened.map_err(|error| open_error(&self.path, error))?;
            self.file = opened.map(|connection| OpenFile { connection, inode, last: 0 });
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        for_each(&file.connection, file.last, &self.path, |entry| {
            file.last = entry.number;
            records.push(entry.record);
        })
    }
}

fn inode(path: &Path) -> io::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(file) => Ok(Some(file.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the records after a number, in order, until one is damaged.
fn for_each(
    connection: &Connection,
    after: i64,
    path: &Path,
    mut each: impl FnMut(Entry),
) -> Result<(), JournalError> {
    let unreadable = |error: rusqlite::Error| open_error(path, error.into());
    let mut statement = connection
        .prepare_cached("SELECT * FROM record WHERE number > ?1 ORDER BY number")
        .map_err(|error| damaged(path, error.to_string()))?;
    let mut rows = statement.query([after]).map_err(unreadable)?;
    while let Some(row) = rows.next().map_err(unreadable)? {
        each(entry(row).map_err(|reason| damaged(path, reason))?);
    }
    Ok(())
}

fn entry(row: &Row<'_>) -> Result<Entry, String> {
    let columns = || Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let (number, text, previous_task, sum): (i64, String, Option<String>, u32) =
        columns().map_err(|error: rusqlite::Error| error.to_string())?;
    if checksum(number, &text, previous_task.as_deref()) != sum {
        return Err(format!("the checksum of record {number} does not fit"));
    }
    let record = serde_json::from_str(&text)
        .map_err(|error| format!("record {number} cannot be understood: {error}"))?;
    Ok(Entry { number, record, previous_task })
}

/// `SQLite` has checksums in its log, but not in its pages.
fn checksum(number: i64, text: &str, previous_task: Option<&str>) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&number.to_le_bytes());
    sum.update(text.as_bytes());
    sum.update(previous_task.unwrap_or_default().as_bytes());
    sum.finalize()
}

fn failed(path: &Path, error: io::Error) -> JournalError {
    JournalError::Open { path: path.to_owned(), source: Arc::new(error) }
}

fn damaged(path: &Path, reason: String) -> JournalError {
    JournalError::Damaged { path: path.to_owned(), reason }
}

fn open_error(path: &Path, error: OpenError) -> JournalError {
    match error {
        OpenError::Failed(error) => {
            let error = match error.downcast::<rusqlite::Error>() {
                Ok(error) => system_error(*error),
                Err(error) => error.downcast().map_or_else(io::Error::other, |error| *error),
            };
            failed(path, error)
        }
        OpenError::Damaged(reason) => damaged(path, reason),
        OpenError::Newer(found) => {
            JournalError::Newer { path: path.to_owned(), found, known: FORMAT.version }
        }
    }
}

/// `SQLite` distinguishes a full disk from other failures, but not in the words of the system.
fn system_error(error: rusqlite::Error) -> io::Error {
    let is_full = error.sqlite_error().is_some_and(|error| {
        error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
    });
    if is_full { Errno::NOSPC.into() } else { io::Error::other(error) }
}
