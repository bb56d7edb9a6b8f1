//! Whole numbers with a range, each its own type so that a metric is never taken for a table.

use std::ops::RangeInclusive;

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::node::{Node, Value};

/// Defines number types: name, inner type, range, what it is called.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($inner:ty): $range:expr, $what:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// The number itself.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number, if it is in range.
            #[must_use]
            pub fn new(number: $inner) -> Option<Self> {
                let range: std::ops::RangeInclusive<$inner> = $range;
                range.contains(&number).then_some(Self(number))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $crate::shape::Shape for $name {
            fn read(
                node: &$crate::node::Node,
                checker: &mut $crate::checker::Checker,
            ) -> Option<Self> {
                let range: std::ops::RangeInclusive<$inner> = $range;
                let wide = i128::from(*range.start())..=i128::from(*range.end());
                let number = $crate::number::read_number($what, &wide, node, checker)?;
                <$inner>::try_from(number).ok().map(Self)
            }

            fn schema(_: &mut $crate::shape::Definitions) -> serde_json::Value {
                let range: std::ops::RangeInclusive<$inner> = $range;
                $crate::number::number_schema($what, *range.start(), *range.end())
            }
        }
    )+};
}
pub(crate) use numbers;

/// A whole number in the range.
pub(crate) fn read_number(
    what: &str,
    range: &RangeInclusive<i128>,
    node: &Node,
    checker: &mut Checker,
) -> Option<i128> {
    let Value::Int(number) = node.value else {
        checker.expected(what, node, help(node));
        return None;
    };
    if range.contains(&number) {
        return Some(number);
    }
    let message = format!("`{number}` is not {what}");
    let help = format!("it must be from {} to {}", range.start(), range.end());
    checker.report(Diagnostic::new(node.span, message).help(help));
    None
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

pub(crate) fn number_schema(what: &str, least: impl Into<Json>, most: impl Into<Json>) -> Json {
    json!({ "type": "integer", "minimum": least.into(), "maximum": most.into(),
        "description": what })
}
