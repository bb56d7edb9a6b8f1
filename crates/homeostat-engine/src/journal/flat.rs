//! A record as it stands in the file: one object, a word for what happened, and the fields of that.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::{CommandKey, End, Fact, Intent, Millis, Record, StepId, Subject};

/// What happened, in a word.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Is {
    Intent,
    Dispatched,
    Succeeded,
    Failed,
    Unknown,
}

/// A record, flat.
#[derive(Serialize, Deserialize)]
pub(super) struct Flat {
    id: StepId,
    at: Millis,
    is: Is,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    precondition: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<CommandKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    answer: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Flat {
    fn new(id: StepId, at: Millis, is: Is) -> Self {
        Flat {
            id,
            at,
            is,
            source: None,
            scope: None,
            key: None,
            kind: None,
            parameters: None,
            precondition: None,
            command: None,
            task: None,
            answer: Value::Null,
            why: None,
        }
    }
}

impl From<Record> for Flat {
    fn from(Record { id, at, fact }: Record) -> Self {
        let flat = |is| Flat::new(id, at, is);
        match fact {
            Fact::Intent(Intent { subject, kind, parameters, precondition, command }) => Flat {
                source: Some(subject.source),
                scope: Some(subject.scope),
                key: Some(subject.key),
                kind: Some(kind),
                parameters: Some(parameters),
                precondition,
                command,
                ..flat(Is::Intent)
            },
            Fact::Dispatched { task } => Flat { task: Some(task), ..flat(Is::Dispatched) },
            Fact::Ended(End::Succeeded { answer }) => Flat { answer, ..flat(Is::Succeeded) },
            Fact::Ended(End::Failed { why }) => Flat { why: Some(why), ..flat(Is::Failed) },
            Fact::Ended(End::Unknown { why }) => Flat { why: Some(why), ..flat(Is::Unknown) },
        }
    }
}

/// A record lacks a field that its word asks for.
#[derive(Debug, thiserror::Error)]
#[error("a record of this kind needs the field `{0}`")]
pub(super) struct Missing(&'static str);

impl TryFrom<Flat> for Record {
    type Error = Missing;

    fn try_from(flat: Flat) -> Result<Self, Missing> {
        let needed = |name: &'static str, field: Option<String>| field.ok_or(Missing(name));
        let fact = match flat.is {
            Is::Intent => Fact::Intent(Intent {
                subject: Subject {
                    source: needed("source", flat.source)?,
                    scope: needed("scope", flat.scope)?,
                    key: needed("key", flat.key)?,
                },
                kind: needed("kind", flat.kind)?,
                parameters: needed("parameters", flat.parameters)?,
                precondition: flat.precondition,
                command: flat.command,
            }),
            Is::Dispatched => Fact::Dispatched { task: needed("task", flat.task)? },
            Is::Succeeded => Fact::Ended(End::Succeeded { answer: flat.answer }),
            Is::Failed => Fact::Ended(End::Failed { why: needed("why", flat.why)? }),
            Is::Unknown => Fact::Ended(End::Unknown { why: needed("why", flat.why)? }),
        };
        Ok(Record { id: flat.id, at: flat.at, fact })
    }
}
