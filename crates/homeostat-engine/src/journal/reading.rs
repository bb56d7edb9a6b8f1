//! Reads a journal that somebody else may be writing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::JournalError;
use super::line::{BROKEN, FOREIGN, Line, may_begin, read};
use super::record::{Fact, Record, StepId};

/// Follows a journal from its first line on, also across its being made anew.
pub struct Following {
    path: PathBuf,
    file: Option<Reading>,
    /// Why nothing more can be told.
    failed: Option<JournalError>,
    told: Told,
}

/// What was told already: a journal that is made anew repeats what is needed of the old one.
#[derive(Default)]
struct Told {
    newest: Option<StepId>,
    /// The steps without an end, and how far they had come.
    open: BTreeMap<StepId, Stage>,
}

/// How far a step has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Begun,
    Dispatched,
    Ended,
}

impl Told {
    /// Whether a record is news; from then on it is not.
    fn is_news(&mut self, Record { id, fact, .. }: &Record) -> bool {
        let stage = match fact {
            Fact::Intent(_) => Stage::Begun,
            Fact::Dispatched { .. } => Stage::Dispatched,
            Fact::Ended(_) => Stage::Ended,
        };
        let before = self.open.get(id).copied();
        let is_news = match before {
            Some(before) => before < stage,
            None => self.newest.is_none_or(|newest| newest < *id),
        };
        if is_news && stage == Stage::Ended {
            self.open.remove(id);
        } else if is_news {
            self.open.insert(*id, stage);
        }
        self.newest = self.newest.max(Some(*id));
        is_news
    }
}

/// A file, and how far it was read.
struct Reading {
    lines: BufReader<File>,
    inode: u64,
    /// Where the next line begins, and its number.
    at: u64,
    number: usize,
}

/// Follows the journal of a state directory. One that does not exist yet has nothing to tell.
#[must_use]
pub fn follow(directory: &Path) -> Following {
    Following { path: directory.join("journal"), file: None, failed: None, told: Told::default() }
}

impl Following {
    /// The records that came since the last call. What can be read before damage or a newer format is told
    /// first, and the error by the call after it.
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
        loop {
            if self.file.is_none() && !self.open().map_err(|error| self.unreadable(error))? {
                return Ok(());
            }
            self.drain(records)?;
            if !self.is_replaced().map_err(|error| self.unreadable(error))? {
                return Ok(());
            }
            // Nothing is added to the old one any more, but something may have been since.
            self.drain(records)?;
            self.file = None;
        }
    }

    fn unreadable(&self, error: io::Error) -> JournalError {
        JournalError::Open { path: self.path.clone(), source: Arc::new(error) }
    }

    fn open(&mut self) -> io::Result<bool> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let inode = file.metadata()?.ino();
        self.file = Some(Reading { lines: BufReader::new(file), inode, at: 0, number: 1 });
        Ok(true)
    }

    /// Reads whole lines. One that is not whole is read again the next time: if its writer died, the next
    /// one cuts it off. Unless something sound follows it: then it is damage.
    fn drain(&mut self, records: &mut Vec<Record>) -> Result<(), JournalError> {
        let wrap =
            |source| JournalError::Open { path: self.path.clone(), source: Arc::new(source) };
        let damaged = |line: usize, reason: &str| {
            let (path, reason) = (self.path.clone(), reason.to_owned());
            JournalError::Damaged { path, line, reason }
        };
        let Some(reading) = &mut self.file else { return Ok(()) };
        let mut line = Vec::new();
        let mut broken = None;
        while next(&mut reading.lines, &mut line).map_err(wrap)? {
            let says = read(&line);
            if reading.number == 1 && broken.is_none() && !may_begin(&line, says.as_ref()) {
                return Err(damaged(1, FOREIGN));
            }
            match (says, broken) {
                (None, _) => broken = broken.or(Some(reading.number)),
                (Some(_), Some(line)) => return Err(damaged(line, BROKEN)),
                (Some(Line::Opening(opening)), None) => _ = opening.epoch(&self.path)?,
                (Some(Line::Record(record)), None) => {
                    let record = Record::try_from(record).ok();
                    records.extend(record.filter(|record| self.told.is_news(record)));
                }
            }
            if broken.is_none() {
                reading.at += line.len() as u64;
                reading.number += 1;
            }
        }
        reading.lines.seek(SeekFrom::Start(reading.at)).map_err(wrap).map(|_| ())
    }

    fn is_replaced(&self) -> io::Result<bool> {
        let Some(Reading { inode, .. }) = &self.file else { return Ok(false) };
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok(there.ino() != *inode),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Reads the next line, whole or not; false at the end.
fn next(lines: &mut BufReader<File>, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(lines.read_until(b'\n', line)? > 0)
}
