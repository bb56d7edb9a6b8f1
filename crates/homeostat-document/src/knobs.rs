//! `[sysctl]`, a link's `sysctl` and `[cgroups]`: keys and the text to be written to them.

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::error::ValueError;
use crate::fields::{Fields, Keyed, Section, describe_section, read_section, read_table};
use crate::key::{KeyError, check_parts, knob_path};
use crate::node::{Node, Value};
use crate::shape::{Definitions, Shape, check};
use crate::span::{Span, Spanned};

/// One knob: the key as the user wrote it, and the value as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The key, unchanged; [`knob_path`] says which file it names.
    pub key: Spanned<String>,
    /// The value: integers in decimal, lists of them with one space between.
    pub value: Spanned<String>,
    /// Whether it may be taken from anybody.
    pub adopt: bool,
}

/// A control group that exists, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The path below the root of the hierarchy, such as `machine/web`.
    pub path: Spanned<String>,
    /// Whether it may be taken from whoever manages it.
    pub adopt: bool,
    /// The limits by file name, such as `memory.max`. A list of texts becomes one line each.
    pub limits: Vec<Knob>,
}

/// The text of a knob's value.
struct KnobText(String);

/// `{ value = ..., adopt = true }`.
struct Detailed {
    value: Spanned<KnobText>,
    adopt: bool,
}

const WRITE_ADOPT: &str = "Standing leave to take this from whoever owns it";

impl Keyed for Knob {
    const KEY: &'static str = "a sysctl key: `net.ipv4.ip_forward` or `net/ipv4/ip_forward`";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        if is_unquoted(key, node, checker) {
            return None;
        }
        let key_fits = check_key(key.span, knob_path(key), checker);
        let knob = read_knob(key, node, checker)?;
        key_fits.then_some(knob)
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        let plain = KnobText::schema(definitions);
        json!({ "anyOf": [plain, describe_section::<Detailed>(definitions)] })
    }
}

/// A knob below a link; its key is checked together with the link's name.
pub(crate) struct KnobOfLink(pub(crate) Knob);

impl Keyed for KnobOfLink {
    const KEY: &'static str = "a knob of the link: `ipv4/rp_filter`, `ipv6/accept_ra`";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        if is_unquoted(key, node, checker) {
            return None;
        }
        read_knob(key, node, checker).map(Self)
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        Knob::entry_schema(definitions)
    }
}

impl Keyed for Cgroup {
    const KEY: &'static str = "the path of a control group, such as `machine/web`";

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        let parts: Vec<String> = key.split('/').map(str::to_owned).collect();
        let path_fits = check_key(key.span, check_parts(key, &parts), checker);
        let entries = read_table(node, checker)?;
        let (mut adopt, mut limits) = (false, Vec::new());
        for (name, node) in entries {
            if name.value == "adopt" {
                adopt = bool::read(node, checker).unwrap_or(false);
            } else {
                limits.extend(read_limit(name, node, checker));
            }
        }
        path_fits.then(|| Self { path: key.clone(), adopt, limits })
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        let mut limit = Knob::entry_schema(definitions);
        limit["description"] = json!("A limit by its file name, such as `memory.max`");
        json!({ "type": "object",
            "properties": { "adopt": { "type": "boolean", "description": WRITE_ADOPT } },
            "additionalProperties": limit })
    }
}

