//! The ledger on disk: one `SQLite` file in WAL mode, which others may read while we write.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use rustix::fs::{FlockOperation, flock};

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

/// Where one owner has something in one scope. The sources are found one after the other by the primary key, so that
/// what a thousand other scopes have is not read.
const PLACES_IN: &str = "
    WITH RECURSIVE
    recorded(name) AS (
        SELECT min(source) FROM record WHERE owner = ?1 UNION ALL
        SELECT (SELECT min(source) FROM record WHERE owner = ?1 AND source > name)
        FROM recorded WHERE name IS NOT NULL
    ),
    applied(name) AS (
        SELECT min(source) FROM wish WHERE owner = ?1 UNION ALL
        SELECT (SELECT min(source) FROM wish WHERE owner = ?1 AND source > name)
        FROM applied WHERE name IS NOT NULL
    )
    SELECT source, identity FROM recorded CROSS JOIN record
    WHERE owner = ?1 AND source = name AND scope = ?2
    UNION SELECT source, identity FROM applied CROSS JOIN wish
    WHERE owner = ?1 AND source = name AND scope = ?2 AND length(prints) > 0
    ORDER BY 1, 2";

/// What other owners have at one place. The owners are found one after the other by the primary key.
const OTHERS: &str = "
    WITH RECURSIVE owners(name) AS (
        SELECT min(owner) FROM record UNION ALL
        SELECT (SELECT min(owner) FROM record WHERE owner > name)
        FROM owners WHERE name IS NOT NULL
    )
    SELECT owner, key FROM owners CROSS JOIN record
    WHERE name != ?1 AND owner = name AND source = ?2 AND scope = ?3 AND identity = ?4
    ORDER BY 1, 2";

/// A ledger that can be read and written.
pub struct SqliteLedger {
    connection: Mutex<Connection>,
    path: PathBuf,
    /// Device and inode of the file that was opened.
    file: Option<(u64, u64)>,
    is_offloaded: bool,
}

/// A ledger that can only be read; a missing file is an empty ledger, and is not created.
pub struct SqlitePages(Option<SqliteLedger>);

impl SqliteLedger {
    /// Opens the ledger in a state directory; makes both if they are missing.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let open = || -> Result<Connection, OpenError> {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            check_private(directory)?;
            // `SQLite` does not wait for a neighbour that makes the same file, so we do.
            let turn = File::open(directory)?;
            flock(&turn, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
            FORMAT.open(&path)
        };
        let connection = open().map_err(|error| open_error(&path, error))?;
        let file = identity(&path);
        Ok(SqliteLedger { connection: Mutex::new(connection), path, file, is_offloaded: false })
    }

    /// For a loop that shares its thread with other tasks: they do not wait for the disk.
    #[must_use]
    pub fn offloaded(mut self) -> Self {
        self.is_offloaded = true;
        self
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, Error> {
        query(&self.connection()).map_err(|error| match open_error(&self.path, error.into()) {
            Error::OpenLedger { source, .. } => Error::ReadLedger(source),
            damaged => damaged,
        })
    }

    /// Makes a change durable: all of it, or nothing.
    fn transact(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> Result<(), rusqlite::Error>,
    ) -> Result<(), Error> {
        self.check()?;
        let mut connection = self.connection();
        let done = immediate(&mut connection).and_then(|transaction| {
            change(&transaction)?;
            transaction.commit()
        });
        done.map_err(|error| Error::WriteLedger(Box::new(error)))
    }
}

impl SqlitePages {
    /// Opens the ledger in a state directory for reading.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let connection =
            FORMAT.open_for_reading(&path).map_err(|error| open_error(&path, error))?;
        let connection = connection.map(Mutex::new);
        let file = identity(&path);
        let is_offloaded = false;
        let ledger = |connection| SqliteLedger { connection, path, file, is_offloaded };
        Ok(SqlitePages(connection.map(ledger)))
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Refuses a directory in which others could replace the records: originals are written back from them.
fn check_private(directory: &Path) -> std::io::Result<()> {
    let meta = std::fs::metadata(directory)?;
    let own = rustix::process::geteuid().as_raw();
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    if owner != own {
        let text = format!("{} belongs to user {owner}, not {own}", directory.display());
        return Err(std::io::Error::other(text));
    }
    if mode & 0o022 != 0 {
        let text = format!("other users may write in {} (mode {mode:o})", directory.display());
        return Err(std::io::Error::other(text));
    }
    Ok(())
}

fn open_error(path: &Path, error: OpenError) -> Error {
    let path = path.to_owned();
    match error {
        OpenError::Failed(source) => Error::OpenLedger { path, source },
        OpenError::Damaged(reason) => Error::DamagedLedger { path, reason },
        OpenError::Newer(found) => Error::NewerLedger { path, found, known: FORMAT.version },
    }
}

impl Pages for SqliteLedger {
    fn page(&self, at: &LedgerKey) -> Result<Page, Error> {
        self.read(|connection| {
            let mut page = Page::default();
            let mut records = connection.prepare_cached(
                "SELECT key, identity, record FROM record
                 WHERE owner = ?1 AND source = ?2 AND scope = ?3",
            )?;
            let mut rows = records.query(params![at.owner, at.source, at.scope])?;
            while let Some(row) = rows.next()? {
                let (key, identity): (String, String) = (row.get(0)?, row.get(1)?);
                if identity == at.identity {
                    page.records.push((key, row.get(2)?));
                } else {
                    page.void.push(key);
                }
            }
            let mut desired = connection.prepare_cached(
                "SELECT prints FROM wish
                 WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND identity = ?4",
            )?;
            let at = params![at.owner, at.source, at.scope, at.identity];
            page.desired = desired.query_row(at, |row| row.get(0)).optional()?;
            Ok(page)
        })
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT source, scope, identity FROM record WHERE owner = ?1
                 UNION SELECT source, scope, identity FROM wish
                 WHERE owner = ?1 AND length(prints) > 0 ORDER BY 1, 2, 3",
            )?;
            let keys = statement.query_map([owner], |row| {
                let (source, scope, identity) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(LedgerKey { owner: owner.to_owned(), source, scope, identity })
            })?;
            keys.collect()
        })
    }

    fn places_in(&self, owner: &str, scope: &str) -> Result<Vec<LedgerKey>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(PLACES_IN)?;
            let keys = statement.query_map([owner, scope], |row| {
                let (source, identity) = (row.get(0)?, row.get(1)?);
                let (owner, scope) = (owner.to_owned(), scope.to_owned());
                Ok(LedgerKey { owner, source, scope, identity })
            })?;
            keys.collect()
        })
    }

    fn others(&self, at: &LedgerKey) -> Result<Vec<(String, String)>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(OTHERS)?;
            let at = params![at.owner, at.source, at.scope, at.identity];
            statement.query_map(at, |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }
}

