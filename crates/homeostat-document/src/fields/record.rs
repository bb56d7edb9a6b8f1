//! Tables with fields of their own ([`Record`]), and tables by the user's names ([`Map`]): how each is
//! read and described.

use serde_json::{Value as Json, json};

use super::{Fields, Work};
use crate::checker::Checker;
use crate::node::{Entry, Node, Value};
use crate::shape::{Definitions, Shape};
use crate::span::{Span, Spanned};

/// A table with named fields.
pub trait Record: Sized {
    /// Name of its definition in the JSON Schema.
    const NAME: &'static str;
    /// One sentence on what it is.
    const DOC: &'static str;

    /// Asks for every field, then builds the value. Must not return before all were asked.
    fn read(fields: &mut Fields<'_>) -> Option<Self>;
}

/// A table whose field names are the user's own: links by name, knobs by key.
pub trait Keyed: Sized {
    /// What a field name is, for the schema.
    const KEY: &'static str;

    /// Reads one field.
    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self>;

    /// Describes one field's value.
    fn entry_schema(definitions: &mut Definitions) -> Json;
}

/// Reads a node as a record and reports the fields that it does not have.
pub fn read_record<T: Record>(node: &Node, checker: &mut Checker) -> Option<T> {
    let entries = read_table(node, checker)?;
    Fields::new(entries, node.span, Work::Read(checker)).read()
}

/// The same for a record that has a name of its own: it takes it from [`Fields::name`].
pub fn read_named<T: Record>(
    name: &Spanned<String>,
    node: &Node,
    checker: &mut Checker,
) -> Option<T> {
    let entries = read_table(node, checker)?;
    let fields = Fields::new(entries, node.span, Work::Read(checker));
    Fields { name: Some(name), ..fields }.read()
}

/// Describes a record; its text is kept among the definitions, once.
pub fn describe_record<T: Record>(definitions: &mut Definitions) -> Json {
    if !definitions.contains(T::NAME) {
        let mut fields =
            Fields::new(&[], Span::default(), Work::Describe(definitions, serde_json::Map::new()));
        T::read(&mut fields);
        let schema = fields.into_schema(T::DOC);
        definitions.insert(T::NAME, schema);
    }
    json!({ "$ref": format!("#/$defs/{}", T::NAME) })
}

/// The entries of a table.
pub fn read_table<'n>(node: &'n Node, checker: &mut Checker) -> Option<&'n [Entry]> {
    let help = match &node.value {
        Value::Table(entries) => return Some(entries),
        Value::Null => Some("write `{}` to say that there is nothing in it".to_owned()),
        _ => None,
    };
    checker.expected("a table", node, help);
    None
}

/// A table by the user's own names, in the order of writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map<T>(pub Vec<T>);

impl<T: Keyed> Shape for Map<T> {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        let entries = read_table(node, checker)?;
        let read = |(key, node): &Entry| T::read_entry(key, node, checker);
        Some(Self(entries.iter().filter_map(read).collect()))
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let values = T::entry_schema(definitions);
        json!({ "type": "object", "propertyNames": { "description": T::KEY },
            "additionalProperties": values })
    }
}

/// Implements `Shape` for records.
#[macro_export]
macro_rules! record {
    ($($name:ty),+) => {$(
        impl $crate::Shape for $name {
            fn read(
                node: &$crate::Node,
                checker: &mut $crate::Checker,
            ) -> Option<Self> {
                $crate::read_record(node, checker)
            }

            fn schema(definitions: &mut $crate::Definitions) -> $crate::Json {
                $crate::describe_record::<Self>(definitions)
            }
        }
    )+};
}
