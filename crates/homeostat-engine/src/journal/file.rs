//! The file of a journal: read whole at the start, then only appended to, now and then made anew.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::line::{BROKEN, FOREIGN, FORMAT, Line, Opening, may_begin, read, write};
use super::steps::{Needed, Steps};
use super::{JournalError, Millis};

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
    pub(super) fn open(directory: &Path, now: Millis) -> Result<Found, JournalError> {
        let path = directory.join("journal");
        let turn = own_turn(directory)?;
        let wrap = |source| JournalError::Open { path: path.clone(), source: Arc::new(source) };
        let file = appending().create(true).open(&path).map_err(wrap)?;
        let Replayed { steps, epoch, whole } = replay(&path, &file)?;
        let cut = file.metadata().map_err(wrap)?.len().saturating_sub(whole);
        if cut > 0 {
            file.set_len(whole).map_err(wrap)?;
        }
        let epoch = epoch.map_or(1, |epoch| epoch.saturating_add(1));
        // Many short lives together outgrow what is needed as one long one does.
        let compacted = if whole < SMALL { whole } else { steps.needed_length(now) };
        let mut file =
            JournalFile { path: path.clone(), file, _turn: turn, length: whole, compacted, epoch };
        let opening = file.opening().map_err(wrap)?;
        file.append(&opening).map_err(wrap)?;
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
    pub(super) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Whether it would be much smaller, made anew.
    pub(super) fn is_outgrown(&self) -> bool {
        self.length >= SMALL && self.length / 2 >= self.compacted
    }

    /// Makes it anew. Where that cannot be done, the file stays as it is and is tried again when it has
    /// grown as much again. A failure may have put it half in place: nothing may be written to it then.
    pub(super) fn renew(&mut self, needed: &Needed) -> io::Result<Renewed> {
        let beside = self.path.with_extension("new");
        let (file, length) = match self.write_beside(&beside, needed) {
            Ok(written) => written,
            Err(error) => {
                // What a full disk has no room for must not fill it.
                let _ = fs::remove_file(&beside);
                self.compacted = self.length;
                return Ok(Renewed::No(error));
            }
        };
        (self.file, self.length, self.compacted) = (file, length, length);
        if let Some(directory) = self.path.parent() {
            make_durable(directory)?;
        }
        Ok(Renewed::Yes)
    }

    /// Writes a new file beside the old one and, once it is durable, puts it in its place.
    fn write_beside(&self, beside: &Path, needed: &Needed) -> io::Result<(File, u64)> {
        let mut bytes = self.opening()?;
        bytes.extend_from_slice(&needed.lines);
        // What a crash left there may be anything, a link too.
        if fs::symlink_metadata(beside).is_ok() {
            fs::remove_file(beside)?;
        }
        let mut file = appending().create_new(true).open(beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(beside, &self.path)?;
        Ok((file, bytes.len() as u64))
    }

    /// The line that an opening begins with.
    fn opening(&self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        write(&Opening { journal: FORMAT, epoch: self.epoch }, &mut line)?;
        Ok(line)
    }
}

/// Whether a file was made anew.
pub(super) enum Renewed {
    Yes,
    No(io::Error),
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
        Err(Errno::WOULDBLOCK) => Err(JournalError::Busy { path: directory.join("journal") }),
        Err(error) => Err(wrap(error.into())),
    }
}

fn make_durable(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

struct Replayed {
    steps: Steps,
    epoch: Option<u32>,
    /// How many bytes are whole lines.
    whole: u64,
}

/// Adds up all lines. What is broken at the end was being written when the power went; what is
/// broken before a sound line is damage.
fn replay(path: &Path, file: &File) -> Result<Replayed, JournalError> {
    let wrap = |source| JournalError::Open { path: path.to_owned(), source: Arc::new(source) };
    let damaged =
        |line: usize, reason: String| JournalError::Damaged { path: path.to_owned(), line, reason };
    let mut replayed = Replayed { steps: Steps::default(), epoch: None, whole: 0 };
    let (mut lines, mut line, mut broken) =
        (BufReader::with_capacity(1 << 16, file), Vec::new(), None);
    for number in 1.. {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(wrap)? == 0 {
            break;
        }
        let says = read(&line);
        if number == 1 && !may_begin(&line, says.as_ref()) {
            return Err(damaged(number, FOREIGN.to_owned()));
        }
        match (says, broken) {
            (None, _) => broken = broken.or(Some(number)),
            (Some(_), Some(number)) => return Err(damaged(number, BROKEN.to_owned())),
            (Some(Line::Opening(opening)), _) => replayed.epoch = Some(opening.epoch(path)?),
            (Some(Line::Record(record)), _) => {
                let added = replayed.steps.add(&record, &line);
                added.map_err(|illegal| damaged(number, illegal.to_string()))?;
            }
        }
        if broken.is_none() {
            replayed.whole += line.len() as u64;
        }
    }
    Ok(replayed)
}
