//! The JSON of plans and reports, streamed entry by entry.

use std::io::{self, Write};

use homeostat_engine::{Entry, Kind, LedgerKey};
use serde_json::{Value, json};

use crate::output::{Told, is_converged, summary};

const FORMAT_VERSION: &str = "1.0";

const PLAN: [(&str, Kind); 8] = [
    ("changes", Kind::Change),
    ("conflicts", Kind::Conflict),
    ("pending", Kind::Pending),
    ("matched", Kind::Matched),
    ("settled", Kind::Settled),
    ("unknown", Kind::Unknown),
    ("held", Kind::Held),
    ("refused", Kind::Failed),
];

const REPORT: [(&str, Kind); 8] = [
    ("applied", Kind::Applied),
    ("failed", Kind::Failed),
    ("pending", Kind::Pending),
    ("conflicts", Kind::Conflict),
    ("settled", Kind::Settled),
    ("matched", Kind::Matched),
    ("unknown", Kind::Unknown),
    ("held", Kind::Held),
];

/// Writes a plan.
pub(crate) fn plan(all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\"")?;
    lists(&PLAN, all, to)?;
    finish(all, to)
}

/// Writes the report of an apply.
pub(crate) fn report(all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    let converged = is_converged(all);
    write!(to, "{{\"format_version\":\"{FORMAT_VERSION}\",\"converged\":{converged}")?;
    lists(&REPORT, all, to)?;
    finish(all, to)
}

fn lists(kinds: &[(&str, Kind)], all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    for (name, kind) in kinds {
        write!(to, ",\"{name}\":[")?;
        list(*kind, all, to)?;
        write!(to, "]")?;
    }
    Ok(())
}

fn list(kind: Kind, all: &[Told], to: &mut dyn Write) -> io::Result<()> {
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
    result
}

fn finish(all: &[Told], to: &mut dyn Write) -> io::Result<()> {
    let summary = serde_json::to_string(&summary(all)).map_err(io::Error::other)?;
    writeln!(to, ",\"summary\":{summary}}}")?;
    to.flush()
}

fn object(place: &LedgerKey, entry: &Entry) -> Value {
    let mut object = json!({ "source": place.source, "scope": place.scope });
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields(entry)) {
        object.extend(fields);
    }
    object
}

fn fields(entry: &Entry) -> Value {
    match entry {
        Entry::Change(line, cause) => json!({
            "action": line.action, "key": line.key, "before": line.before, "after": line.after,
            "cause": cause, "note": line.note,
        }),
        Entry::Applied(line, cause) => {
            json!({ "action": line.action, "key": line.key, "cause": cause })
        }
        Entry::Failed { action, key, failure } => {
            json!({ "action": action, "key": key, "error": failure.error, "help": failure.help })
        }
        Entry::Pending { key, on } => json!({ "key": key, "on": on }),
        Entry::Conflict { key, owner, reason } => {
            json!({ "key": key, "owner": owner.to_string(), "reason": reason.to_string() })
        }
        Entry::Settled { key, wanted, held } => {
            json!({ "key": key, "wanted": wanted, "held": held })
        }
        Entry::Matched { key, owner } => json!({ "key": key, "owner": owner.to_string() }),
        Entry::Unknown { key, why } => json!({ "key": key, "reason": why }),
        Entry::Held { action, key, why } => json!({ "action": action, "key": key, "reason": why }),
    }
}
