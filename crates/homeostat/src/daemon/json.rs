//! Loops and events as JSON: the same for the log, for HTTP, and for whoever else asks.

use std::time::Duration;

use homeostat_engine::{Event, EventKind};
use serde_json::{Map, Value, json};

pub(super) use crate::wire::FORMAT_VERSION;

/// One event: what happened, where, and in which pass.
pub(super) fn event(event: &Event) -> Map<String, Value> {
    let Event { pass, source, scope, kind } = event;
    let (name, fields) = fields(kind);
    let mut object = Map::new();
    object.insert("format_version".to_owned(), FORMAT_VERSION.into());
    object.insert("event".to_owned(), name.into());
    object.insert("pass".to_owned(), pass.0.into());
    object.insert("source".to_owned(), (*source).into());
    object.insert("scope".to_owned(), (**scope).into());
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    object
}

fn fields(kind: &EventKind) -> (&'static str, Value) {
    match kind {
        EventKind::Woken { reasons, keys, by } => {
            ("woken", json!({ "reasons": reasons.to_string(), "keys": keys, "by": by.as_deref() }))
        }
        EventKind::Started { reasons, keys, waited } => {
            let (reasons, waited) = (reasons.to_string(), micros(*waited));
            ("started", json!({ "reasons": reasons, "keys": keys, "waited_us": waited }))
        }
        EventKind::Rendered { bytes, print } => {
            ("rendered", json!({ "bytes": bytes, "print": print }))
        }
        EventKind::Validated => ("validated", Value::Null),
        EventKind::Planned { summary } => ("planned", json!({ "summary": summary })),
        EventKind::StepApplied { action, key, cause, by } => {
            let fields =
                json!({ "action": action, "key": key, "cause": cause, "by": by.as_deref() });
            ("step-applied", fields)
        }
        EventKind::StepFailed { action, key, failure } => {
            let (error, help) = (&failure.error, &failure.help);
            ("step-failed", json!({ "action": action, "key": key, "error": error, "help": help }))
        }
        EventKind::More { steps } => ("more", json!({ "steps": steps })),
        EventKind::Conflict { key, owner } => ("conflict", json!({ "key": key, "owner": owner })),
        EventKind::Pending { key, on } => ("pending", json!({ "key": key, "waits_on": on })),
        EventKind::Contention { key, culprit, pause } => {
            let pause = micros(*pause);
            ("contention", json!({ "key": key, "culprit": culprit, "pause_us": pause }))
        }
        EventKind::NotConverging { key } => ("not-converging", json!({ "key": key })),
        EventKind::Completed { summary, converged, took } => {
            let took = micros(*took);
            let fields = json!({ "summary": summary, "converged": converged, "took_us": took });
            ("completed", fields)
        }
        EventKind::Failed { failure } => {
            ("failed", json!({ "error": failure.error, "help": failure.help }))
        }
        EventKind::Paused { during } => ("paused", json!({ "for_us": during.map(micros) })),
        EventKind::Lost => ("lost", Value::Null),
        EventKind::Resubscribed => ("resubscribed", Value::Null),
        EventKind::Resumed => ("resumed", Value::Null),
        EventKind::Stopped => ("stopped", Value::Null),
        // What this version has no words for is named, so that nobody takes it for another.
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
