//! The managed part of a shape, field by field.

use std::collections::BTreeMap;

use homeostat_kit::normalize::{Field, Fields, Trust};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is declared of a shape. Labels and notes that are not declared agree with anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Circle, square and so on.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is painted with.
    pub colour: String,
    /// The labels that it must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A few words for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What the service makes of each field. It cuts notes short, so that no note may be corrected.
pub const FIELDS: Fields<Shape> = Fields::new(&[
    Field {
        name: "type",
        normalize: |shape| shape,
        agrees: |wanted, seen| wanted.kind == seen.kind,
        trust: Trust::Proven,
    },
    Field {
        name: "colour",
        normalize: |shape| Shape { colour: shape.colour.trim().to_lowercase(), ..shape },
        agrees: |wanted, seen| wanted.colour == seen.colour,
        trust: Trust::Proven,
    },
    Field {
        name: "labels",
        normalize: |shape| shape,
        agrees: |wanted, seen| wanted.labels.iter().all(|(k, v)| seen.labels.get(k) == Some(v)),
        trust: Trust::Proven,
    },
    Field {
        name: "note",
        normalize: |shape| shape,
        agrees: |wanted, seen| wanted.note.is_none() || wanted.note == seen.note,
        trust: Trust::Unproven,
    },
]);

impl Shape {
    #[must_use]
    pub fn square(colour: &str) -> Self {
        let [kind, colour] = ["square", colour].map(str::to_owned);
        Shape { kind, colour, labels: BTreeMap::new(), note: None }
    }

    /// The fields that have to be written, and nothing else.
    #[must_use]
    pub fn patch(&self, seen: &Shape) -> Value {
        let whole = json!(self);
        let changed = FIELDS.changed(self, seen);
        changed.into_iter().map(|name| (name.to_owned(), whole[name].clone())).collect()
    }
}
