//! Plain data in the formats of documents: no sections, no fields, only what is written.

use serde_json::{Map, Number, Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::fields::read_table;
use crate::files::Files;
use crate::load::{Format, parse_tree};
use crate::node::{Node, Value, shorten};
use crate::shape::{Definitions, Shape};

/// Reads a text as plain data; `name` is what messages call it. It is as strict as for documents: names that occur twice,
/// anchors and aliases of YAML, and scalars that readers of YAML take for different things are mistakes. A date of TOML is
/// a text.
pub fn read_data(name: &str, format: Format, text: &str) -> Result<Json, Diagnostics> {
    let mut files = Files::default();
    let file = files.add_text(name, text.to_owned());
    let tree = parse_tree(file, format, text);
    let data = tree.and_then(|tree| to_json(&tree, format).map_err(|error| vec![error]));
    data.map_err(|found| Diagnostics::new(files, found))
}

/// A table of plain data, whatever is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlainTable(pub Map<String, Json>);

impl Shape for PlainTable {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        read_table(node, checker)?;
        let format = checker.files.format(node.span.file).unwrap_or(Format::Toml);
        match to_json(node, format) {
            Ok(Json::Object(table)) => Some(PlainTable(table)),
            Ok(_) => None,
            Err(mistake) => {
                checker.report(mistake);
                None
            }
        }
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": "object", "additionalProperties": true })
    }
}

fn to_json(node: &Node, format: Format) -> Result<Json, Diagnostic> {
    let number = |number: Option<Number>, text: &str| {
        let refused = || Diagnostic::new(node.span, format!("`{}` is out of range", shorten(text)));
        number.map(Json::Number).ok_or_else(refused)
    };
    match &node.value {
        Value::Null => Ok(Json::Null),
        Value::Bool(value) => Ok(Json::Bool(*value)),
        Value::Int(value) => number(Number::from_i128(*value), &value.to_string()),
        Value::Float(text) => number(text.parse().ok().and_then(Number::from_f64), text),
        Value::Text(text) => Ok(Json::String(text.clone())),
        Value::Ambiguous(text) if format == Format::Toml => Ok(Json::String(text.clone())),
        Value::Ambiguous(text) => {
            let message = format!("readers of YAML take `{}` for different things", shorten(text));
            Err(Diagnostic::new(node.span, message).help("write it in quotes"))
        }
        Value::List(items) => items.iter().map(|item| to_json(item, format)).collect(),
        Value::Table(entries) => {
            let entry = |(name, node): &(_, Node)| -> Result<_, Diagnostic> {
                let name: &crate::span::Spanned<String> = name;
                Ok((name.value.clone(), to_json(node, format)?))
            };
            entries.iter().map(entry).collect::<Result<Map<_, _>, _>>().map(Json::Object)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_say_the_same() {
        let expected =
            json!({ "servers": [{ "name": "a", "weight": 10 }], "ratio": 0.5, "on": true });
        let check = |format, text| assert_eq!(read_data("x", format, text).unwrap(), expected);
        check(Format::Toml, "ratio = 0.5\non = true\nservers = [{ name = \"a\", weight = 10 }]\n");
        check(Format::Yaml, "servers:\n  - name: a\n    weight: 10\nratio: 0.5\n\"on\": true\n");
        check(
            Format::Json,
            r#"{ "servers": [{ "name": "a", "weight": 10 }], "ratio": 0.5, "on": true }"#,
        );
        let date = read_data("x", Format::Toml, "day = 2026-11-17\n").unwrap();
        assert_eq!(date, json!({ "day": "2026-11-17" }));
    }

    #[test]
    fn a_mistake_has_its_place() {
        let check = |format, text, expected: &str| {
            let found = read_data("list", format, text).unwrap_err().to_string();
            assert!(found.starts_with(expected), "{found}");
        };
        check(Format::Yaml, "a: 1\nb: no\n", "list:2:4: readers of YAML take `no`");
        check(Format::Json, "{ \"a\": 1, \"a\": 2 }", "list:1:11: `a` is defined twice");
        check(Format::Json, "[1, 2", "list:1:6:");
        check(Format::Yaml, "a: .inf\n", "list:1:4: `.inf` is out of range");
    }
}
