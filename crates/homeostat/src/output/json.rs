//! The JSON of plans and reports, streamed entry by entry.

use std::collections::BTreeMap;
use std::io::{self, Write};

use homeostat_engine::{Cause, Entry, Kind, Sampler};
use serde::Serialize;

use crate::output::{SourceReport, is_converged, summary};
use crate::wire::FORMAT_VERSION;

/// The first lists of a plan; the others follow.
const PLAN: [Kind; 7] = [
    Kind::Change,
    Kind::Conflict,
    Kind::Pending,
    Kind::Matched,
    Kind::Settled,
    Kind::Unknown,
    Kind::Held,
];

/// The first lists of a report; the others follow.
const REPORT: [Kind; 6] =
    [Kind::Applied, Kind::Failed, Kind::Pending, Kind::Conflict, Kind::Settled, Kind::Matched];

pub(crate) fn plan(all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    plan_lists(all, to)?;
    finish(all, to)
}

/// The same, with warnings, before an apply.
pub(crate) fn plan_with_warnings(
    all: &[SourceReport],
    warnings: &[String],
    to: &mut dyn Write,
) -> io::Result<()> {
    plan_lists(all, to)?;
    write!(to, ",\"warnings\":{}", serde_json::json!(warnings))?;
    finish(all, to)
}

fn plan_lists(all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\"")?;
    for kind in Kind::in_order(&PLAN).filter(|kind| kind.is_in_plans()) {
        // What fails before anything was tried is refused.
        let name = if kind == Kind::Failed { "refused" } else { kind.list() };
        list(name, kind, all, to)?;
    }
    let patterns: BTreeMap<_, _> =
        all.iter().filter_map(|one| Some((&one.ledger_key.scope, one.pattern.as_ref()?))).collect();
    if !patterns.is_empty() {
        write!(to, ",\"patterns\":{}", serde_json::json!(patterns))?;
    }
    Ok(())
}

/// Writes the report of an apply.
pub(crate) fn report(all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    let converged = is_converged(all);
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\",\"converged\":{converged}")?;
    for kind in Kind::in_order(&REPORT).filter(|kind| kind.is_in_reports()) {
        list(kind.list(), kind, all, to)?;
    }
    finish(all, to)
}

fn list(name: &str, kind: Kind, all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    write!(to, ",\"{name}\":[")?;
    let mut rows = Rows { to, source: "", scope: "", separator: "", result: Ok(()) };
    for SourceReport { ledger_key, report, .. } in all {
        (rows.source, rows.scope) = (&ledger_key.source, &ledger_key.scope);
        match kind {
            Kind::Change | Kind::Applied => report.sample(kind, &mut rows),
            _ => report.explain(kind, &mut |entry| rows.take(entry)),
        }
    }
    rows.result?;
    write!(to, "]")
}

/// Writes entries as they come. After a failure, such as a closed pipe, it wants no more of them.
struct Rows<'a> {
    to: &'a mut dyn Write,
    source: &'a str,
    scope: &'a str,
    separator: &'static str,
    result: io::Result<()>,
}

impl Sampler for Rows<'_> {
    fn wants(&mut self, _: Cause) -> bool {
        self.result.is_ok()
    }

    fn take(&mut self, entry: Entry) {
        if self.result.is_ok() {
            self.result = self.write(&entry);
        }
    }
}

impl Rows<'_> {
    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        write!(self.to, "{}\n  ", self.separator)?;
        self.separator = ",";
        let row = Row { source: self.source, scope: self.scope, entry };
        Ok(serde_json::to_writer(&mut self.to, &row)?)
    }
}

fn finish(all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    let summary = serde_json::to_string(&summary(all)).map_err(io::Error::other)?;
    writeln!(to, ",\"summary\":{summary}}}")?;
    to.flush()
}

/// An entry with its source and scope.
#[derive(Serialize)]
struct Row<'a> {
    source: &'a str,
    scope: &'a str,
    #[serde(flatten)]
    entry: &'a Entry,
}
