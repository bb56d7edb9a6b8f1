//! Tables with fields of their own, and tables by the user's names: how each is read and described.

use serde_json::{Map, Value as Json, json};

use super::{Fields, Work};
use crate::checker::Checker;
use crate::node::{Entry, Node, Value};
use crate::shape::Definitions;
use crate::span::{Span, Spanned};

/// A table with named fields.
pub(crate) trait Section: Sized {
    /// Name of its definition in the JSON Schema.
    const NAME: &'static str;
    /// One sentence on what it is.
    const DOC: &'static str;

    /// Asks for every field, then builds the value. Must not return before all were asked.
    fn read(fields: &mut Fields<'_>) -> Option<Self>;
}

/// A table whose field names are the user's own: links by name, knobs by key.
pub(crate) trait Keyed: Sized {
    /// What a field name is, for the schema.
    const KEY: &'static str;

    /// Reads one field.
    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self>;

    /// Describes one field's value.
    fn entry_schema(definitions: &mut Definitions) -> Json;
}

/// Reads a node as a section and reports the fields that it does not have.
pub(crate) fn read_section<T: Section>(node: &Node, checker: &mut Checker) -> Option<T> {
    let entries = read_table(node, checker)?;
    Fields::new(entries, node.span, Work::Read(checker)).read()
}

/// The same for a section that has a name of its own: it takes it from [`Fields::name`].
pub(crate) fn read_named<T: Section>(
    name: &Spanned<String>,
    node: &Node,
    checker: &mut Checker,
) -> Option<T> {
    let entries = read_table(node, checker)?;
    let fields = Fields::new(entries, node.span, Work::Read(checker));
    Fields { name: Some(name), ..fields }.read()
}

/// Describes a section; its text is kept among the definitions, once.
pub(crate) fn describe_section<T: Section>(definitions: &mut Definitions) -> Json {
    if !definitions.contains_key(T::NAME) {
        let mut fields = Fields::new(&[], Span::default(), Work::Describe(definitions, Map::new()));
        T::read(&mut fields);
        let schema = fields.into_schema(T::DOC);
        definitions.insert(T::NAME, schema);
    }
    json!({ "$ref": format!("#/$defs/{}", T::NAME) })
}

/// The entries of a table.
pub(crate) fn read_table<'n>(node: &'n Node, checker: &mut Checker) -> Option<&'n [Entry]> {
    let help = match &node.value {
        Value::Table(entries) => return Some(entries),
        Value::Null => Some("write `{}` to say that there is nothing in it".to_owned()),
        _ => None,
    };
    checker.expected("a table", node, help);
    None
}

/// Implements `Shape` for sections.
macro_rules! section {
    ($($name:ty),+) => {$(
        impl $crate::shape::Shape for $name {
            fn read(
                node: &$crate::node::Node,
                checker: &mut $crate::checker::Checker,
            ) -> Option<Self> {
                $crate::fields::read_section(node, checker)
            }

            fn schema(definitions: &mut $crate::shape::Definitions) -> serde_json::Value {
                $crate::fields::describe_section::<Self>(definitions)
            }
        }
    )+};
}
pub(crate) use section;
