//! Writes the fields into the JSON Schema.

use serde_json::{Map, Value as Json, json};

use super::{Fields, Work};
use crate::shape::Definitions;

impl Fields<'_> {
    pub(super) fn describe(
        &mut self,
        name: &'static str,
        doc: &str,
        schema: impl FnOnce(&mut Definitions) -> Json,
    ) {
        let kinds = self.kinds;
        let Work::Describe(definitions, properties) = &mut self.work else { return };
        let mut schema = schema(definitions);
        let doc = match kinds {
            [] => doc.to_owned(),
            kinds => format!("{doc} (kind {})", kinds.join(", ")),
        };
        if let Some(what) = schema.get("description").and_then(Json::as_str) {
            schema["description"] = json!(format!("{doc}: {what}"));
        } else {
            schema["description"] = json!(doc);
        }
        insert_property(properties, name, schema);
    }

    pub(super) fn into_schema(self, doc: &str) -> Json {
        let required = self.missing;
        let Work::Describe(_, properties) = self.work else { return Json::Null };
        json!({ "type": "object", "description": doc, "properties": properties,
            "required": required, "additionalProperties": false })
    }
}

/// The same field of two kinds may take either shape.
fn insert_property(properties: &mut Map<String, Json>, name: &str, schema: Json) {
    let Some(first) = properties.get_mut(name) else {
        properties.insert(name.to_owned(), schema);
        return;
    };
    // A field of its own has a description, a joined one leaves that to its shapes.
    let joined = first.get("description").is_none();
    match first.get_mut("anyOf") {
        Some(Json::Array(shapes)) if joined => shapes.push(schema),
        _ => *first = json!({ "anyOf": [first.take(), schema] }),
    }
}
