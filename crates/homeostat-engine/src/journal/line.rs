//! One line of the file: a checksum, and a record or the beginning of an opening as JSON.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::JournalError;
use super::flat::Flat;

/// The format that this version writes.
pub(super) const FORMAT: u32 = 1;
/// What is wrong with a file that does not begin with an opening.
pub(super) const FOREIGN: &str = "it does not begin as a journal does";
/// What is wrong with a line that makes no sense.
pub(super) const BROKEN: &str = "its checksum does not fit";

/// The beginning of a journal, and of each opening of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opening {
    /// The format.
    pub(super) journal: u32,
    pub(super) epoch: u32,
}

impl Opening {
    /// Its epoch, if this version can read what follows.
    pub(super) fn epoch(self, path: &Path) -> Result<u32, JournalError> {
        match self.journal {
            ..=FORMAT => Ok(self.epoch),
            found => Err(JournalError::Newer { path: path.to_owned(), found, known: FORMAT }),
        }
    }
}

/// What a line says.
#[expect(clippy::large_enum_variant, reason = "nearly all lines are records, and none is kept")]
pub(super) enum Line<'a> {
    Opening(Opening),
    Record(Flat<'a>),
}

/// No opening is longer.
const OPENING: usize = 64;

/// Whether a file can begin with this line, and what it says: with an opening, or with one that was torn while
/// it was written. That is short, and nothing is written behind it before it is whole.
pub(super) fn may_begin(line: &[u8], says: Option<&Line<'_>>) -> bool {
    match says {
        Some(Line::Opening(_)) => true,
        Some(Line::Record(_)) => false,
        None => line.len() < OPENING && !line.ends_with(b"\n"),
    }
}

/// The digits of the checksum, and the blank after them.
const HEAD: usize = 9;

/// Writes a line, its end included.
pub(super) fn write(body: &impl Serialize, to: &mut Vec<u8>) -> serde_json::Result<()> {
    let start = to.len();
    to.extend_from_slice(b"00000000 ");
    serde_json::to_writer(&mut *to, body)?;
    let body = to.get(start + HEAD..).unwrap_or_default();
    let sum = format!("{:08x}", crc32fast::hash(body));
    if let Some(place) = to.get_mut(start..start + HEAD - 1) {
        place.copy_from_slice(sum.as_bytes());
    }
    to.push(b'\n');
    Ok(())
}

/// Reads a line, its end included; nothing, if it is not whole or makes no sense.
pub(super) fn read(line: &[u8]) -> Option<Line<'_>> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, body) = (line.get(..HEAD - 1)?, line.get(HEAD..)?);
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    let is_whole = line.get(HEAD - 1) == Some(&b' ') && crc32fast::hash(body) == sum;
    if !is_whole {
        return None;
    }
    let body = std::str::from_utf8(body).ok()?;
    if body.starts_with("{\"journal\"") {
        return serde_json::from_str(body).ok().map(Line::Opening);
    }
    let flat: Flat<'_> = serde_json::from_str(body).ok()?;
    flat.is_complete().then_some(Line::Record(flat))
}