impl Ledger for SqliteLedger {
    fn check(&self) -> Result<(), Error> {
        let is_there = identity(&self.path) == self.file;
        if is_there { Ok(()) } else { Err(Error::LostLedger { path: self.path.clone() }) }
    }

    fn is_offloaded(&self) -> bool {
        self.is_offloaded
    }

    fn write(&self, at: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        let LedgerKey { owner, source, scope, identity } = at;
        self.transact(|transaction| {
            for edit in edits {
                match edit {
                    Edit::Put { key, record } => transaction
                        .prepare_cached(
                            "INSERT OR REPLACE INTO record VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                        )?
                        .execute(params![owner, source, scope, key, identity, record])?,
                    Edit::Drop { key } => transaction
                        .prepare_cached(
                            "DELETE FROM record
                             WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND key = ?4",
                        )?
                        .execute(params![owner, source, scope, key])?,
                    Edit::DesiredState(prints) => transaction
                        .prepare_cached("INSERT OR REPLACE INTO wish VALUES (?1, ?2, ?3, ?4, ?5)")?
                        .execute(params![owner, source, scope, identity, prints])?,
                };
            }
            Ok(())
        })
    }

    fn clear(&self, at: &LedgerKey) -> Result<(), Error> {
        self.transact(|transaction| {
            for table in ["record", "wish"] {
                let sql = format!(
                    "DELETE FROM {table}
                     WHERE owner = ?1 AND source = ?2 AND scope = ?3 AND identity = ?4"
                );
                transaction.execute(&sql, params![at.owner, at.source, at.scope, at.identity])?;
            }
            Ok(())
        })
    }
}

impl Pages for SqlitePages {
    fn page(&self, at: &LedgerKey) -> Result<Page, Error> {
        self.0.as_ref().map_or(Ok(Page::default()), |ledger| ledger.page(at))
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        self.0.as_ref().map_or(Ok(Vec::new()), |ledger| ledger.places(owner))
    }

    fn places_in(&self, owner: &str, scope: &str) -> Result<Vec<LedgerKey>, Error> {
        self.0.as_ref().map_or(Ok(Vec::new()), |ledger| ledger.places_in(owner, scope))
    }

    fn others(&self, at: &LedgerKey) -> Result<Vec<(String, String)>, Error> {
        self.0.as_ref().map_or(Ok(Vec::new()), |ledger| ledger.others(at))
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn what_other_scopes_have_is_not_read_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(directory.path()).unwrap();
        let mut made = 0;
        let mut fill = |scopes: usize| {
            ledger
                .transact(|transaction| {
                    for nth in made..scopes {
                        for (owner, source) in [("me", "a"), ("me", "b"), ("you", "a")] {
                            let scope = format!("s{nth}");
                            let at = params![owner, source, scope];
                            let record = "INSERT INTO record VALUES (?1, ?2, ?3, 'k', 'i', 'r')";
                            transaction.execute(record, at)?;
                            transaction
                                .execute("INSERT INTO wish VALUES (?1, ?2, ?3, 'i', x'00')", at)?;
                        }
                    }
                    Ok(())
                })
                .unwrap();
            made = scopes;
            let connection = ledger.connection();
            let steps = |sql: &str, params: &[&str], rows: usize| {
                let mut statement = connection.prepare(sql).unwrap();
                let params = rusqlite::params_from_iter(params);
                let found = statement.query_map(params, |_| Ok(())).unwrap().count();
                assert_eq!(found, rows, "{sql}");
                statement.get_status(StatementStatus::VmStep)
            };
            [steps(PLACES_IN, &["me", "s3"], 2), steps(OTHERS, &["me", "a", "s3", "i"], 1)]
        };
        assert_eq!(fill(5), fill(500));
    }

    #[test]
    fn a_commit_is_on_the_disk_when_it_returns_and_readers_do_not_wait() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::open(directory.path()).unwrap();
        let connection = ledger.connection();
        let full: i64 =
            connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap();
        let mode: String =
            connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!((full, mode.as_str()), (2, "wal"));
    }
}
