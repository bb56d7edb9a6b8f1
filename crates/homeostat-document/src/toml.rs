//! TOML text to tree.
//!
//! The parser's events build the tree as they come. Tables are open to later headers and dotted keys until the text
//! ends, or the next table of their array begins; values are final at once.

use std::borrow::Cow;
use std::collections::HashMap;

use toml_parser::decoder::{Encoding, ScalarKind};
use toml_parser::lexer::{Token, TokenKind};
use toml_parser::parser::{EventReceiver, RecursionGuard, ValidateWhitespace, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError, Source, Span as TomlSpan};

use crate::diagnostic::Diagnostic;
use crate::node::{Entry, MAX_DEPTH, Node, Value, shorten, twice};
use crate::span::{FileId, Span, Spanned};

/// How deep lists and inline tables are parsed.
const PARSED_DEPTH: u32 = 80;

/// How many tokens are parsed at once, at least: a document of many tables is not held as tokens all at once.
const TOKENS: usize = 4096;

/// Up to this many fields, a table is searched from one end to the other.
const FEW: usize = 12;

/// Reads a whole file; every syntax error is reported.
pub(crate) fn parse(file: FileId, text: &str) -> Result<Node, Vec<Diagnostic>> {
    let source = Source::new(text);
    let mut builder = Builder::new(file, source);
    let mut errors: Vec<ParseError> = Vec::new();
    let mut tokens: Vec<Token> = Vec::new();
    let mut open = 0_usize;
    for token in source.lex() {
        tokens.push(token);
        match token.kind() {
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => open += 1,
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => {
                open = open.saturating_sub(1);
            }
            TokenKind::Newline if open == 0 && tokens.len() >= TOKENS => {
                builder.take(&tokens, &mut errors);
                tokens.clear();
            }
            _ => {}
        }
    }
    builder.take(&tokens, &mut errors);
    builder.finish(&errors)
}

/// Builds the tree of one file.
struct Builder<'t> {
    file: FileId,
    source: Source<'t>,
    root: Table,
    /// The path of the table that keys go to, as the last header wrote it.
    header: Vec<Spanned<String>>,
    /// Takes the keys below a header that cannot stand there.
    misplaced: Option<Table>,
    /// The header that is being read: where it begins, and whether it is that of an array.
    reading: Option<(TomlSpan, bool)>,
    /// The key whose value comes next, with the keys before its dots.
    key: Vec<Spanned<String>>,
    /// The lists and inline tables that are open, the outermost first.
    nested: Vec<Nested>,
    /// Where the first value is that nests too deep.
    too_deep: Option<Span>,
    found: Vec<(usize, Diagnostic)>,
}

enum Nested {
    List { start: usize, items: Vec<Node> },
    Table { start: usize, table: Table, key: Vec<Spanned<String>> },
}

/// A table that may still get fields.
struct Table {
    written_as: WrittenAs,
    fields: Vec<(Spanned<String>, Item)>,
    /// Where each name is among the fields, once they are many.
    places: HashMap<String, usize>,
}

/// How a table came to be, which decides what may be added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WrittenAs {
    /// On the way to the table of a header: `a` of `[a.b]`. It may get a header of its own.
    Parent,
    /// By dotted keys, which may add to it.
    Dotted,
    /// By a header, or in braces: it is written in one place.
    Whole,
}

enum Item {
    Value(Node),
    Table {
        span: Span,
        table: Table,
    },
    /// All but the last are final.
    Tables {
        span: Span,
        closed: Vec<Node>,
        last_span: Span,
        last: Table,
    },
}

impl<'t> Builder<'t> {
    fn new(file: FileId, source: Source<'t>) -> Self {
        Builder {
            file,
            source,
            root: Table::new(WrittenAs::Whole),
            header: Vec::new(),
            misplaced: None,
            reading: None,
            key: Vec::new(),
            nested: Vec::new(),
            too_deep: None,
            found: Vec::new(),
        }
    }

    fn take(&mut self, tokens: &[Token], errors: &mut Vec<ParseError>) {
        let source = self.source;
        let mut whitespace = ValidateWhitespace::new(self, source);
        let mut guarded = RecursionGuard::new(&mut whitespace, PARSED_DEPTH);
        parse_document(tokens, &mut guarded, errors);
    }

