//! What the journal knows of a step, record by record.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Names a step for good: which opening of the journal it was written in, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId {
    /// Counts the openings of the journal.
    pub epoch: u32,
    /// Counts the steps since then.
    pub sequence: u64,
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.sequence)
    }
}

/// Some text is no id of a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no id of a step; one looks like 3-17")]
pub struct BadStepId(String);

impl FromStr for StepId {
    type Err = BadStepId;

    fn from_str(text: &str) -> Result<Self, BadStepId> {
        let parts =
            text.split_once('-').filter(|(epoch, sequence)| is_plain(epoch) && is_plain(sequence));
        let id = parts.and_then(|(epoch, sequence)| {
            Some(StepId { epoch: epoch.parse().ok()?, sequence: sequence.parse().ok()? })
        });
        id.ok_or_else(|| BadStepId(text.to_owned()))
    }
}

/// Whether a number is written as we write it: an id has one spelling.
fn is_plain(number: &str) -> bool {
    number == "0" || !number.starts_with(['0', '+'])
}

impl Serialize for StepId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StepId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// What a step is about, in the words of its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Subject {
    pub source: String,
    pub scope: String,
    pub key: String,
}

/// What is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// What it is about.
    #[serde(flatten)]
    pub subject: Subject,
    /// What is done: `start`, `stop`, `set`.
    pub kind: String,
    /// A fingerprint of everything that is sent.
    pub parameters: String,
    /// What must hold for it to be done: a digest, a generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<String>,
    /// Where it runs; empty where nodes are not distinguished.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// What sending it a second time would do.
    #[serde(default, skip_serializing_if = "Repeat::hurts")]
    pub repeat: Repeat,
    /// The command that it belongs to, if a client may ask for it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandKey>,
}

/// What sending a step a second time would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repeat {
    /// Harm: it is sent only once it is written down, and looked up after a crash.
    #[default]
    Hurts,
    /// Nothing new: it is written down for readers of the journal.
    Harmless,
}

impl Repeat {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a field over so")]
    fn hurts(&self) -> bool {
        *self == Repeat::Hurts
    }
}

/// A client's own name for a command, by which a second try is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct CommandKey {
    pub name: String,
    /// Until when the outcome is kept.
    pub expires: Millis,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum End {
    /// The target did it.
    Succeeded {
        /// What the target answered, for a client that asks again.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        answer: Value,
    },
    /// The target did not do it.
    Failed {
        /// Its words.
        why: String,
    },
    /// It is not known; the next look shows it.
    Unknown {
        /// What was lost.
        why: String,
    },
}

/// What happened to a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Fact {
    /// It is about to be sent.
    Intent(Intent),
    /// The target accepted it and works on it.
    Dispatched {
        /// The target's name for the work.
        task: String,
    },
    /// It is over.
    #[serde(untagged)]
    Ended(End),
}

/// One thing that happened to a step. As JSON it is flat: the fields of its fact stand beside its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Record {
    pub id: StepId,
    pub at: Millis,
    #[serde(flatten)]
    pub fact: Fact,
}

/// A record as a store keeps it.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub struct Entry {
    /// Its position in the order of all records. Numbers grow, and none is used twice.
    pub number: i64,
    pub record: Record,
    /// Of an intent: the target's name for the last work on the key before it.
    pub previous_task: Option<String>,
}
