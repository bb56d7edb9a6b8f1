//! The one tree that TOML, YAML and JSON become before anything is checked.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::span::{FileId, Span, Spanned};

/// How deep lists and tables may nest; a document needs six levels.
pub(crate) const MAX_DEPTH: usize = 64;

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Node {
    pub value: Value,
    /// Where it was written.
    pub span: Span,
}

/// What was written, as far as the format itself says.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    /// A number with a fraction or an exponent, as written; few fields want one.
    Float(String),
    Text(String),
    /// A scalar that readers of this format take for different things (`0755`, `no`, a date).
    Ambiguous(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A field of a table, in the order of writing.
pub type Entry = (Spanned<String>, Node);

impl Node {
    pub(crate) const fn new(value: Value, span: Span) -> Self {
        Self { value, span }
    }

    /// A copy in another file.
    pub(crate) fn copied_to(&self, file: FileId) -> Self {
        let span = |span: Span| Span { file, ..span };
        let value = match &self.value {
            Value::List(items) => {
                Value::List(items.iter().map(|item| item.copied_to(file)).collect())
            }
            Value::Table(entries) => {
                let copied = entries.iter().map(|(key, node)| {
                    (Spanned::new(key.value.clone(), span(key.span)), node.copied_to(file))
                });
                Value::Table(copied.collect())
            }
            scalar => scalar.clone(),
        };
        Self { value, span: span(self.span) }
    }

    /// The value, in words for a message.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Int(value) => format!("the number `{value}`"),
            Value::Float(text) => format!("the number `{}`", shorten(text)),
            Value::Text(text) => format!("the text \"{}\"", shorten(text)),
            Value::Ambiguous(text) => format!("`{}`", shorten(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        }
    }

    /// How a scalar was written, for "write it in quotes".
    #[must_use]
    pub fn scalar(&self) -> Option<String> {
        match &self.value {
            Value::Bool(value) => Some(value.to_string()),
            Value::Int(value) => Some(value.to_string()),
            Value::Float(text) | Value::Ambiguous(text) | Value::Text(text) => Some(text.clone()),
            Value::Null | Value::List(_) | Value::Table(_) => None,
        }
    }
}

/// A user's value for a message: long ones are cut.
#[must_use]
pub fn shorten(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or("")),
        None => text.to_owned(),
    }
}

/// Builds a table and refuses a name that is already in it.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) list: Vec<Entry>,
    places: HashMap<String, Span>,
}

impl Entries {
    /// Adds an entry, or says where its name was used before.
    pub(crate) fn add(&mut self, entry: Entry) -> Option<Diagnostic> {
        let (name, span) = (&entry.0.value, entry.0.span);
        if let Some(first) = self.places.get(name) {
            return Some(twice(name, span, *first));
        }
        self.places.insert(name.clone(), span);
        self.list.push(entry);
        None
    }
}

/// "`name` is defined twice", with both places.
pub(crate) fn twice(name: &str, again: Span, first: Span) -> Diagnostic {
    Diagnostic::new(again, format!("`{}` is defined twice", shorten(name)))
        .also(first, "first defined here")
}