    fn finish(self, errors: &[ParseError]) -> Result<Node, Vec<Diagnostic>> {
        let mut found = self.found;
        found.extend(errors.iter().map(|error| {
            let (start, end) = error.unexpected().map_or((0, 0), |at| (at.start(), at.end()));
            let message = format!("this is not TOML: {}", describe(error));
            (start, Diagnostic::new(Span::new(self.file, start, end), message))
        }));
        // The parser has its own limit, and says so.
        if let Some(span) = self.too_deep.filter(|_| errors.is_empty()) {
            found.push((span.start as usize, Diagnostic::new(span, "this nests too deep")));
        }
        if found.is_empty() {
            return Ok(Node::new(self.root.finish(), Span::new(self.file, 0, 0)));
        }
        found.sort_by_key(|(start, _)| *start);
        Err(found.into_iter().map(|(_, diagnostic)| diagnostic).collect())
    }

    fn span(&self, span: TomlSpan) -> Span {
        Span::new(self.file, span.start(), span.end())
    }

    /// A header is complete: its table is found or made, and takes the keys from here on.
    fn open_table(&mut self, span: Span, is_array: bool) {
        self.misplaced = None;
        let path = &self.header;
        let Some((key, parents)) = path.split_last() else { return };
        let opened = if 2 * path.len() > MAX_DEPTH {
            Err(Diagnostic::new(key.span, "this nests too deep"))
        } else {
            self.root.descend(parents, WrittenAs::Parent).and_then(|parent| {
                if is_array { parent.append(key, span) } else { parent.open(key, span) }
            })
        };
        if let Err(error) = opened {
            self.found.push((key.span.start as usize, error));
            self.misplaced = Some(Table::new(WrittenAs::Whole));
        }
    }

    /// A value is complete: it goes to the list that is open, or under the key before it.
    fn add(&mut self, node: Node) {
        let dots = self.key.len() + self.nested.iter().map(Nested::keys).sum::<usize>();
        if 2 * self.header.len() + dots + self.nested.len() > MAX_DEPTH {
            // The tree is built no deeper: it could not be dropped.
            self.too_deep.get_or_insert(node.span);
            return;
        }
        let (table, key) = match self.nested.last_mut() {
            Some(Nested::List { items, .. }) => return items.push(node),
            Some(Nested::Table { table, key, .. }) => (table, key),
            None => {
                let table = match &mut self.misplaced {
                    Some(table) => Some(table),
                    None => self.root.at(&self.header),
                };
                let Some(table) = table else { return };
                (table, &mut self.key)
            }
        };
        let path = std::mem::take(key);
        let start = path.last().map_or(0, |key| key.span.start as usize);
        if let Err(error) = table.set(path, node) {
            self.found.push((start, error));
        }
    }
}

impl Nested {
    fn keys(&self) -> usize {
        match self {
            Nested::List { .. } => 0,
            Nested::Table { key, .. } => key.len(),
        }
    }
}

impl Table {
    fn new(written_as: WrittenAs) -> Self {
        Table { written_as, fields: Vec::new(), places: HashMap::new() }
    }

    fn place(&self, name: &str) -> Option<usize> {
        if self.places.is_empty() {
            return self.fields.iter().position(|(key, _)| key.value == name);
        }
        self.places.get(name).copied()
    }

    fn get(&mut self, name: &str) -> Option<&mut (Spanned<String>, Item)> {
        let place = self.place(name)?;
        self.fields.get_mut(place)
    }

    fn push(&mut self, key: Spanned<String>, item: Item) {
        if self.fields.len() == FEW {
            let names = self.fields.iter().enumerate();
            self.places = names.map(|(place, (key, _))| (key.value.clone(), place)).collect();
        }
        if self.fields.len() >= FEW {
            self.places.insert(key.value.clone(), self.fields.len());
        }
        self.fields.push((key, item));
    }

    /// The table that a header has opened before.
    fn at(&mut self, path: &[Spanned<String>]) -> Option<&mut Table> {
        path.iter().try_fold(self, |table, key| match &mut table.get(&key.value)?.1 {
            Item::Table { table, .. } | Item::Tables { last: table, .. } => Some(table),
            Item::Value(_) => None,
        })
    }

    /// The table at the end of a path. Tables that are absent on the way are made.
    fn descend(
        &mut self,
        path: &[Spanned<String>],
        written_as: WrittenAs,
    ) -> Result<&mut Table, Diagnostic> {
        path.iter().try_fold(self, |table, key| table.child(key, written_as))
    }

