//! Whole numbers with a range, and those that have names.

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::node::{Node, Value};
use crate::shape::{ValueError, check};
use crate::words::refuse;

/// A type of whole numbers.
pub trait Whole: Copy + TryFrom<i128> + Into<i128> {}

impl<N: Copy + TryFrom<i128> + Into<i128>> Whole for N {}

/// Which whole numbers a field takes.
#[derive(Clone, Copy, Debug)]
pub struct Number<N> {
    /// What messages and the schema call it: "a metric".
    pub what: &'static str,
    pub least: N,
    pub most: N,
}

impl<N: Whole> Number<N> {
    /// Reads a number that is in the range.
    pub fn read(self, node: &Node, checker: &mut Checker) -> Option<N> {
        let Value::Int(number) = node.value else {
            checker.expected(self.what, node, help(node));
            return None;
        };
        let (least, most) = (self.least.into(), self.most.into());
        if (least..=most).contains(&number) {
            return N::try_from(number).ok();
        }
        let message = format!("`{number}` is not {}", self.what);
        let help = format!("it must be from {least} to {most}");
        checker.report(Diagnostic::new(node.span, message).help(help));
        None
    }

    /// Describes what `read` takes.
    #[must_use]
    pub fn schema(self) -> Json {
        let mut schema = self.range();
        schema["description"] = json!(self.what);
        schema
    }

    fn range(self) -> Json {
        let bound = |bound: N| i64::try_from(bound.into()).map_or(Json::Null, Json::from);
        json!({ "type": "integer", "minimum": bound(self.least), "maximum": bound(self.most) })
    }

    /// Reads a number, or one of the names that some numbers have.
    pub fn read_named(
        self,
        names: &[(&'static str, N)],
        node: &Node,
        checker: &mut Checker,
    ) -> Option<N> {
        match &node.value {
            Value::Text(text) => check(self.named(names, text), node, checker),
            _ => self.read(node, checker),
        }
    }

    /// Describes what `read_named` takes.
    #[must_use]
    pub fn named_schema(self, names: &[(&'static str, N)]) -> Json {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        json!({ "description": self.what, "anyOf": [self.range(), { "enum": names }] })
    }

    fn named(self, names: &[(&'static str, N)], text: &str) -> Result<N, ValueError> {
        if let Some((_, number)) = names.iter().find(|(name, _)| *name == text) {
            return Ok(*number);
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            return Err(ValueError::is_not(text, self.what).help("write the number without quotes"));
        }
        let words: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        let mut error = refuse(text, self.what, &words);
        error.help = error.help.map(|help| format!("{help}, or a number"));
        Err(error)
    }
}

fn help(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) if text.parse::<i128>().is_ok() => {
            Some("write it without quotes".to_owned())
        }
        Value::Ambiguous(_) => {
            Some("write a plain decimal number, without leading zeros or underscores".to_owned())
        }
        _ => None,
    }
}
