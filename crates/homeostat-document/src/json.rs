//! JSON text to tree, as strict as the standard: no comments, no trailing commas.

use crate::diagnostic::Diagnostic;
use crate::node::{Entries, Entry, MAX_DEPTH, Node, Value};
use crate::span::{FileId, Span, Spanned};

/// Reads a whole file; stops at the first syntax error.
pub(crate) fn parse(file: FileId, text: &str) -> Result<Node, Vec<Diagnostic>> {
    let mut parser = Parser { file, text, at: 0, depth: 0, twice: Vec::new() };
    let node = parser.document().map_err(|error| vec![error])?;
    if parser.twice.is_empty() { Ok(node) } else { Err(parser.twice) }
}

struct Parser<'t> {
    file: FileId,
    text: &'t str,
    at: usize,
    depth: usize,
    /// Keys written twice: reported together, since they do not hinder reading on.
    twice: Vec<Diagnostic>,
}

type Parsed<T> = Result<T, Diagnostic>;

impl Parser<'_> {
    fn document(&mut self) -> Parsed<Node> {
        self.blank();
        let node = self.node()?;
        self.blank();
        match self.peek() {
            None => Ok(node),
            Some(_) => Err(self.refuse("expected the end of the file")),
        }
    }

    fn node(&mut self) -> Parsed<Node> {
        let start = self.at;
        let value = match self.peek() {
            Some(b'{') => self.nested(Self::table)?,
            Some(b'[') => self.nested(Self::list)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'a'..=b'z' | b'A'..=b'Z') => self.word()?,
            Some(_) => return Err(self.refuse("expected a value")),
            None => return Err(self.refuse("expected a value, found the end of the file")),
        };
        Ok(Node::new(value, self.span(start)))
    }

    fn nested(&mut self, read: fn(&mut Self) -> Parsed<Value>) -> Parsed<Value> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.refuse("this nests too deep"));
        }
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn list(&mut self) -> Parsed<Value> {
        let mut items = Vec::new();
        self.blank();
        if self.take(b']') {
            return Ok(Value::List(items));
        }
        loop {
            self.blank();
            items.push(self.node()?);
            self.blank();
            if self.take(b']') {
                return Ok(Value::List(items));
            }
            self.expect(b',', "expected `,` or `]`")?;
        }
    }

    fn table(&mut self) -> Parsed<Value> {
        let mut entries = Entries::default();
        self.blank();
        if self.take(b'}') {
            return Ok(Value::Table(entries.list));
        }
        loop {
            self.blank();
            let entry = self.entry()?;
            self.twice.extend(entries.add(entry));
            self.blank();
            if self.take(b'}') {
                return Ok(Value::Table(entries.list));
            }
            self.expect(b',', "expected `,` or `}`")?;
        }
    }

    fn entry(&mut self) -> Parsed<Entry> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.refuse("expected a field name in double quotes"));
        }
        let name = self.string()?;
        let key = Spanned::new(name, self.span(start));
        self.blank();
        self.expect(b':', "expected `:`")?;
        self.blank();
        Ok((key, self.node()?))
    }

    fn string(&mut self) -> Parsed<String> {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => break,
                b'\\' => self.at += 2,
                0..=0x1f => return Err(self.refuse("a control character must be escaped")),
                _ => self.at += 1,
            }
        }
        if !self.take(b'"') {
            self.at = start;
            return Err(self.refuse("this text has no end"));
        }
        // Escapes and surrogates are decoded by the reference implementation.
        let raw = self.text.get(start..self.at).unwrap_or("");
        serde_json::from_str(raw).map_err(|_| {
            Diagnostic::new(self.span(start), "this is not JSON: the text has a wrong escape in it")
        })
    }

    fn number(&mut self) -> Parsed<Value> {
        let start = self.at;
        let part = |byte: u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        while self.peek().is_some_and(part) {
            self.at += 1;
        }
        let raw = self.text.get(start..self.at).unwrap_or("");
        if raw.parse::<serde_json::Number>().is_err() {
            let message = format!("this is not JSON: `{raw}` is not a number");
            return Err(Diagnostic::new(self.span(start), message));
        }
        let whole = raw.parse::<i128>().ok();
        Ok(whole.map_or_else(|| Value::Float(raw.to_owned()), Value::Int))
    }

    fn word(&mut self) -> Parsed<Value> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        match self.text.get(start..self.at) {
            Some("true") => Ok(Value::Bool(true)),
            Some("false") => Ok(Value::Bool(false)),
            Some("null") => Ok(Value::Null),
            _ => Err(Diagnostic::new(self.span(start), "this is not JSON: expected a value")
                .help("text must be in double quotes")),
        }
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, message: &str) -> Parsed<()> {
        if self.take(byte) { Ok(()) } else { Err(self.refuse(message)) }
    }

    fn span(&self, start: usize) -> Span {
        Span::new(self.file, start, self.at)
    }

    fn refuse(&self, message: &str) -> Diagnostic {
        let next = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        let end = self.at + next.map_or(0, char::len_utf8);
        let span = Span::new(self.file, self.at, end);
        Diagnostic::new(span, format!("this is not JSON: {message}"))
    }
}