    fn child(
        &mut self,
        key: &Spanned<String>,
        written_as: WrittenAs,
    ) -> Result<&mut Table, Diagnostic> {
        if self.place(&key.value).is_none() {
            let table = Table::new(written_as);
            self.push(key.clone(), Item::Table { span: key.span, table });
        }
        let absent = || Diagnostic::new(key.span, "this table could not be made");
        let (first, item) = self.get(&key.value).ok_or_else(absent)?;
        match item {
            Item::Value(node) => Err(not_a_table(key, node, first.span)),
            Item::Tables { last, .. } => Ok(last),
            Item::Table { table, .. } => {
                if written_as == WrittenAs::Dotted {
                    if table.written_as == WrittenAs::Whole {
                        return Err(twice(&key.value, key.span, first.span));
                    }
                    table.written_as = WrittenAs::Dotted;
                }
                Ok(table)
            }
        }
    }

    /// Adds a value under a key with dots.
    fn set(&mut self, mut path: Vec<Spanned<String>>, node: Node) -> Result<(), Diagnostic> {
        let Some(key) = path.pop() else { return Ok(()) };
        let table = self.descend(&path, WrittenAs::Dotted)?;
        if !path.is_empty() && table.written_as != WrittenAs::Dotted {
            let message =
                format!("`{}` is added to a table that is written elsewhere", shorten(&key.value));
            return Err(Diagnostic::new(key.span, message));
        }
        if let Some((first, _)) = table.get(&key.value) {
            return Err(twice(&key.value, key.span, first.span));
        }
        table.push(key, Item::Value(node));
        Ok(())
    }

    /// Opens the table of a header `[key]`.
    fn open(&mut self, key: &Spanned<String>, header: Span) -> Result<(), Diagnostic> {
        match self.get(&key.value) {
            None => {
                let table = Table::new(WrittenAs::Whole);
                self.push(key.clone(), Item::Table { span: header, table });
            }
            Some((first, Item::Table { span, table })) if table.written_as == WrittenAs::Parent => {
                table.written_as = WrittenAs::Whole;
                (first.span, *span) = (key.span, header);
            }
            Some((first, _)) => return Err(twice(&key.value, key.span, first.span)),
        }
        Ok(())
    }

    /// Opens the next table of a header `[[key]]`.
    fn append(&mut self, key: &Spanned<String>, header: Span) -> Result<(), Diagnostic> {
        let next = Table::new(WrittenAs::Whole);
        match self.get(&key.value) {
            None => {
                let (closed, last) = (Vec::new(), next);
                let item = Item::Tables { span: header, closed, last_span: header, last };
                self.push(key.clone(), item);
            }
            Some((_, Item::Tables { closed, last_span, last, .. })) => {
                let (table, span) =
                    (std::mem::replace(last, next), std::mem::replace(last_span, header));
                closed.push(Node::new(table.finish(), span));
            }
            Some((first, _)) => return Err(twice(&key.value, key.span, first.span)),
        }
        Ok(())
    }

    /// The table as it stays. People read in the order of writing.
    fn finish(mut self) -> Value {
        self.fields.sort_by_key(|(key, _)| key.span.start);
        let fields = self.fields.into_iter().map(|(key, item)| -> Entry { (key, item.finish()) });
        Value::Table(fields.collect())
    }
}

impl Item {
    fn finish(self) -> Node {
        match self {
            Item::Value(node) => node,
            Item::Table { span, table } => Node::new(table.finish(), span),
            Item::Tables { span, mut closed, last_span, last } => {
                closed.push(Node::new(last.finish(), last_span));
                Node::new(Value::List(closed), span)
            }
        }
    }
}

