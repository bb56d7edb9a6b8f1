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
    /// The beginning of a line that is not whole yet.
    begun: Vec<u8>,
}

/// Follows the journal of a state directory. One that does not exist yet has nothing to tell.
#[must_use]
pub fn follow(directory: &Path) -> Following {
    Following { path: directory.join("journal"), file: None, begun: Vec::new() }
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
            self.file = None;
            self.begun.clear();
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
        while file.read_until(b'\n', &mut self.begun)? > 0 {
            let Some(line) = self.begun.strip_suffix(b"\n") else { return Ok(()) };
            if let Some(Line::Record(record)) = read(line) {
                records.push(record);
            }
            self.begun.clear();
        }
        Ok(())
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
