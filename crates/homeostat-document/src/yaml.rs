//! YAML text to tree. Anchors, aliases and tags are refused: they make a document that means
//! something else than it seems to say, and aliases can blow up its size.

use granit_parser::{Event, Parser, ScalarStyle};

use crate::diagnostic::Diagnostic;
use crate::node::{Entries, Entry, MAX_DEPTH, Node, Value};
use crate::scalar;
use crate::span::{FileId, Span, Spanned};

/// Reads a whole file; stops at the first syntax error.
pub(crate) fn parse(file: FileId, text: &str) -> Result<Node, Vec<Diagnostic>> {
    let mut options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder { file, text, parser, depth: 0, twice: Vec::new() };
    let node = builder.stream().map_err(|error| vec![error])?;
    if builder.twice.is_empty() { Ok(node) } else { Err(builder.twice) }
}

struct Builder<'t> {
    file: FileId,
    text: &'t str,
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    depth: usize,
    /// Keys written twice: reported together, since they do not hinder reading on.
    twice: Vec<Diagnostic>,
}

type Parsed<T> = Result<T, Diagnostic>;

impl<'t> Builder<'t> {
    fn stream(&mut self) -> Parsed<Node> {
        let mut root = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, span) => {
                    return Ok(root.unwrap_or(Node::new(Value::Table(Vec::new()), span)));
                }
                (Event::DocumentStart(..), span) if root.is_some() => {
                    let message = "a file holds one document, this begins a second one";
                    return Err(
                        Diagnostic::new(span, message).help("put it into a file of its own")
                    );
                }
                (Event::DocumentStart(..), _) => root = Some(self.root()?),
                _ => {}
            }
        }
    }

    /// A document without any content is an empty table.
    fn root(&mut self) -> Parsed<Node> {
        let (event, span) = self.next()?;
        let mut node = self.node(event, span)?;
        if let Value::Null = node.value {
            node.value = Value::Table(Vec::new());
        }
        Ok(node)
    }

    fn node(&mut self, event: Event<'t>, span: Span) -> Parsed<Node> {
        refuse_extras(&event, span)?;
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                Ok(Node::new(scalar::plain(&text), span))
            }
            Event::Scalar(text, ..) => Ok(Node::new(Value::Text(text.into_owned()), span)),
            Event::SequenceStart(..) => self.nested(span, Self::list),
            Event::MappingStart(..) => self.nested(span, Self::table),
            _ => Err(Diagnostic::new(span, "this is not YAML: expected a value")),
        }
    }

    fn nested(&mut self, span: Span, read: fn(&mut Self, Span) -> Parsed<Node>) -> Parsed<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Diagnostic::new(span, "this nests too deep"));
        }
        let node = read(self, span)?;
        self.depth -= 1;
        Ok(node)
    }

    fn list(&mut self, start: Span) -> Parsed<Node> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, end) => {
                    return Ok(Node::new(Value::List(items), self.join(start, end)));
                }
                (event, span) => items.push(self.node(event, span)?),
            }
        }
    }

    fn table(&mut self, start: Span) -> Parsed<Node> {
        let mut entries = Entries::default();
        loop {
            match self.next()? {
                (Event::MappingEnd, end) => {
                    let span = self.join(start, end);
                    return Ok(Node::new(Value::Table(entries.list), span));
                }
                (event, span) => {
                    let entry = self.entry(event, span)?;
                    self.twice.extend(entries.add(entry));
                }
            }
        }
    }

    fn entry(&mut self, event: Event<'t>, span: Span) -> Parsed<Entry> {
        let key = self.node(event, span)?;
        let Value::Text(name) = key.value else {
            let message = format!("expected a field name, found {}", key.describe());
            let help = key.scalar().map(|text| format!("quote it: \"{text}\""));
            return Err(Diagnostic::new(key.span, message).maybe_help(help));
        };
        let (event, span) = self.next()?;
        Ok((Spanned::new(name, key.span), self.node(event, span)?))
    }

    fn next(&mut self) -> Parsed<(Event<'t>, Span)> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, self.span(&span))),
            Some(Err(error)) => {
                let at = error.marker().byte_offset().unwrap_or(self.text.len());
                let span = Span::new(self.file, at, at + 1);
                Err(Diagnostic::new(span, format!("this is not YAML: {}", error.info())))
            }
            None => {
                let end = Span::new(self.file, self.text.len(), self.text.len());
                Err(Diagnostic::new(end, "this is not YAML: it ends too early"))
            }
        }
    }

    fn span(&self, span: &granit_parser::Span) -> Span {
        let start = span.start.byte_offset().unwrap_or(0);
        let end = span.end.byte_offset().unwrap_or(start);
        Span::new(self.file, start, end)
    }

    fn join(&self, start: Span, end: Span) -> Span {
        let text = self.text.get(start.start as usize..end.end as usize).unwrap_or("");
        let length = text.trim_end().len();
        Span::new(self.file, start.start as usize, start.start as usize + length)
    }
}

fn refuse_extras(event: &Event<'_>, span: Span) -> Parsed<()> {
    if event.is_alias() || event.anchor_id().is_some() {
        let message = "anchors and aliases are not supported";
        return Err(Diagnostic::new(span, message).help("write the value out"));
    }
    if event.tag().is_some() {
        let message = "tags are not supported";
        return Err(Diagnostic::new(span, message).help("write text in quotes, numbers without"));
    }
    Ok(())
}