fn read_limit(name: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Knob> {
    if is_unquoted(name, node, checker) {
        return None;
    }
    let knob = read_knob(name, node, checker);
    let named = name.split('.').count() > 1 && name.split('.').all(|part| !part.is_empty());
    if named && !name.contains(|c: char| c == '/' || c.is_control() || c.is_whitespace()) {
        return knob;
    }
    let message = ValueError::is_not(name, "the name of a limit").message;
    checker.report(
        Diagnostic::new(name.span, message)
            .help("write the name of a file of the group, such as \"memory.max\""),
    );
    None
}

fn read_knob(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Knob> {
    let (value, adopt) = if let Value::Table(_) = node.value {
        let detailed: Detailed = read_section(node, checker)?;
        (detailed.value, detailed.adopt)
    } else {
        (Spanned::read(node, checker)?, false)
    };
    Some(Knob { key: key.clone(), value: value.map(|text| text.0), adopt })
}

/// Reports a key that was meant as one but became nested tables, as TOML has it without quotes.
fn is_unquoted(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> bool {
    let mut parts = vec![key.as_str()];
    let mut inner = node;
    while let Value::Table(entries) = &inner.value {
        let Some((name, node)) = entries.first() else { return false };
        parts.push(name);
        inner = node;
    }
    let detailed = matches!(parts.as_slice(), [_] | [_, "value" | "adopt"]);
    if detailed || key.contains(['.', '/']) {
        return false;
    }
    let nested = Diagnostic::new(key.span, format!("`{}` is a table here, not a knob", key.value));
    checker.report(nested.help(format!("quote the whole key: \"{}\"", parts.join("."))));
    true
}

/// Reports a refused key; whether it was fine.
fn check_key<T>(span: Span, result: Result<T, KeyError>, checker: &mut Checker) -> bool {
    let Err(error) = result else { return true };
    checker.report(refuse_key(span, &error));
    false
}

/// What is wrong with a key, with the way out.
pub(crate) fn refuse_key(span: Span, error: &KeyError) -> Diagnostic {
    let help = match error {
        KeyError::NotOfLink(_) => "write ipv4, ipv6 or mpls, then the knob: \"ipv4/rp_filter\"",
        KeyError::NoSeparator(_) => "write the whole key, such as \"net.ipv4.ip_forward\"",
        KeyError::EmptyPart(_) => "no separator at the beginning, at the end, or twice in a row",
        KeyError::Traversal(_) => "parts of a key cannot be `.` or `..`",
        KeyError::Control(_) => "a key is one line of plain text",
    };
    Diagnostic::new(span, error.to_string()).help(help)
}

impl Section for Detailed {
    const NAME: &'static str = "knob";
    const DOC: &'static str = "A knob with more than its value";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let value = fields.required("value", "What to write");
        let adopt = fields.flag("adopt", WRITE_ADOPT);
        Some(Self { value: value?, adopt })
    }
}

impl Shape for KnobText {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        match &node.value {
            Value::Int(number) => Some(Self(number.to_string())),
            Value::Text(text) => check(one_line(text), node, checker).map(Self),
            Value::List(items) if !items.is_empty() => read_items(node, items, checker).map(Self),
            Value::Bool(value) => {
                let help = format!("write {}: knobs are switched by 1 or 0", u8::from(*value));
                checker.expected("a knob's value", node, Some(help));
                None
            }
            _ => {
                let help = node.scalar().map(|text| format!("quote it: \"{text}\""));
                checker.expected("a number, text or a list of numbers", node, help);
                None
            }
        }
    }

    fn schema(_: &mut Definitions) -> Json {
        json!({ "description": "a number, text, or a list of numbers",
            "anyOf": [{ "type": ["integer", "string"] },
                { "type": "array", "minItems": 1, "items": { "type": ["integer", "string"] } }] })
    }
}

/// Numbers stand on one line, texts on a line each (keyed limits such as `io.max`).
fn read_items(node: &Node, items: &[Node], checker: &mut Checker) -> Option<String> {
    let numbers: Option<Vec<String>> = items.iter().map(as_number).collect();
    if let Some(numbers) = numbers {
        return Some(numbers.join(" "));
    }
    let texts: Option<Vec<&str>> = items.iter().map(as_text).collect();
    let Some(texts) = texts else {
        checker.expected("a list of numbers, or one of texts", node, None);
        return None;
    };
    let lines: Result<Vec<String>, ValueError> = texts.into_iter().map(one_line).collect();
    check(lines, node, checker).map(|lines| lines.join("\n"))
}

fn as_number(node: &Node) -> Option<String> {
    if let Value::Int(number) = node.value { Some(number.to_string()) } else { None }
}

fn as_text(node: &Node) -> Option<&str> {
    if let Value::Text(text) = &node.value { Some(text) } else { None }
}

fn one_line(text: &str) -> Result<String, ValueError> {
    match text.find(['\0', '\n', '\r']) {
        Some(_) => Err(ValueError::new("a knob's value cannot hold a newline or a NUL byte")
            .help("the value is written as one line, without the newline at its end")),
        None => Ok(text.to_owned()),
    }
}
