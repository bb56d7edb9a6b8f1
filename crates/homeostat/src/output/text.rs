//! Plans and reports for people: one line a change, readable without colour.

use std::io::{self, Write};

use homeostat_engine::{Cause, Entry, Kind, LedgerKey, Sampler, Summary};
use serde::{Deserialize, Serialize};

use crate::output::line::{BOLD, DIM, RED, Row, change, finding};
use crate::output::{SourceReport, is_converged, summary};

/// How much is shown.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Detail {
    /// Only what is wrong.
    Quiet,
    /// What is done and what is wrong, long lists cut.
    Normal,
    /// Also what is settled and matched.
    Verbose,
}

/// What to show of long lists.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Length {
    /// The beginning, and how many more there are.
    Cut,
    /// Everything.
    Full,
}

/// How plans and reports are drawn.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Drawing {
    pub(crate) detail: Detail,
    pub(crate) length: Length,
}

/// A list with this many lines more than [`SHOWN`] is still shown whole.
const SLACK: usize = 5;
const SHOWN: usize = 20;
/// A key that is wider than this has no say in the width of its column.
const WIDEST: usize = 56;

/// What the last line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// What would change.
    Plan,
    /// Whether all is as declared.
    Verdict,
}

/// Draws a plan, its last line included.
pub(crate) fn plan(
    all: &[SourceReport],
    drawing: Drawing,
    closing: Closing,
    to: &mut dyn Write,
) -> io::Result<()> {
    for source in all {
        let mut page = Page::new(source, drawing, to);
        page.changes(source)?;
        page.findings(source, "refused")?;
    }
    if drawing.detail != Detail::Quiet {
        let Summary { create, update, replace, delete, .. } = summary(all);
        let line = match closing {
            Closing::Plan if summary(all).total() == 0 && is_converged(all) => {
                "No changes.".to_owned()
            }
            Closing::Plan if summary(all).total() == 0 => {
                format!("{RED}Not converged{RED:#}: no changes{}.", not_done(all))
            }
            Closing::Plan => format!(
                "Plan: {create} to create, {update} to update, {replace} to replace, {delete} to delete{}.",
                not_done(all)
            ),
            Closing::Verdict if is_converged(all) => "Converged.".to_owned(),
            Closing::Verdict => format!("{RED}Not converged.{RED:#}"),
        };
        writeln!(to, "{line}")?;
    }
    to.flush()
}

/// The changes that cannot be made, for the last line of a plan: its exit code does not tell of them.
fn not_done(all: &[SourceReport]) -> String {
    let count = |kind| {
        let mut count = 0;
        for source in all {
            source.report.explain(kind, &mut |_| count += 1);
        }
        count
    };
    let counts = [
        (count(Kind::Failed), "refused"),
        (count(Kind::Conflict), "in conflict"),
        (count(Kind::Held), "held back"),
    ];
    let words = counts.iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> =
        words.map(|(count, word)| format!("; {RED}{count} {word}{RED:#}")).collect();
    words.concat()
}

/// Draws the report of an apply: what was not done, and the sum of what was.
pub(crate) fn report(all: &[SourceReport], drawing: Drawing, to: &mut dyn Write) -> io::Result<()> {
    for source in all {
        let mut page = Page::new(source, drawing, to);
        page.applied(source)?;
        page.findings(source, "failed")?;
        if drawing.detail == Detail::Normal && source.report.summary().total() > 0 {
            // Settled values are shown only when something was written.
            page.finding(source, Kind::Settled, "settled")?;
        }
    }
    if drawing.detail == Detail::Quiet {
        return to.flush();
    }
    let Summary { create, update, replace, delete, .. } = summary(all);
    let sum = format!("{create} created, {update} updated, {replace} replaced, {delete} deleted.");
    match (summary(all).total(), is_converged(all)) {
        (0, true) => writeln!(to, "No changes.")?,
        (_, true) => writeln!(to, "Applied: {sum}")?,
        (_, false) => writeln!(to, "{RED}Not converged{RED:#}: {sum}")?,
    }
    to.flush()
}

/// One source in one scope; its heading is drawn with its first line.
struct Page<'a> {
    ledger_key: &'a LedgerKey,
    /// The pattern that declares the scope.
    pattern: Option<&'a str>,
    drawing: Drawing,
    to: &'a mut dyn Write,
    has_heading: bool,
}

impl<'a> Page<'a> {
    fn new(of: &'a SourceReport, drawing: Drawing, to: &'a mut dyn Write) -> Self {
        let SourceReport { ledger_key, pattern, .. } = of;
        Page { ledger_key, pattern: pattern.as_deref(), drawing, to, has_heading: false }
    }

