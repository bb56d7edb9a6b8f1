//! One line of the journal: a checksum and what happened to a step.

use std::fmt;
use std::str::FromStr;

use super::flat::Flat;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Names a step for good: which opening of the journal it was written in, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
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
        let parts = text.split_once('-');
        let id = parts.and_then(|(epoch, sequence)| {
            Some(StepId { epoch: epoch.parse().ok()?, sequence: sequence.parse().ok()? })
        });
        id.filter(|id| id.to_string() == text).ok_or_else(|| BadStepId(text.to_owned()))
    }
}

impl From<StepId> for String {
    fn from(id: StepId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for StepId {
    type Error = BadStepId;

    fn try_from(text: String) -> Result<Self, BadStepId> {
        text.parse()
    }
}

/// Milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// What a step is about, in the words of its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The source.
    pub source: String,
    /// Its scope.
    pub scope: String,
    /// The key.
    pub key: String,
}

/// What is about to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// What it is about.
    pub subject: Subject,
    /// What is done: `start`, `stop`, `set`.
    pub kind: String,
    /// A fingerprint of everything that is sent.
    pub parameters: String,
    /// What must hold for it to be done: a digest, a generation.
    pub precondition: Option<String>,
    /// The command that it belongs to, if a client may ask for it again.
    pub command: Option<CommandKey>,
}

/// A client's own name for a command, by which a second try is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandKey {
    /// The name.
    pub name: String,
    /// Until when the outcome is kept.
    pub expires: Millis,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The target did it.
    Succeeded {
        /// What the target answered, for whoever asks again.
        answer: Value,
    },
    /// The target did not do it.
    Failed {
        /// Its words.
        why: String,
    },
    /// Nobody knows; the next look tells.
    Unknown {
        /// What was lost.
        why: String,
    },
}

/// What happened to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// It is about to be sent.
    Intent(Intent),
    /// The target accepted it and works on it.
    Dispatched {
        /// The target's name for the work.
        task: String,
    },
    /// It is over.
    Ended(End),
}

/// One line. As JSON it is flat: the fields of its fact stand beside its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Flat", try_from = "Flat")]
pub struct Record {
    /// Which step.
    pub id: StepId,
    /// When.
    pub at: Millis,
    /// What happened.
    pub fact: Fact,
}

/// The beginning of a journal, and of each opening of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opening {
    /// The format.
    pub(super) journal: u32,
    pub(super) epoch: u32,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Line {
    Opening(Opening),
    Record(Record),
}

/// The digits of the checksum, and the blank after them.
const HEAD: usize = 9;

/// Writes a line, its end included.
pub(super) fn write(line: &Line, to: &mut Vec<u8>) -> serde_json::Result<()> {
    let start = to.len();
    to.extend_from_slice(b"00000000 ");
    serde_json::to_writer(&mut *to, line)?;
    let body = to.get(start + HEAD..).unwrap_or_default();
    let sum = format!("{:08x}", crc32fast::hash(body));
    if let Some(place) = to.get_mut(start..start + HEAD - 1) {
        place.copy_from_slice(sum.as_bytes());
    }
    to.push(b'\n');
    Ok(())
}

/// Reads a line without its end; nothing, if the checksum does not fit.
pub(super) fn read(line: &[u8]) -> Option<Line> {
    let (sum, body) = (line.get(..HEAD - 1)?, line.get(HEAD..)?);
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    let is_whole = line.get(HEAD - 1) == Some(&b' ') && crc32fast::hash(body) == sum;
    if !is_whole {
        return None;
    }
    if body.starts_with(b"{\"journal\"") {
        return serde_json::from_slice(body).ok().map(Line::Opening);
    }
    serde_json::from_slice(body).ok().map(Line::Record)
}
