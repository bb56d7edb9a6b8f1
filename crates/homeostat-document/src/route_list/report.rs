//! Gathers what is wrong with lists: the first bad lines of each, and how many more there are.

use std::ops::ControlFlow;

use super::fault::Fault;
use super::read::Line;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::error::ValueError;
use crate::files::Files;
use crate::load::shown;
use crate::routes::RouteFile;
use crate::span::Span;

/// More bad lines of one list than this are only counted.
pub(super) const MOST: usize = 20;

/// A list with so many bad lines is not read to its end.
const HOPELESS: usize = 10_000;

/// The mistakes so far, with the lines that they are in.
pub(super) struct Report {
    pub(super) files: Files,
    pub(super) found: Vec<Diagnostic>,
}

/// The bad lines of one list.
pub(super) struct Section<'r> {
    report: &'r mut Report,
    name: String,
    good: usize,
    bad: usize,
    /// The first bad line that is not shown.
    next: Option<Span>,
}

impl Report {
    pub(super) fn new(files: Files) -> Self {
        Self { files, found: Vec::new() }
    }

    pub(super) fn list(&mut self, file: &RouteFile) -> Section<'_> {
        let name = shown(&file.path.value);
        Section { report: self, name, good: 0, bad: 0, next: None }
    }

    pub(super) fn into_result(self) -> Result<(), Diagnostics> {
        if self.found.is_empty() {
            return Ok(());
        }
        Err(Diagnostics::new(self.files, self.found))
    }
}

impl Section<'_> {
    pub(super) fn good(&mut self) -> ControlFlow<()> {
        self.good += 1;
        ControlFlow::Continue(())
    }

    /// A line that cannot be read.
    pub(super) fn bad(&mut self, line: &Line<'_>, fault: Fault<'_>) -> ControlFlow<()> {
        self.refuse(line, fault.word, || fault.explain())
    }

    /// A line whose route is refused, and the part of it that is to blame.
    pub(super) fn refuse(
        &mut self,
        line: &Line<'_>,
        word: &str,
        explain: impl FnOnce() -> ValueError,
    ) -> ControlFlow<()> {
        self.bad += 1;
        if self.bad >= HOPELESS {
            return ControlFlow::Break(());
        }
        if self.bad <= MOST + 1 {
            self.show(line, word, explain);
        }
        ControlFlow::Continue(())
    }

    fn show(&mut self, line: &Line<'_>, word: &str, explain: impl FnOnce() -> ValueError) {
        let file = self.report.files.add_line(&self.name, line.number, line.text);
        // A word is a part of its line, so the distance of their addresses is its place.
        let start = word.as_ptr().addr().saturating_sub(line.text.as_ptr().addr());
        let span = Span::new(file, start, start + word.len());
        if self.bad > MOST {
            self.next = Some(span);
            return;
        }
        let ValueError { message, help } = explain();
        self.report.found.push(Diagnostic::new(span, message).maybe_help(help));
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
        self.report.found.push(rest);
    }
}