    fn changes(&mut self, source: &SourceReport) -> io::Result<()> {
        if self.drawing.detail == Detail::Quiet {
            return Ok(());
        }
        let [config, drift, check] = [(); 3].map(|()| Lines::new(self.drawing.length));
        let mut changes = Changes { config, drift, check };
        source.report.sample(Kind::Change, &mut changes);
        self.section("config changed", &changes.config)?;
        self.section("drifted", &changes.drift)?;
        self.section("by a check", &changes.check)
    }

    fn applied(&mut self, source: &SourceReport) -> io::Result<()> {
        if self.drawing.detail == Detail::Quiet {
            return Ok(());
        }
        let mut applied = Lines::new(self.drawing.length);
        source.report.sample(Kind::Applied, &mut applied);
        self.section("applied", &applied)
    }

    fn findings(&mut self, source: &SourceReport, failed: &str) -> io::Result<()> {
        const FIRST: [Kind; 4] = [Kind::Failed, Kind::Conflict, Kind::Held, Kind::Unknown];
        for kind in Kind::in_order(&FIRST) {
            let title = match kind {
                Kind::Change | Kind::Applied => continue,
                Kind::Failed => failed,
                other => other.title(),
            };
            if kind.is_worth_knowing() || self.drawing.detail == Detail::Verbose {
                self.finding(source, kind, title)?;
            }
        }
        Ok(())
    }

    fn finding(&mut self, source: &SourceReport, kind: Kind, title: &str) -> io::Result<()> {
        let mut lines = Lines::new(self.drawing.length);
        source.report.explain(kind, &mut |entry| lines.push(|| finding(&entry)));
        self.section(title, &lines)
    }

    fn section(&mut self, title: &str, lines: &Lines) -> io::Result<()> {
        if lines.shown.is_empty() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.has_heading, true) {
            let LedgerKey { source, scope, .. } = self.ledger_key;
            let by = self.pattern.map(|pattern| format!(", by `{pattern}`")).unwrap_or_default();
            writeln!(self.to, "{BOLD}{source} in {scope}{BOLD:#}{by}")?;
        }
        writeln!(self.to, "  {DIM}{title}:{DIM:#}")?;
        let width = lines.width();
        for row in &lines.shown {
            writeln!(self.to, "    {}", row.draw(width))?;
        }
        match lines.hidden {
            0 => Ok(()),
            more => writeln!(self.to, "    ... and {more} more; --full shows them all"),
        }
    }
}

/// The lines of a list, cut where it gets long. What is cut is never drawn.
struct Lines {
    length: Length,
    shown: Vec<Row>,
    hidden: usize,
}

impl Lines {
    fn new(length: Length) -> Self {
        Lines { length, shown: Vec::new(), hidden: 0 }
    }

    /// The width of the column of keys; a few very long ones stick out of it.
    fn width(&self) -> usize {
        self.shown.iter().map(Row::width).filter(|width| *width <= WIDEST).max().unwrap_or(0)
    }

    fn push(&mut self, draw: impl FnOnce() -> Row) {
        if self.has_room() {
            self.shown.push(draw());
        }
    }

    /// Whether one more line will be shown; if not, it is counted.
    fn has_room(&mut self) -> bool {
        let is_long = self.length == Length::Cut && self.shown.len() >= SHOWN + SLACK;
        if self.hidden == 0 && !is_long {
            return true;
        }
        // Now that the list is known to be long, the slack is hidden, too.
        self.hidden += 1 + self.shown.len().saturating_sub(SHOWN);
        self.shown.truncate(SHOWN);
        false
    }
}

impl Sampler for Lines {
    fn wants(&mut self, _cause: Cause) -> bool {
        self.has_room()
    }

    fn take(&mut self, entry: Entry) {
        if let Entry::Change(line, _) | Entry::Applied(line, _) = entry {
            self.push(|| change(&line));
        }
    }
}

/// The changes of a plan, by their cause.
struct Changes {
    config: Lines,
    drift: Lines,
    check: Lines,
}

impl Changes {
    fn of(&mut self, cause: Cause) -> &mut Lines {
        match cause {
            Cause::Config => &mut self.config,
            Cause::Drift => &mut self.drift,
            Cause::Check => &mut self.check,
        }
    }
}

impl Sampler for Changes {
    fn wants(&mut self, cause: Cause) -> bool {
        self.of(cause).has_room()
    }

    fn take(&mut self, entry: Entry) {
        if let Entry::Change(_, cause) = entry {
            self.of(cause).take(entry);
        }
    }
}
