//! Reads a journal that somebody else may be writing.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::record::{Line, Record, read};

/// Follows a journal from its first line on, also across its being made anew.
pub struct Following {
    path: PathBuf,
    file: Option<(BufReader<File>, u64)>,
}

/// Follows the journal of a state directory. One that does not exist yet has nothing to tell.
#[must_use]
pub fn follow(directory: &Path) -> Following {
    Following { path: directory.join("journal"), file: None }
}

impl Following {
    /// The records that came since the last call.
    pub fn more(&mut self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        loop {
            if self.file.is_none() && !self.open()? {
                return Ok(records);
            }
            self.drain(&mut records)?;
            if !self.is_replaced()? {
                return Ok(records);
            }
            // Nothing is added to the old one any more, but something may have been since.
            self.drain(&mut records)?;
            self.file = None;
        }
    }

    fn open(&mut self) -> io::Result<bool> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let inode = file.metadata()?.ino();
        self.file = Some((BufReader::new(file), inode));
        Ok(true)
    }

    fn drain(&mut self, records: &mut Vec<Record>) -> io::Result<()> {
        let Some((file, _)) = &mut self.file else { return Ok(()) };
        let mut line = Vec::new();
        loop {
            line.clear();
            let count = file.read_until(b'\n', &mut line)?;
            let Some(line) = line.strip_suffix(b"\n") else {
                // What is not whole yet is read again: if its writer died, the next one cuts it off.
                return file.seek_relative(-i64::try_from(count).unwrap_or(0));
            };
            if let Some(Line::Record(record)) = read(line) {
                records.push(record);
            }
        }
    }

    /// What was made anew repeats what is needed of the old one: readers see such records again.
    fn is_replaced(&self) -> io::Result<bool> {
        let Some((_, inode)) = &self.file else { return Ok(false) };
        match std::fs::metadata(&self.path) {
            Ok(there) => Ok(there.ino() != *inode),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