impl EventReceiver for Builder<'_> {
    fn std_table_open(&mut self, span: TomlSpan, _: &mut dyn ErrorSink) {
        self.header.clear();
        self.nested.clear();
        self.reading = Some((span, false));
    }

    fn array_table_open(&mut self, span: TomlSpan, _: &mut dyn ErrorSink) {
        self.header.clear();
        self.nested.clear();
        self.reading = Some((span, true));
    }

    fn std_table_close(&mut self, span: TomlSpan, _: &mut dyn ErrorSink) {
        if let Some((open, is_array)) = self.reading.take() {
            self.open_table(self.span(open.append(span)), is_array);
        }
    }

    fn array_table_close(&mut self, span: TomlSpan, error: &mut dyn ErrorSink) {
        self.std_table_close(span, error);
    }

    fn inline_table_open(&mut self, span: TomlSpan, _: &mut dyn ErrorSink) -> bool {
        let (start, table) = (span.start(), Table::new(WrittenAs::Whole));
        self.nested.push(Nested::Table { start, table, key: Vec::new() });
        true
    }

    fn inline_table_close(&mut self, span: TomlSpan, _: &mut dyn ErrorSink) {
        if let Some(Nested::Table { start, table, .. }) = self.nested.pop() {
            self.add(Node::new(table.finish(), Span::new(self.file, start, span.end())));
        }
    }

    fn array_open(&mut self, span: TomlSpan, _: &mut dyn ErrorSink) -> bool {
        self.nested.push(Nested::List { start: span.start(), items: Vec::new() });
        true
    }

    fn array_close(&mut self, span: TomlSpan, _: &mut dyn ErrorSink) {
        if let Some(Nested::List { start, items }) = self.nested.pop() {
            let items = Value::List(items);
            self.add(Node::new(items, Span::new(self.file, start, span.end())));
        }
    }

    fn simple_key(
        &mut self,
        span: TomlSpan,
        encoding: Option<Encoding>,
        error: &mut dyn ErrorSink,
    ) {
        let mut name = Cow::Borrowed("");
        if let Some(raw) = raw(self.source, span, encoding) {
            raw.decode_key(&mut name, error);
        }
        let key = Spanned::new(name.into_owned(), self.span(span));
        match self.nested.last_mut() {
            _ if self.reading.is_some() => self.header.push(key),
            Some(Nested::Table { key: path, .. }) => path.push(key),
            Some(Nested::List { .. }) => {}
            None => self.key.push(key),
        }
    }

    fn scalar(&mut self, span: TomlSpan, encoding: Option<Encoding>, error: &mut dyn ErrorSink) {
        let mut text = Cow::Borrowed("");
        let Some(raw) = raw(self.source, span, encoding) else { return };
        let value = match raw.decode_scalar(&mut text, error) {
            ScalarKind::String => Value::Text(text.into_owned()),
            ScalarKind::Boolean(value) => Value::Bool(value),
            ScalarKind::DateTime => Value::Ambiguous(text.into_owned()),
            ScalarKind::Float => Value::Float(text.into_owned()),
            ScalarKind::Integer(radix) => i128::from_str_radix(&text, radix.value())
                .map_or_else(|_| Value::Float(text.into_owned()), Value::Int),
        };
        self.add(Node::new(value, self.span(span)));
    }

    /// A key without a value has been reported.
    fn value_sep(&mut self, _: TomlSpan, _: &mut dyn ErrorSink) {
        if let Some(Nested::Table { key, .. }) = self.nested.last_mut() {
            key.clear();
        }
    }

    fn newline(&mut self, _: TomlSpan, _: &mut dyn ErrorSink) {
        if self.nested.is_empty() {
            self.key.clear();
        }
    }
}

fn raw(
    source: Source<'_>,
    span: TomlSpan,
    encoding: Option<Encoding>,
) -> Option<toml_parser::Raw<'_>> {
    let text = source.input().get(span.start()..span.end())?;
    Some(toml_parser::Raw::new_unchecked(text, encoding, span))
}

fn not_a_table(key: &Spanned<String>, node: &Node, first: Span) -> Diagnostic {
    let message = format!("`{}` is {}, and not a table", shorten(&key.value), node.describe());
    let message = match &node.value {
        Value::Table(_) => format!("`{}` is complete with its braces", shorten(&key.value)),
        _ => message,
    };
    Diagnostic::new(key.span, message).also(first, "defined here")
}

