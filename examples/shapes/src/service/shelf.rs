//! The shapes themselves, and what the service makes of what it is given.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http::Request;

/// A shape as the service stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Unique.
    pub name: String,
    /// Circle, square and so on.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is painted with, in small letters.
    pub colour: String,
    /// Whatever clients like to note.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// A few words for people; the label printer has room for eight letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Differs from that of a later shape of the same name.
    #[serde(default)]
    pub uid: u64,
    /// Grows with each change.
    #[serde(default)]
    pub version: u64,
}

/// How many letters a note may have.
const ROOM: usize = 8;

impl Stored {
    /// A shape without a mark.
    #[must_use]
    pub fn plain(name: &str, colour: &str) -> Self {
        let [name, kind, colour] = [name, "circle", colour].map(str::to_owned);
        Stored { name, kind, colour, labels: BTreeMap::new(), note: None, uid: 0, version: 0 }
    }

    /// The same with a label.
    #[must_use]
    pub fn labelled(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// What the service keeps of what it was given.
    pub(super) fn kept(mut self) -> Self {
        self.colour = self.colour.trim().to_lowercase();
        self.note = self.note.map(|note| note.chars().take(ROOM).collect());
        self
    }

    /// Whether the conditions of a request hold for this shape.
    pub(super) fn allows(&self, request: &Request) -> bool {
        let label = request.if_label.as_ref();
        let version = request.if_match.as_ref();
        label.is_none_or(|(name, value)| self.labels.get(name) == Some(value))
            && version.is_none_or(|version| *version == self.version.to_string())
    }

    /// This shape with a patch laid over it, if that is still a shape.
    pub(super) fn patched(&self, patch: &Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(merged(json!(self), patch))
    }
}

/// Lays `patch` over `base`, objects field by field; null takes a field away.
fn merged(mut base: Value, patch: &Value) -> Value {
    match (&mut base, patch) {
        (Value::Object(fields), Value::Object(patch)) => {
            for (name, value) in patch {
                let field = fields.remove(name).unwrap_or_default();
                let value = merged(field, value);
                if !value.is_null() {
                    fields.insert(name.clone(), value);
                }
            }
            base
        }
        (_, patch) => patch.clone(),
    }
}
