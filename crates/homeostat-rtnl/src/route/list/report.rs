//! Gathers what is wrong with lists: the first bad lines of each, and how many more there are.

use std::ops::ControlFlow;

use homeostat_document::{Checker, Diagnostic, Span, ValueError, shown};

use crate::route::section::RouteFile;

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
}

impl BadLines<'_> {
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
