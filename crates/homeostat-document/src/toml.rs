//! TOML text to tree.

use std::collections::HashMap;
use std::ops::Range;

use toml::Spanned as TomlSpanned;
use toml::de::{DeTable, DeValue};
use toml_parser::parser::{Event, EventKind, RecursionGuard};

use crate::diagnostic::Diagnostic;
use crate::node::{Entry, MAX_DEPTH, Node, Value};
use crate::span::{FileId, Span, Spanned};

/// Reads a whole file; every syntax error is reported.
pub(crate) fn parse(file: FileId, text: &str) -> Result<Node, Vec<Diagnostic>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let place = Place { file, depth: 0 };
        let entries = place.entries(table.into_inner()).map_err(|error| vec![error])?;
        return Ok(Node::new(Value::Table(entries), Span::new(file, 0, 0)));
    }
    Err(errors.iter().map(|error| diagnose(file, text, error)).collect())
}

/// How deep the keys of a broken document are walked.
const KEY_DEPTH: u32 = 80;

/// Where in the tree we are.
#[derive(Clone, Copy)]
struct Place {
    file: FileId,
    depth: usize,
}

impl Place {
    fn entries(self, table: DeTable<'_>) -> Result<Vec<Entry>, Diagnostic> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let span = self.span(key.span());
            let node = self.node(value)?;
            entries.push((Spanned::new(key.into_inner().into_owned(), span), node));
        }
        // The crate's table is sorted by name; people read in the order of writing.
        entries.sort_by_key(|(key, _)| key.span.start);
        Ok(entries)
    }

    fn node(self, value: TomlSpanned<DeValue<'_>>) -> Result<Node, Diagnostic> {
        let span = self.span(value.span());
        let deeper = Self { depth: self.depth + 1, ..self };
        if deeper.depth > MAX_DEPTH {
            return Err(Diagnostic::new(span, "this nests too deep"));
        }
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| Value::Float(number.to_string()), Value::Int),
            DeValue::Float(number) => Value::Float(number.as_str().to_owned()),
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Datetime(time) => Value::Ambiguous(time.to_string()),
            DeValue::Array(items) => {
                let items = items.into_iter().map(|item| deeper.node(item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Value::Table(deeper.entries(table)?),
        };
        Ok(Node::new(value, span))
    }

    fn span(self, range: Range<usize>) -> Span {
        Span::new(self.file, range.start, range.end)
    }
}

fn diagnose(file: FileId, text: &str, error: &toml::de::Error) -> Diagnostic {
    let range = error.span().unwrap_or(0..0);
    let span = Span::new(file, range.start, range.end);
    if error.message() != "duplicate key" {
        return Diagnostic::new(span, format!("this is not TOML: {}", error.message()));
    }
    let name = text.get(range.clone()).unwrap_or("").trim_matches(['"', '\'']);
    let twice = Diagnostic::new(span, format!("`{name}` is defined twice"));
    match first_place(text, &range) {
        Some(first) => twice.also(Span::new(file, first.start, first.end), "first defined here"),
        None => twice,
    }
}

/// Where the key that is written again at `again` was written first: the parser does not say, so
/// the keys are walked once more. Only done when there is an error to explain.
fn first_place(text: &str, again: &Range<usize>) -> Option<Range<usize>> {
    let source = toml_parser::Source::new(text);
    let tokens: Vec<_> = source.lex().collect();
    let mut events: Vec<Event> = Vec::new();
    let mut guarded = RecursionGuard::new(&mut events, KEY_DEPTH);
    toml_parser::parser::parse_document(&tokens, &mut guarded, &mut ());
    let mut walk = Walk::default();
    for event in events {
        let range = event.span().start()..event.span().end();
        if range == *again {
            walk.key(text.get(range)?, again.clone());
            return walk.seen.get(&walk.path()).cloned().filter(|first| first != again);
        }
        walk.step(&event, text);
    }
    None
}

/// The path of the key that the walk stands on, and where each path was seen first.
#[derive(Default)]
struct Walk {
    header: Vec<String>,
    /// One key path for each open inline table, the outermost first.
    keys: Vec<Vec<String>>,
    in_header: bool,
    tables: usize,
    seen: HashMap<Vec<String>, Range<usize>>,
}

impl Walk {
    fn step(&mut self, event: &Event, text: &str) {
        let range = event.span().start()..event.span().end();
        match event.kind() {
            EventKind::StdTableOpen | EventKind::ArrayTableOpen => self.open_header(event.kind()),
            EventKind::StdTableClose | EventKind::ArrayTableClose => self.in_header = false,
            EventKind::InlineTableOpen => self.keys.push(Vec::new()),
            EventKind::InlineTableClose => drop(self.keys.pop()),
            EventKind::SimpleKey => self.key(text.get(range.clone()).unwrap_or(""), range),
            EventKind::ValueSep | EventKind::Newline => self.next_key(),
            _ => {}
        }
    }

    fn open_header(&mut self, kind: EventKind) {
        self.keys = vec![Vec::new()];
        self.header.clear();
        self.in_header = true;
        if kind == EventKind::ArrayTableOpen {
            // Each table of an array has keys of its own.
            self.tables += 1;
            self.header.push(format!("[{}]", self.tables));
        }
    }

    fn next_key(&mut self) {
        if let Some(last) = self.keys.last_mut() {
            last.clear();
        }
    }

    fn key(&mut self, raw: &str, range: Range<usize>) {
        let name = raw.trim_matches(['"', '\'']).to_owned();
        match self.keys.last_mut() {
            _ if self.in_header => self.header.push(name),
            Some(last) => last.push(name),
            None => self.keys.push(vec![name]),
        }
        self.seen.entry(self.path()).or_insert(range);
    }

    fn path(&self) -> Vec<String> {
        self.header.iter().chain(self.keys.iter().flatten()).cloned().collect()
    }
}
