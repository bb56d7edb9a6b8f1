//! The JSON of plans and reports, streamed entry by entry.

use std::io::{self, Write};

use homeostat_engine::{Entry, Kind, LedgerKey};
use serde_json::{Map, Value, json};

use crate::output::{Told, is_converged, summary};

const FORMAT_VERSION: &str = "1.0";

/// The first lists of a plan; the others follow.
const PLAN: [Kind; 8] = [
    Kind::Change,
    Kind::Conflict,
    Kind::Pending,
    Kind::Matched,
    Kind::Settled,
    Kind::Unknown,
    Kind::Held,
    Kind::Failed,
];

/// The first lists of a report; the others follow.
const REPORT: [Kind; 8] = [
    Kind::Applied,
    Kind::Failed,
    Kind::Pending,
    Kind::Conflict,
    Kind::Settled,
    Kind::Matched,
    Kind::Unknown,
    Kind::Held,
];

/// Writes a plan.
pub(crate) fn plan(all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\"")?;
    for kind in Kind::in_order(&PLAN).filter(|kind| *kind != Kind::Applied) {
        // What fails before anything was tried is refused.
        let name = if kind == Kind::Failed { "refused" } else { kind.list() };
        list(name, kind, all, to)?;
    }
    finish(all, to)
}

/// Writes the report of an apply.
pub(crate) fn report(all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    let converged = is_converged(all);
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\",\"converged\":{converged}")?;
    for kind in Kind::in_order(&REPORT).filter(|kind| *kind != Kind::Change) {
        list(kind.list(), kind, all, to)?;
    }
    finish(all, to)
}

fn list(name: &str, kind: Kind, all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    write!(to, ",\"{name}\":[")?;
    let mut result = Ok(());
    let mut separator = "";
    for told in all {
        told.what.explain(kind, &mut |entry| {
            if result.is_ok() {
                result = write!(to, "{separator}\n  {}", object(&told.place, &entry));
            }
            separator = ",";
        });
    }
    result?;
    write!(to, "]")
}

fn finish(all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    let summary = serde_json::to_string(&summary(all)).map_err(io::Error::other)?;
    writeln!(to, ",\"summary\":{summary}}}")?;
    to.flush()
}

/// An entry with its source and scope. Fields have the order of the documented format, the action before the key.
fn object(place: &LedgerKey, entry: &Entry) -> Value {
    let fields = match entry {
        Entry::Change(line, cause) => json!({
            "action": line.action, "before": line.before, "after": line.after,
            "cause": cause, "note": line.note,
        }),
        Entry::Applied(line, cause) => json!({ "action": line.action, "cause": cause }),
        Entry::Finding { finding, .. } => serde_json::to_value(finding).unwrap_or_default(),
    };
    let mut object = Map::new();
    object.insert("source".to_owned(), json!(place.source));
    object.insert("scope".to_owned(), json!(place.scope));
    if let Some(action) = fields.get("action") {
        object.insert("action".to_owned(), action.clone());
    }
    object.insert("key".to_owned(), json!(entry.key()));
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}
