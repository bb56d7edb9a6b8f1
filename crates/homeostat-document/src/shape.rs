//! How a value of each type is read from a node, and how the JSON Schema describes it: one trait
//! for both, so that they cannot disagree.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::node::{Node, Value, shorten};
use crate::section::SourceSections;
use crate::span::Spanned;

/// Named parts of the JSON Schema.
#[derive(Debug)]
pub struct Definitions {
    pub(crate) parts: BTreeMap<&'static str, Json>,
    pub(crate) sources: &'static [SourceSections],
}

impl Definitions {
    pub(crate) fn new(sources: &'static [SourceSections]) -> Self {
        Self { parts: BTreeMap::new(), sources }
    }
}

/// A type that a field can have.
pub trait Shape: Sized {
    /// Reads the node; what is wrong with it goes to the checker.
    fn read(node: &Node, checker: &mut Checker) -> Option<Self>;

    /// Describes what `read` takes.
    fn schema(definitions: &mut Definitions) -> Json;
}

/// A value that is not what it should be, with the way out where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ValueError {
    /// What is wrong; quotes the value.
    pub message: String,
    /// The way out.
    pub help: Option<String>,
}

impl ValueError {
    /// A message without help.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    /// "`text` is not WHAT".
    #[must_use]
    pub fn is_not(text: &str, what: &str) -> Self {
        Self::new(format!("`{}` is not {what}", shorten(text)))
    }

    /// The same with the way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A type that is written as text.
pub trait Text: Sized {
    /// What a text is expected to be, for messages and the schema: "an IP address".
    const WHAT: &'static str;

    /// Reads the text strictly.
    fn from_text(text: &str) -> Result<Self, ValueError>;

    /// The words it can be, if they can be listed.
    #[must_use]
    fn words() -> Vec<&'static str> {
        Vec::new()
    }

    /// The text that the number 0 stands for, if it needs no unit.
    const ZERO: Option<&'static str> = None;
}

impl<T: Text> Shape for T {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Text(text) = &node.value {
            return check(T::from_text(text), node, checker);
        }
        if let (Value::Int(0), Some(zero)) = (&node.value, T::ZERO) {
            return check(T::from_text(zero), node, checker);
        }
        let help = node.scalar().and_then(|text| help_quoting::<T>(&text));
        checker.expected(T::WHAT, node, help);
        None
    }

    fn schema(_: &mut Definitions) -> Json {
        let words = T::words();
        if words.is_empty() {
            let text = json!({ "type": "string", "description": T::WHAT });
            return T::ZERO.map_or(text.clone(), |_| json!({ "anyOf": [text, { "const": 0 }] }));
        }
        json!({ "enum": words, "description": T::WHAT })
    }
}

impl Shape for bool {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        if let Value::Bool(value) = node.value {
            return Some(value);
        }
        let help = match node.scalar().as_deref() {
            Some("1" | "yes" | "on" | "true") => Some("write `true`, without quotes".to_owned()),
            Some("0" | "no" | "off" | "false") => Some("write `false`, without quotes".to_owned()),
            _ => None,
        };
        checker.expected("`true` or `false`", node, help);
        None
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "type": "boolean" })
    }
}

impl<T: Shape> Shape for Spanned<T> {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        T::read(node, checker).map(|value| Spanned::new(value, node.span))
    }

    fn schema(definitions: &mut Definitions) -> Json {
        T::schema(definitions)
    }
}

impl<T: Shape> Shape for Vec<T> {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        let items = read_list(node, checker)?;
        Some(items.iter().filter_map(|item| read_whole(item, checker)).collect())
    }

    fn schema(definitions: &mut Definitions) -> Json {
        json!({ "type": "array", "items": T::schema(definitions) })
    }
}

impl Text for String {
    const WHAT: &'static str = "text";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        Ok(text.to_owned())
    }
}

