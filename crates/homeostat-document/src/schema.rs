//! The JSON Schema of a document, from the very calls that read it.

use serde_json::{Value as Json, json};

use crate::document::Document;
use crate::fields::describe_record;
use crate::load::DocumentReader;
use crate::shape::Definitions;

impl DocumentReader {
    /// The schema, in draft 2020-12, with a description for each field.
    #[must_use]
    pub fn schema(&self) -> Json {
        let mut definitions = Definitions::new(self.sources);
        let root = describe_record::<Document>(&mut definitions);
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "homeostat document",
            "$ref": root["$ref"],
            "$defs": definitions.into_parts(),
        })
    }
}
