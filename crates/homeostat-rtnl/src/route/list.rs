//! Lists of routes: files with one route a line, a million of them at a time.
//!
//! A list never becomes a tree: it is read in pieces, and each line is handed on as a [`RouteLine`]. Only
//! the text of bad lines is kept, to be shown. Start at [`listed_routes`].

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use homeostat_document::{Checker, Diagnostic, Scope, Span, ValueError, shown};

use crate::route::RouteKey;
use crate::route::line::{BYTE_ORDER_MARK, Fault, Parser, RouteLine, Why};
use crate::route::section::{RouteFile, described, route_files, routes};

/// Reads the lists that a scope names and hands on each of their routes, in the order of writing. All bad
/// lines are reported together, with those that the caller refuses; so is a list that cannot be read.
///
/// Whether two routes have the same key is not looked at, since who sorts them sees it for nothing: then
/// [`route_twins`] names the places.
pub fn listed_routes(
    scope: &Scope,
    checker: &mut Checker,
    mut each: impl FnMut(&RouteFile, RouteLine) -> Result<(), ValueError>,
) {
    for file in route_files(scope) {
        read_list(file, checker, |line| each(file, line));
    }
}

fn read_list(
    file: &RouteFile,
    checker: &mut Checker,
    mut each: impl FnMut(RouteLine) -> Result<(), ValueError>,
) {
    let mut lines = BadLines::new(file, checker);
    let ended = read(&file.path.value, &mut |Line { number, text, read }: Line<'_>| match read {
        Ok(route) => match each(route) {
            Ok(()) => lines.good(),
            Err(error) => lines.refuse(number, text, text, || error),
        },
        Err(fault) => lines.refuse(number, text, fault.word, || fault.explain()),
    });
    let is_empty = lines.good == 0 && lines.bad == 0;
    lines.end();
    let name = shown(&file.path.value);
    if let Err(error) = ended {
        let message = format!("the list `{name}` cannot be read: {error}");
        checker.report(Diagnostic::new(file.path.span, message));
    } else if is_empty && !file.allow_empty {
        let message = format!("the list `{name}` has no routes");
        let help = "a list that is being written, or that a full disk emptied, looks the same; to mean none, write \
                    `allow-empty = true` next to `from-file`";
        checker.report(Diagnostic::new(file.path.span, message).help(help));
    }
}

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
    let mut lines = Lines { number: 0, parser: Parser::default(), each };
    let mut crossing = Vec::new();
    loop {
        let piece = from.fill_buf()?;
        if piece.is_empty() {
            return Ok(());
        }
        let flow = if let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') {
            let flow = lines.read_piece(piece.get(..end).unwrap_or_default());
            from.consume(end + 1);
            flow
        } else {
            match read_crossing(&mut from, &mut crossing)? {
                LineEnd::Newline => lines.read_bytes(&crossing),
                LineEnd::Missing => lines.refuse_unfinished(&crossing),
            }
        };
        if flow.is_break() {
            return Ok(());
        }
    }
}

enum LineEnd {
    Newline,
    /// The file ends before it.
    Missing,
}

/// The next line, or as much of it as shows that it is too long.
fn read_crossing(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineEnd> {
    line.clear();
    from.by_ref().take(LONGEST as u64 + 2).read_until(b'\n', line)?;
    match line.pop_if(|last| *last == b'\n') {
        Some(_) => Ok(LineEnd::Newline),
        None if line.len() > LONGEST => from.skip_until(b'\n').map(|_| LineEnd::Newline),
        None => Ok(LineEnd::Missing),
    }
}

/// The lines of a list as they are read.
struct Lines<'e, E> {
    /// Of the last line.
    number: usize,
    parser: Parser,
    each: &'e mut E,
}

impl<E: Each> Lines<'_, E> {
    /// Reads all the lines of a piece.
    fn read_piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        if let Ok(text) = str::from_utf8(piece) {
            return text.split('\n').try_for_each(|line| self.read_text(line));
        }
        piece.split(|byte| *byte == b'\n').try_for_each(|line| self.read_bytes(line))
    }

    fn read_bytes(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        match str::from_utf8(bytes) {
            Ok(text) => self.read_text(text),
            Err(_) if bytes.len() > LONGEST => self.refuse_bytes(bytes, Why::TooLong),
            Err(_) => self.refuse_bytes(bytes, Why::NotUtf8),
        }
    }

    fn read_text(&mut self, text: &str) -> ControlFlow<()> {
        self.number += 1;
        let number = self.number;
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.len() > LONGEST || number == 1 && text.starts_with('\u{feff}') {
            let why = if text.len() > LONGEST { Why::TooLong } else { BYTE_ORDER_MARK };
            let end = text.char_indices().nth(SHOWN).map_or(text.len(), |(end, _)| end);
            let text = text.get(..end).unwrap_or(text);
            return (self.each)(Line { number, text, read: Err(Fault::at(text, why)) });
        }
        match self.parser.parse(text) {
            Ok(Some(route)) => (self.each)(Line { number, text, read: Ok(route) }),
            Ok(None) => ControlFlow::Continue(()),
            Err(fault) => (self.each)(Line { number, text, read: Err(fault) }),
        }
    }

    /// Half of a line can be a whole route: of `blackhole 172.16.0.0/12`, `blackhole 172.16.0.0/1`.
    fn refuse_unfinished(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.refuse_bytes(bytes, Why::Unfinished)
    }

    fn refuse_bytes(&mut self, bytes: &[u8], why: Why) -> ControlFlow<()> {
        self.number += 1;
        let text = String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes));
        let read = Err(Fault::at(&text, why));
        (self.each)(Line { number: self.number, text: &text, read })
    }
}

