//! The JSON Schema of a document, from the very calls that read it.

use serde_json::{Value as Json, json};

use crate::document::Document;
use crate::fields::describe_section;
use crate::shape::Definitions;

/// The schema, in draft 2020-12, with a description for each field.
#[must_use]
pub fn schema() -> Json {
    let mut definitions = Definitions::new();
    let root = describe_section::<Document>(&mut definitions);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "homeostat document",
        "$ref": root["$ref"],
        "$defs": definitions,
    })
}
