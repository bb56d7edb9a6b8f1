//! The ledger on disk: one `SQLite` file in WAL mode, which others may read while we write.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, params};

use crate::database::{Format, OpenError, immediate};
use crate::error::Error;
use crate::ledger::{Edit, Ledger, LedgerKey, Page, Pages};

const FILE: &str = "ledger.db";

const FORMAT: Format = Format { application: 0x686d_7374, version: 1, schema: SCHEMA };

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
        let opened = make_directory(directory).map_err(OpenError::from).and_then(|()| {
            let _turn = take_turn(directory)?;
            FORMAT.open(&path)
        });
        let connection = opened.map_err(|error| open_error(&path, error))?;
        Ok(SqliteLedger { connection: Mutex::new(connection), path })
    }
}

impl SqlitePages {
    /// Opens the ledger in a state directory for reading.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let connection =
            FORMAT.open_for_reading(&path).map_err(|error| open_error(&path, error))?;
        Ok(SqlitePages { connection: connection.map(Mutex::new), path })
    }
}

fn make_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// `SQLite` does not wait for a neighbour that makes the same file, so we do.
fn take_turn(directory: &Path) -> std::io::Result<std::fs::File> {
    let turn = std::fs::File::open(directory)?;
    rustix::fs::flock(&turn, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(turn)
}

fn open_error(path: &Path, error: OpenError) -> Error {
    let path = path.to_owned();
    match error {
        OpenError::Failed(source) => Error::OpenLedger { path, source },
        OpenError::Damaged(reason) => Error::DamagedLedger { path, reason },
        OpenError::Newer(found) => Error::NewerLedger { path, found, known: FORMAT.version },
    }
}

fn read_error(path: &Path, error: rusqlite::Error) -> Error {
    match open_error(path, error.into()) {
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
    let transaction = immediate(connection)?;
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
    let transaction = immediate(connection)?;
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
