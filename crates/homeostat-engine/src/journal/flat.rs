//! A record as it stands in the file: one object, a word for what happened, and the fields of that.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::{CommandKey, End, Fact, Intent, Millis, Record, Repeat, StepId, Subject};

/// What happened, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Is {
    Intent,
    Dispatched,
    Succeeded,
    Failed,
    Unknown,
}

/// Text that is borrowed from the line, unless something in it is escaped.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> Text<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Text(Cow::Borrowed(text))
    }
}

/// A record, flat.
#[derive(Serialize, Deserialize)]
pub(super) struct Flat<'a> {
    pub(super) id: StepId,
    pub(super) at: Millis,
    pub(super) is: Is,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) scope: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) parameters: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) precondition: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    node: Option<Text<'a>>,
    /// The last work on the key before this step.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Repeat::hurts")]
    repeat: Repeat,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<Cow<'a, CommandKey>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "is_null")]
    answer: Cow<'a, Value>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    why: Option<Text<'a>>,
}

#[expect(clippy::ptr_arg, reason = "serde hands the field over as it is")]
fn is_null(answer: &Cow<'_, Value>) -> bool {
    answer.is_null()
}

impl Flat<'_> {
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
            node: None,
            after: None,
            repeat: Repeat::Hurts,
            command: None,
            task: None,
            answer: Cow::Owned(Value::Null),
            why: None,
        }
    }

    /// Whether it has the fields that its word asks for.
    pub(super) fn is_complete(&self) -> bool {
        let Flat { source, scope, key, kind, parameters, task, why, .. } = self;
        let needed: &[&Option<Text<'_>>] = match self.is {
            Is::Intent => &[source, scope, key, kind, parameters],
            Is::Dispatched => &[task],
            Is::Succeeded => &[],
            Is::Failed | Is::Unknown => &[why],
        };
        needed.iter().all(|field| field.is_some())
    }
}

impl<'a> From<&'a Record> for Flat<'a> {
    fn from(Record { id, at, fact }: &'a Record) -> Self {
        let flat = |is| Flat::new(*id, *at, is);
        let text = |text: &'a String| Some(Text::of(text));
        match fact {
            Fact::Intent(intent) => Flat {
                repeat: intent.repeat,
                source: text(&intent.subject.source),
                scope: text(&intent.subject.scope),
                key: text(&intent.subject.key),
                kind: text(&intent.kind),
                parameters: text(&intent.parameters),
                precondition: intent.precondition.as_deref().map(Text::of),
                node: text(&intent.node).filter(|node| !node.0.is_empty()),
                command: intent.command.as_ref().map(Cow::Borrowed),
                ..flat(Is::Intent)
            },
            Fact::Dispatched { task } => Flat { task: text(task), ..flat(Is::Dispatched) },
            Fact::Ended(End::Succeeded { answer }) => {
                Flat { answer: Cow::Borrowed(answer), ..flat(Is::Succeeded) }
            }
            Fact::Ended(End::Failed { why }) => Flat { why: text(why), ..flat(Is::Failed) },
            Fact::Ended(End::Unknown { why }) => Flat { why: text(why), ..flat(Is::Unknown) },
        }
    }
}

/// A record lacks a field that its word asks for.
#[derive(Debug, thiserror::Error)]
#[error("a record of this kind needs the field `{0}`")]
pub(super) struct Missing(&'static str);

impl TryFrom<Flat<'_>> for Record {
    type Error = Missing;

    fn try_from(flat: Flat<'_>) -> Result<Self, Missing> {
        let needed = |name: &'static str, field: Option<Text<'_>>| {
            field.map(|text| text.0.into_owned()).ok_or(Missing(name))
        };
        let fact = match flat.is {
            Is::Intent => Fact::Intent(Intent {
                subject: Subject {
                    source: needed("source", flat.source)?,
                    scope: needed("scope", flat.scope)?,
                    key: needed("key", flat.key)?,
                },
                kind: needed("kind", flat.kind)?,
                parameters: needed("parameters", flat.parameters)?,
                precondition: flat.precondition.map(|text| text.0.into_owned()),
                node: flat.node.map(|text| text.0.into_owned()).unwrap_or_default(),
                repeat: flat.repeat,
                command: flat.command.map(Cow::into_owned),
            }),
            Is::Dispatched => Fact::Dispatched { task: needed("task", flat.task)? },
            Is::Succeeded => Fact::Ended(End::Succeeded { answer: flat.answer.into_owned() }),
            Is::Failed => Fact::Ended(End::Failed { why: needed("why", flat.why)? }),
            Is::Unknown => Fact::Ended(End::Unknown { why: needed("why", flat.why)? }),
        };
        Ok(Record { id: flat.id, at: flat.at, fact })
    }
}
