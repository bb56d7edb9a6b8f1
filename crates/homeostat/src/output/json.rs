//! The JSON of plans and reports, streamed entry by entry.

use std::io::{self, Write};

use homeostat_engine::{Entry, Kind, LedgerKey};
use serde_json::{Value, json};

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

/// Writes a plan.
pub(crate) fn plan(all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\"")?;
    for kind in Kind::in_order(&PLAN).filter(|kind| *kind != Kind::Applied) {
        // What fails before anything was tried is refused.
        let name = if kind == Kind::Failed { "refused" } else { kind.list() };
        list(name, kind, all, to)?;
    }
    finish(all, to)
}

/// Writes the report of an apply.
pub(crate) fn report(all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    let converged = is_converged(all);
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\",\"converged\":{converged}")?;
    for kind in Kind::in_order(&REPORT).filter(|kind| *kind != Kind::Change) {
        list(kind.list(), kind, all, to)?;
    }
    finish(all, to)
}

fn list(name: &str, kind: Kind, all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    write!(to, ",\"{name}\":[")?;
    let mut result = Ok(());
    let mut separator = "";
    for source in all {
        source.report.explain(kind, &mut |entry| {
            if result.is_ok() {
                result = write!(to, "{separator}\n  {}", object(&source.ledger_key, &entry));
            }
            separator = ",";
        });
    }
    result?;
    write!(to, "]")
}

fn finish(all: &[SourceReport], to: &mut dyn Write) -> io::Result<()> {
    let summary = serde_json::to_string(&summary(all)).map_err(io::Error::other)?;
    writeln!(to, ",\"summary\":{summary}}}")?;
    to.flush()
}

/// An entry with its source and scope. Fields have the order of the documented format, the action before the key.
fn object(ledger_key: &LedgerKey, entry: &Entry) -> Value {
    let fields = match entry {
        Entry::Change(line, cause) => json!({
            "action": line.action, "before": line.before, "after": line.after,
            "cause": cause, "note": line.note,
        }),
        Entry::Applied(line, cause) => json!({ "action": line.action, "cause": cause }),
        Entry::Finding { finding, .. } => serde_json::to_value(finding).unwrap_or_default(),
    };
    let mut object = json!({ "source": ledger_key.source, "scope": ledger_key.scope });
    if let Some(action) = fields.get("action") {
        object["action"] = action.clone();
    }
    object["key"] = entry.key().into();
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    object
}
