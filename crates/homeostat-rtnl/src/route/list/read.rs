//! A file to lines, in pieces: memory does not grow with the list.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use super::fault::{Fault, Why};
use super::line::{self, RouteLine};

/// The longest line that is read, in bytes.
pub(super) const LONGEST: usize = 4096;

/// How much is read at once.
const PIECE: usize = 256 << 10;

/// How much of a line that cannot be read is shown.
const SHOWN: usize = 60;

/// One line with its number, and what it says.
pub(super) struct Line<'a> {
    pub(super) number: usize,
    /// As much of it as can be shown.
    pub(super) text: &'a str,
    pub(super) read: Result<RouteLine, Fault<'a>>,
}

/// Takes a line, and says whether to go on.
pub(super) trait Each: FnMut(Line<'_>) -> ControlFlow<()> {}

impl<F: FnMut(Line<'_>) -> ControlFlow<()>> Each for F {}

/// Reads a list and hands on its lines but for blank ones and comments.
pub(super) fn read(path: &Path, each: &mut impl Each) -> io::Result<()> {
    // A pipe would be waited for, and a device may never end.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("this is not a regular file"));
    }
    split(BufReader::with_capacity(PIECE, fs::File::open(path)?), each)
}

/// Whole lines are read where they lie in the buffer; one that crosses its end is copied.
pub(super) fn split(mut from: impl BufRead, each: &mut impl Each) -> io::Result<()> {
    let mut number = 0;
    let mut crossing = Vec::new();
    loop {
        let piece = from.fill_buf()?;
        if piece.is_empty() {
            return Ok(());
        }
        let flow = if let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') {
            let flow = read_piece(piece.get(..end).unwrap_or_default(), &mut number, each);
            from.consume(end + 1);
            flow
        } else {
            number += 1;
            read_crossing(&mut from, &mut crossing)?;
            read_bytes(&crossing, number, each)
        };
        if flow.is_break() {
            return Ok(());
        }
    }
}

/// The next line, or as much of it as shows that it is too long.
fn read_crossing(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    from.by_ref().take(LONGEST as u64 + 2).read_until(b'\n', line)?;
    match line.pop_if(|last| *last == b'\n') {
        None if line.len() > LONGEST => from.skip_until(b'\n').map(drop),
        _ => Ok(()),
    }
}

/// Reads all the lines of a piece, and counts them.
fn read_piece(piece: &[u8], number: &mut usize, each: &mut impl Each) -> ControlFlow<()> {
    let mut next = || {
        *number += 1;
        *number
    };
    if let Ok(text) = str::from_utf8(piece) {
        return text.split('\n').try_for_each(|line| read_text(line, next(), each));
    }
    let mut lines = piece.split(|byte| *byte == b'\n');
    lines.try_for_each(|line| read_bytes(line, next(), each))
}

fn read_bytes(bytes: &[u8], number: usize, each: &mut impl Each) -> ControlFlow<()> {
    if let Ok(text) = str::from_utf8(bytes) {
        return read_text(text, number, each);
    }
    let shown = String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes));
    let why = if bytes.len() > LONGEST { Why::TooLong } else { Why::NotUtf8 };
    each(Line { number, text: &shown, read: Err(Fault::at(&shown, why)) })
}

fn read_text(text: &str, number: usize, each: &mut impl Each) -> ControlFlow<()> {
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.len() > LONGEST || number == 1 && text.starts_with('\u{feff}') {
        return refuse(text, number, each);
    }
    match line::parse(text) {
        Ok(Some(route)) => each(Line { number, text, read: Ok(route) }),
        Ok(None) => ControlFlow::Continue(()),
        Err(fault) => each(Line { number, text, read: Err(fault) }),
    }
}

fn refuse(text: &str, number: usize, each: &mut impl Each) -> ControlFlow<()> {
    let why = if text.len() > LONGEST { Why::TooLong } else { Why::ByteOrderMark };
    let end = text.char_indices().nth(SHOWN).map_or(text.len(), |(end, _)| end);
    let text = text.get(..end).unwrap_or(text);
    each(Line { number, text, read: Err(Fault::at(text, why)) })
}