/// What the parser says of an error, with what it expected.
fn describe(error: &ParseError) -> String {
    let Some(expected) = error.expected() else { return error.description().to_owned() };
    let expected = expected.iter().map(|one| match one {
        Expected::Literal("\n") => "newline".to_owned(),
        Expected::Literal(text) => format!("`{}`", text.escape_debug()),
        Expected::Description(text) => (*text).to_owned(),
        _ => "etc".to_owned(),
    });
    let expected: Vec<String> = expected.collect();
    let expected = if expected.is_empty() { "nothing".to_owned() } else { expected.join(", ") };
    format!("{}, expected {expected}", error.description())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::de::{DeTable, DeValue};

    use super::*;

    /// Lines that agree or clash with each other, whatever their order.
    const LINES: [&str; 24] = [
        "[a]",
        "[a.b]",
        "[a.b.c]",
        "[[a]]",
        "[[a.b]]",
        "[b]",
        "[[b]]",
        "[b.a]",
        "a = 1",
        "a.b = 2",
        "a.b.c = 3",
        "b.a = 4",
        "b = { a = 1, c.d = 2, c.e = 3 }",
        "c = { a.b = 1, a = 2 }",
        "d = { a = { x = 1 }, a.b = 2 }",
        "a = [{ b = 1 }, []]",
        "b = []",
        "c = [1, 'x', \"y\", true, 1.5, 0x1f]",
        "\"a\" = 9",
        "# a comment",
        "c = 99999999999999999999999999999999999999999",
        "c = [1, 2",
        "c =",
        "c = 1 2",
    ];

    fn text(node: &Node) -> String {
        match &node.value {
            Value::List(items) => format!("[{}]", items.iter().map(text).collect::<String>()),
            Value::Table(fields) => {
                let mut fields: Vec<String> = fields
                    .iter()
                    .map(|(key, node)| format!("{}={}", key.value, text(node)))
                    .collect();
                fields.sort();
                format!("{{{}}}", fields.join(","))
            }
            other => format!("{other:?} "),
        }
    }

    fn judged(value: &DeValue<'_>) -> String {
        match value {
            DeValue::Array(items) => {
                format!("[{}]", items.iter().map(|item| judged(item.get_ref())).collect::<String>())
            }
            DeValue::Table(table) => judged_table(table),
            DeValue::String(text) => format!("{:?} ", Value::Text(text.to_string())),
            DeValue::Boolean(value) => format!("{:?} ", Value::Bool(*value)),
            DeValue::Float(number) => format!("{:?} ", Value::Float(number.to_string())),
            DeValue::Datetime(time) => format!("{:?} ", Value::Ambiguous(time.to_string())),
            DeValue::Integer(number) => {
                let whole = i128::from_str_radix(number.as_str(), number.radix());
                let value = whole.map_or_else(|_| Value::Float(number.to_string()), Value::Int);
                format!("{value:?} ")
            }
        }
    }

    fn judged_table(table: &DeTable<'_>) -> String {
        let mut fields: Vec<String> = table
            .iter()
            .map(|(key, value)| format!("{}={}", key.get_ref(), judged(value.get_ref())))
            .collect();
        fields.sort();
        format!("{{{}}}", fields.join(","))
    }

    #[track_caller]
    fn check(document: &str) {
        let (table, errors) = DeTable::parse_recoverable(document);
        let parsed = parse(FileId::default(), document);
        match parsed {
            Ok(node) if errors.is_empty() => {
                assert_eq!(text(&node), judged_table(table.get_ref()), "{document}");
            }
            Ok(_) => panic!("refused by the toml crate with {errors:?}:\n{document}"),
            Err(found) => assert!(!errors.is_empty(), "{found:?}:\n{document}"),
        }
    }

    proptest! {
        /// The judge is the toml crate, which is tested against TOML's own suite.
        #[test]
        fn documents_are_read_and_refused_as_by_the_toml_crate(
            lines in proptest::collection::vec(proptest::sample::select(&LINES[..]), 0..7),
        ) {
            check(&lines.join("\n"));
        }
    }

    #[test]
    fn a_document_of_many_tables_is_read_in_parts_as_in_one() {
        let table =
            "[[routes]]\nto = [\n  \"x]\", # ]\n  { a = 1 },\n]\n[routes.more]\nyes = true\n";
        let document = table.repeat(TOKENS / 16);
        check(&document);
        check(&format!("{document}[routes.more]\n"));
        check(&format!("{document}x = [\n"));
    }

    #[test]
    fn what_nests_too_deep_is_refused_and_not_built() {
        let dots = vec!["a"; 100_000].join(".");
        for document in [
            format!("{dots} = 1\n"),
            format!("[{dots}]\n"),
            format!("[[{dots}]]\n"),
            format!("a = {{ {dots} = 1 }}\n"),
        ] {
            check(&document);
        }
        let nested = |depth: usize| format!("a = {}{}\n", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(FileId::default(), &nested(MAX_DEPTH)).is_ok());
        assert!(parse(FileId::default(), &nested(MAX_DEPTH + 3)).is_err());
    }
}