/// More bad lines of one list than this are only counted.
pub(super) const MOST: usize = 20;

/// A list with so many bad lines is not read to its end.
const HOPELESS: usize = 10_000;

/// The bad lines of one list.
pub(super) struct BadLines<'r> {
    checker: &'r mut Checker,
    name: String,
    good: usize,
    bad: usize,
    /// The first bad line that is not shown.
    next: Option<Span>,
}

impl<'r> BadLines<'r> {
    pub(super) fn new(file: &RouteFile, checker: &'r mut Checker) -> Self {
        BadLines { checker, name: shown(&file.path.value), good: 0, bad: 0, next: None }
    }

    pub(super) fn good(&mut self) -> ControlFlow<()> {
        self.good += 1;
        ControlFlow::Continue(())
    }

    /// A line whose route is refused, and the part of it that is to blame.
    pub(super) fn refuse(
        &mut self,
        number: usize,
        line: &str,
        word: &str,
        explain: impl FnOnce() -> ValueError,
    ) -> ControlFlow<()> {
        self.bad += 1;
        if self.bad >= HOPELESS {
            return ControlFlow::Break(());
        }
        if self.bad <= MOST + 1 {
            self.show(number, line, word, explain);
        }
        ControlFlow::Continue(())
    }

    fn show(
        &mut self,
        number: usize,
        line: &str,
        word: &str,
        explain: impl FnOnce() -> ValueError,
    ) {
        let file = self.checker.add_line(&self.name, number, line);
        // A word is a part of its line, so the distance of their addresses is its place.
        let start = word.as_ptr().addr().saturating_sub(line.as_ptr().addr());
        let span = Span::new(file, start, start + word.len());
        if self.bad > MOST {
            self.next = Some(span);
            return;
        }
        let ValueError { message, help } = explain();
        self.checker.report(Diagnostic::new(span, message).maybe_help(help));
    }

    /// Says how many bad lines were only counted.
    pub(super) fn end(self) {
        let (Some(span), more) = (self.next, self.bad.saturating_sub(MOST)) else { return };
        let least = if self.bad >= HOPELESS { "at least " } else { "" };
        let lines = if more == 1 { "line is" } else { "lines are" };
        let rest = Diagnostic::new(span, format!("{least}{more} more {lines} wrong in this list"));
        let rest = match self.good {
            0 => rest.help("no line of it is a route: is it the right file?"),
            _ => rest,
        };
        self.checker.report(rest);
    }
}

/// Reports the first routes of lists that are declared twice. The lists are read twice for it, since the texts of
/// their lines are not kept.
pub fn route_twins(scope: &Scope, checker: &mut Checker) {
    let mut known: HashSet<RouteKey> = routes(scope).map(|route| route.key.value).collect();
    // The routes that are declared twice, with the first place of each.
    let mut twins: HashMap<RouteKey, Option<Span>> = HashMap::new();
    for_each(scope, |_, _, key| {
        if !known.insert(key) && twins.len() < MOST {
            twins.insert(key, None);
        }
    });
    for route in routes(scope) {
        twins.entry(route.key.value).and_modify(|first| *first = Some(route.key.span));
    }
    let mut left = MOST;
    for_each(scope, |file, line, key| {
        let Some(first) = twins.get_mut(&key).filter(|_| left > 0) else { return };
        let source = checker.add_line(&shown(&file.path), line.number, line.text);
        let span = Span::new(source, 0, line.text.len());
        if let Some(first) = *first {
            let twin = Diagnostic::new(span, format!("{} is declared twice", described(&key)));
            checker.report(twin.also(first, "first declared here"));
            left -= 1;
        } else {
            *first = Some(span);
        }
    });
}

/// Hands on the lines of all lists that are routes, with their keys.
fn for_each(scope: &Scope, mut each: impl FnMut(&RouteFile, &Line<'_>, RouteKey)) {
    for file in route_files(scope) {
        // The reader of the routes reports a list that cannot be read.
        let _ = read(&file.path, &mut |line: Line<'_>| {
            if let Ok(route) = &line.read {
                each(file, &line, route.key);
            }
            ControlFlow::Continue(())
        });
    }
}
