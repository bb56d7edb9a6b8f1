//! Reads a table field by field. Asking for a field is what makes it known: the same call reads it,
//! lets the unknown ones be found, and, when describing, writes the field into the JSON Schema.
//!
//! A section implements [`Section`]; adding a field to it is one line.

mod describe;
mod section;
mod unknown;

use serde_json::{Map, Value as Json, json};

pub(crate) use self::section::{
    Keyed, Section, describe_section, read_named, read_section, read_table, section,
};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::node::{Entry, Node};
use crate::shape::{Definitions, Shape, Text};
use crate::span::{Span, Spanned};

/// Which values of `kind` a field belongs to; empty if to all.
pub(crate) type Kinds = &'static [&'static str];

/// The fields of one table, being read or being described.
pub(crate) struct Fields<'a> {
    name: Option<&'a Spanned<String>>,
    entries: &'a [Entry],
    span: Span,
    known: Vec<Known>,
    missing: Vec<&'static str>,
    kind: Option<&'static str>,
    kinds: Kinds,
    work: Work<'a>,
}

/// What asking for a field does.
enum Work<'a> {
    Read(&'a mut Checker),
    Describe(&'a mut Definitions, Map<String, Json>),
}

/// A field that was asked for.
struct Known {
    name: &'static str,
    kinds: Kinds,
}

impl<'a> Fields<'a> {
    fn new(entries: &'a [Entry], span: Span, work: Work<'a>) -> Self {
        let (known, missing) = (Vec::new(), Vec::new());
        Self { name: None, entries, span, known, missing, kind: None, kinds: &[], work }
    }

    fn read<T: Section>(mut self) -> Option<T> {
        let value = T::read(&mut self);
        self.finish().then_some(value).flatten()
    }

    /// The name that the section stands under.
    pub(crate) fn name<T: Text>(&mut self) -> Option<Spanned<T>> {
        let name = self.name?;
        match T::from_text(name) {
            Ok(value) => Some(Spanned::new(value, name.span)),
            Err(error) => {
                self.report(Diagnostic::new(name.span, error.message).maybe_help(error.help));
                None
            }
        }
    }

    /// A field that may be left out.
    pub(crate) fn optional<T: Shape>(&mut self, name: &'static str, doc: &str) -> Option<T> {
        self.describe(name, doc, T::schema);
        let node = self.find(name)?;
        self.checked(|checker| T::read(node, checker))
    }

    /// A field that must be there.
    pub(crate) fn required<T: Shape>(&mut self, name: &'static str, doc: &str) -> Option<T> {
        let value = self.optional(name, doc);
        if self.is_active() && !self.has(name) {
            self.missing.push(name);
        }
        value
    }

    /// A field that is false unless written.
    pub(crate) fn flag(&mut self, name: &'static str, doc: &str) -> bool {
        self.optional(name, doc).unwrap_or(false)
    }

    /// A table by the user's own names.
    pub(crate) fn keyed<T: Keyed>(&mut self, name: &'static str, doc: &str) -> Option<Vec<T>> {
        self.describe(name, doc, |definitions| {
            let values = T::entry_schema(definitions);
            json!({ "type": "object", "propertyNames": { "description": T::KEY },
                "additionalProperties": values })
        });
        let node = self.find(name)?;
        self.checked(|checker| {
            let entries = read_table(node, checker)?;
            let read = |(key, node): &Entry| T::read_entry(key, node, checker);
            Some(entries.iter().filter_map(read).collect())
        })
    }

    /// A field that exists elsewhere but not here, with the reason.
    pub(crate) fn refused(&mut self, name: &'static str, why: &str, help: &str) {
        if self.find(name).is_none() {
            return;
        }
        if let Some(span) = self.key_span(name) {
            self.report(Diagnostic::new(span, why).help(help));
        }
        self.known.push(Known { name, kinds: &[] });
    }

    /// The same for a field whose value must not be printed: the whole table is pointed at.
    pub(crate) fn refused_unseen(&mut self, name: &'static str, why: &str, help: &str) {
        if self.find(name).is_some() {
            self.report(Diagnostic::new(self.span, why).help(help));
        }
    }

    /// Says which kind this table has; fields of other kinds are refused by name.
    pub(crate) fn set_kind(&mut self, kind: Option<&'static str>) {
        self.kind = kind;
    }

    /// Asks for fields that only tables of these kinds have.
    pub(crate) fn of_kinds<R>(&mut self, kinds: Kinds, ask: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.kinds, kinds);
        let value = ask(self);
        self.kinds = outer;
        value
    }

    /// Whether the field is written here, readable or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.key_span(name).is_some()
    }

    /// Where the field's name is written; the whole table if it is not.
    pub(crate) fn at(&self, name: &str) -> Span {
        self.key_span(name).unwrap_or(self.span)
    }

    /// Where the table is written.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Reports a mistake that is not one field's own.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        if let Work::Read(checker) = &mut self.work {
            checker.report(diagnostic);
        }
    }

    /// Of two fields that exclude each other, reports the second.
    pub(crate) fn exclusive(&mut self, first: &str, second: &str) {
        if let (Some(one), Some(two)) = (self.key_span(first), self.key_span(second)) {
            let message = format!("`{second}` cannot be used together with `{first}`");
            self.report(Diagnostic::new(two, message).also(one, format!("`{first}` is here")));
        }
    }

    fn key_span(&self, name: &str) -> Option<Span> {
        self.entries.iter().find(|(key, _)| key.value == name).map(|(key, _)| key.span)
    }

    fn is_active(&self) -> bool {
        self.kinds.is_empty() || self.kind.is_some_and(|kind| self.kinds.contains(&kind))
    }

    fn find(&mut self, name: &'static str) -> Option<&'a Node> {
        self.known.push(Known { name, kinds: self.kinds });
        let entries = self.entries;
        let found = entries.iter().find(|(key, _)| key.value == name);
        found.filter(|_| self.is_active()).map(|(_, node)| node)
    }

    fn checked<T>(&mut self, read: impl FnOnce(&mut Checker) -> Option<T>) -> Option<T> {
        match &mut self.work {
            Work::Read(checker) => read(checker),
            Work::Describe(..) => None,
        }
    }
}
