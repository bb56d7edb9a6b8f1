//! The file of a journal: read whole at the start, then only appended to, now and then made anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use super::record::{Line, Opening, Record, read, write};
use super::steps::Steps;
use super::{JournalError, Millis};

/// The format that this version writes.
const FORMAT: u32 = 1;
/// A file smaller than this is not worth making anew.
const SMALL: u64 = 1 << 20;

/// An open journal file.
pub(super) struct JournalFile {
    path: PathBuf,
    file: File,
    /// Keeps a second writer out.
    _turn: File,
    length: u64,
    /// Its length when it was last made anew.
    compacted: u64,
    epoch: u32,
}

/// What was found.
pub(super) struct Found {
    pub(super) file: JournalFile,
    pub(super) steps: Steps,
    /// So many bytes at the end were no whole line, and were cut off.
    pub(super) cut: u64,
}

impl JournalFile {
    /// Opens or makes it, cuts a torn tail, and begins a new epoch.
    pub(super) fn open(directory: &Path) -> Result<Found, JournalError> {
        let path = directory.join("journal");
        let turn = own_turn(directory)?;
        let wrap = |source| JournalError::Open { path: path.clone(), source: Arc::new(source) };
        let mut file = appending().create(true).open(&path).map_err(wrap)?;
        let bytes = fs::read(&path).map_err(wrap)?;
        let Replayed { steps, epoch, whole } = replay(&path, &bytes)?;
        let cut = bytes.len().saturating_sub(whole) as u64;
        if cut > 0 {
            file.set_len(whole as u64).map_err(wrap)?;
            file.seek(SeekFrom::End(0)).map_err(wrap)?;
        }
        let epoch = epoch.map_or(1, |epoch| epoch.saturating_add(1));
        let length = whole as u64;
        let mut file =
            JournalFile { path: path.clone(), file, _turn: turn, length, compacted: length, epoch };
        file.append(&[Line::Opening(Opening { journal: FORMAT, epoch })]).map_err(wrap)?;
        make_durable(directory).map_err(wrap)?;
        Ok(Found { file, steps, cut })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Appends lines; durable when it returns.
    pub(super) fn append(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            write(line, &mut bytes)?;
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes it anew if that would make it much smaller. Where that cannot be done, the file stays as it is
    /// and is tried again when it has grown as much again.
    pub(super) fn compact(&mut self, steps: &mut Steps, now: Millis) -> io::Result<bool> {
        if self.length < SMALL || self.length / 2 < self.compacted {
            return Ok(false);
        }
        steps.expire(now);
        let beside = self.path.with_extension("new");
        let Ok((file, length)) = self.write_beside(&beside, &steps.needed(now)) else {
            // What a full disk has no room for must not fill it.
            let _ = fs::remove_file(&beside);
            self.compacted = self.length;
            return Ok(false);
        };
        (self.file, self.length, self.compacted) = (file, length, length);
        if let Some(directory) = self.path.parent() {
            make_durable(directory)?;
        }
        Ok(true)
    }

    /// Writes a new file beside the old one and, once it is durable, puts it in its place.
    fn write_beside(&self, beside: &Path, records: &[Record]) -> io::Result<(File, u64)> {
        let mut bytes = Vec::new();
        write(&Line::Opening(Opening { journal: FORMAT, epoch: self.epoch }), &mut bytes)?;
        for record in records {
            write(&Line::Record(record.clone()), &mut bytes)?;
        }
        // A crash may have left one, and nobody knows where a link leads to.
        if fs::symlink_metadata(beside).is_ok() {
            fs::remove_file(beside)?;
        }
        let mut file = appending().create_new(true).open(beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(beside, &self.path)?;
        Ok((file, bytes.len() as u64))
    }
}

/// What was sent to a target is nobody else's business.
fn appending() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    options
}

/// Held for as long as the file is open; a lock on the file itself would go when it is made anew.
fn own_turn(directory: &Path) -> Result<File, JournalError> {
    let path = directory.join("journal.lock");
    let wrap = |source| JournalError::Open { path: path.clone(), source: Arc::new(source) };
    let turn = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let turn = turn.map_err(wrap)?;
    match flock(&turn, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(turn),
        Err(_) => Err(JournalError::Busy { path: directory.join("journal") }),
    }
}

fn make_durable(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

struct Replayed {
    steps: Steps,
    epoch: Option<u32>,
    /// How many bytes are whole lines.
    whole: usize,
}

/// Adds up all lines. What is broken at the end was being written when the power went; what is
/// broken before a sound line is damage.
fn replay(path: &Path, bytes: &[u8]) -> Result<Replayed, JournalError> {
    let mut replayed = Replayed { steps: Steps::default(), epoch: None, whole: 0 };
    let damaged =
        |line: usize, reason: String| JournalError::Damaged { path: path.to_owned(), line, reason };
    for (at, piece) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = piece.strip_suffix(b"\n").and_then(read);
        let Some(line) = line else {
            let rest = bytes.get(replayed.whole + piece.len()..).unwrap_or_default();
            if rest.split(|byte| *byte == b'\n').any(|piece| read(piece).is_some()) {
                return Err(damaged(at + 1, "its checksum does not fit".to_owned()));
            }
            return Ok(replayed);
        };
        match line {
            Line::Opening(opening) if opening.journal > FORMAT => {
                let (found, known) = (opening.journal, FORMAT);
                return Err(JournalError::Newer { path: path.to_owned(), found, known });
            }
            Line::Opening(opening) => replayed.epoch = Some(opening.epoch),
            Line::Record(record) => {
                let added = replayed.steps.add(&record);
                added.map_err(|illegal| damaged(at + 1, illegal.to_string()))?;
            }
        }
        replayed.whole += piece.len();
    }
    Ok(replayed)
}
