//! The tables and fields of the document, as its JSON Schema has them.

use serde_json::Value;

/// A table of the document: a section, or an entry of one.
pub(super) struct Table {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) fields: Vec<Field>,
}

pub(super) struct Field {
    pub(super) name: String,
    pub(super) value: Vec<Piece>,
    pub(super) about: String,
    pub(super) is_required: bool,
}

/// A part of what is said about a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// The name of a table that is described by itself.
    Table(String),
}

const DEFINITION: &str = "#/$defs/";

/// All tables; the document itself is the first.
pub(super) fn tables(schema: &Value) -> Vec<Table> {
    let root = referred(schema).unwrap_or_default();
    let Some(all) = schema["$defs"].as_object() else { return Vec::new() };
    let mut tables: Vec<Table> = all.iter().map(|(name, one)| table(name, one)).collect();
    tables.sort_by_key(|table| table.name != root);
    tables
}

fn table(name: &str, schema: &Value) -> Table {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, field)| Field {
        name: name.clone(),
        value: value(field),
        about: about(field),
        is_required: required.iter().any(|one| one == name),
    });
    Table { name: name.to_owned(), about: about(schema), fields: fields.collect() }
}

/// A field that several kinds of an entry have says what it is for each of them.
fn about(schema: &Value) -> String {
    if let Some(text) = schema["description"].as_str() {
        return text.to_owned();
    }
    let kinds = schema["anyOf"].as_array().into_iter().flatten().map(about);
    kinds.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

fn referred(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix(DEFINITION)
}

/// What may be written as a value.
fn value(schema: &Value) -> Vec<Piece> {
    if let Some(name) = referred(schema) {
        return vec![Piece::Table(name.to_owned())];
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        return text(words.join(" | "));
    }
    if let Some(ways) = schema["anyOf"].as_array() {
        return joined(ways.iter().map(value), " | ");
    }
    if let Some(constant) = schema.get("const") {
        return text(constant.to_string());
    }
    match &schema["type"] {
        Value::Array(kinds) => joined(kinds.iter().map(|kind| text(word(kind))), " | "),
        Value::String(kind) if kind == "array" => {
            [text("[ "), value(&schema["items"]), text(", ... ]")].concat()
        }
        Value::String(kind) if kind == "object" => entries(schema),
        Value::String(kind) if kind == "integer" => text(range(schema)),
        kind => text(word(kind)),
    }
}

/// A table that has no name of its own: entries whose names a user chooses, and perhaps some fields.
fn entries(schema: &Value) -> Vec<Piece> {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, field)| [text(format!("{name} = ")), value(field)].concat());
    let others = match &schema["additionalProperties"] {
        Value::Object(_) => {
            let other = value(&schema["additionalProperties"]);
            Some([text("NAME = "), other].concat())
        }
        Value::Bool(true) => Some(text("NAME = anything")),
        _ => None,
    };
    [text("{ "), joined(fields.chain(others), ", "), text(" }")].concat()
}

fn range(schema: &Value) -> String {
    match (&schema["minimum"], &schema["maximum"]) {
        (Value::Number(least), Value::Number(most)) => format!("{least} to {most}"),
        (Value::Number(least), _) => format!("a number from {least} on"),
        _ => "a number".to_owned(),
    }
}

fn word(kind: &Value) -> &'static str {
    match kind.as_str() {
        Some("string") => "text",
        Some("boolean") => "true | false",
        Some("integer" | "number") => "a number",
        Some("array") => "a list",
        Some("object") => "a table",
        _ => "anything",
    }
}

fn text(text: impl Into<String>) -> Vec<Piece> {
    vec![Piece::Text(text.into())]
}

fn joined(parts: impl Iterator<Item = Vec<Piece>>, separator: &str) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for part in parts {
        if !all.is_empty() {
            all.extend(text(separator));
        }
        all.extend(part);
    }
    all
}