impl Text for IpAddr {
    const WHAT: &'static str = "an IP address";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| {
            let error = ValueError::is_not(text, Self::WHAT);
            match text.split_once('/') {
                Some((addr, _)) if addr.parse::<Self>().is_ok() => {
                    error.help(format!("write it without a prefix length: `{addr}`"))
                }
                _ => error,
            }
        })
    }
}

/// Host bits are kept as written.
impl Text for Ipv4Addr {
    const WHAT: &'static str = "an IPv4 address";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|_| ValueError::is_not(text, Self::WHAT))
    }
}

impl Text for IpNet {
    const WHAT: &'static str = "an address with a prefix length, such as \"192.0.2.1/24\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let Some((ip, len)) = text.split_once('/') else {
            let host = IpNet::from(IpAddr::from_text(text)?);
            let message = format!("`{text}` has no prefix length");
            return Err(ValueError::new(message).help(format!("write `{host}`")));
        };
        let host = IpNet::from(IpAddr::from_text(ip)?);
        // `/08` is eight for some readers and no number for others.
        let is_plain = len == "0" || !len.starts_with('0');
        text.parse().ok().filter(|_| is_plain).ok_or_else(|| {
            let family = if host.addr().is_ipv4() { "IPv4" } else { "IPv6" };
            let message = format!("`/{len}` is not a prefix length of {family}");
            ValueError::new(message).help(format!("it must be from /0 to /{}", host.prefix_len()))
        })
    }
}

/// A file whose content belongs to the document.
impl Shape for PathBuf {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        let text = read_path(node, checker)?;
        Some(checker.resolve_file(node.span, &text))
    }

    fn schema(_: &mut Definitions) -> Json {
        path_schema()
    }
}

/// A place on the machine. Unlike a file whose content belongs to the document, it never has a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinePath(pub PathBuf);

impl Shape for MachinePath {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        let text = read_path(node, checker)?;
        Some(MachinePath(checker.resolve(node.span, &text)))
    }

    fn schema(_: &mut Definitions) -> Json {
        path_schema()
    }
}

fn read_path(node: &Node, checker: &mut Checker) -> Option<String> {
    let text = String::read(node, checker)?;
    if text.is_empty() || text.contains('\0') {
        checker.expected("a path", node, None);
        return None;
    }
    Some(text)
}

fn path_schema() -> Json {
    json!({ "type": "string", "description": "a path, seen from the document's own directory" })
}

/// An item without any mistake in it. One that is half read would be taken for the twin of another.
fn read_whole<T: Shape>(item: &Node, checker: &mut Checker) -> Option<T> {
    let before = checker.found.len();
    let value = T::read(item, checker);
    value.filter(|_| checker.found.len() == before)
}

/// The items of a list.
pub fn read_list<'n>(node: &'n Node, checker: &mut Checker) -> Option<&'n [Node]> {
    let help = match &node.value {
        Value::List(items) => return Some(items),
        Value::Null => Some("write `[]` to say that there are none".to_owned()),
        _ => Some("write it as a list: `[...]`".to_owned()),
    };
    checker.expected("a list", node, help);
    None
}

/// What to do about a scalar that is not text: quotes help only if the text would be fine.
fn help_quoting<T: Text>(text: &str) -> Option<String> {
    match T::from_text(text) {
        Ok(_) => Some(format!("quote it: \"{}\"", shorten(text))),
        Err(error) => error.help,
    }
}

/// Turns a refusal into a mistake at the node.
pub fn check<T>(result: Result<T, ValueError>, node: &Node, checker: &mut Checker) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            checker.report(Diagnostic::new(node.span, error.message).maybe_help(error.help));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_strictly() {
        for text in ["10.0.0.1/24", "0.0.0.0/0", "fd00::1/64", "::/0", "::ffff:1.2.3.4/128"] {
            assert_eq!(IpNet::from_text(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1/",
            "10.0.0.1/33",
            "10.0.0.1/-1",
            "10.0.0.1/+8",
            "10.0.0.1/08",
            "::/129",
            "10.0.0/8",
            "/8",
            "default",
        ] {
            assert!(IpNet::from_text(text).is_err(), "{text}");
        }
    }
}
