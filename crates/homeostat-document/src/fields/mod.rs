//! Reads a table field by field. Asking for a field is what makes it known: the same call reads it,
//! lets the unknown ones be found, and, when describing, writes the field into the JSON Schema.
//!
//! A table implements [`Record`]; adding a field to it is one line.

mod describe;
mod record;
mod unknown;

use std::any::Any;
use std::sync::Arc;

use serde_json::Value as Json;

pub use self::record::{Keyed, Map, Record, describe_record, read_named, read_record, read_table};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::node::{Entry, Node, Value};
use crate::number::{Number, Whole};
use crate::section::{SectionType, SourceSections};
use crate::shape::{Definitions, Shape, Text};
use crate::span::{Span, Spanned};

/// Which values of `kind` a field belongs to; empty if to all.
pub type Kinds = &'static [&'static str];

/// The fields of one table, being read or being described.
pub struct Fields<'a> {
    name: Option<&'a Spanned<String>>,
    entries: &'a [Entry],
    span: Span,
    known: Vec<Known>,
    missing: Vec<&'static str>,
    kind: Option<&'static str>,
    kinds: Kinds,
    is_extended: bool,
    work: Work<'a>,
}

/// What asking for a field does.
enum Work<'a> {
    Read(&'a mut Checker),
    Describe(&'a mut Definitions, serde_json::Map<String, Json>),
}

/// A field that was asked for.
struct Known {
    name: &'static str,
    kinds: Kinds,
}

impl<'a> Fields<'a> {
    fn new(entries: &'a [Entry], span: Span, work: Work<'a>) -> Self {
        let (known, missing) = (Vec::new(), Vec::new());
        let (kind, kinds) = (None, &[] as Kinds);
        Self { name: None, entries, span, known, missing, kind, kinds, is_extended: false, work }
    }

    fn read<T: Record>(mut self) -> Option<T> {
        let value = T::read(&mut self);
        self.finish().then_some(value).flatten()
    }

    /// The name that the table stands under.
    pub fn name<T: Text>(&mut self) -> Option<Spanned<T>> {
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
    pub fn optional<T: Shape>(&mut self, name: &'static str, doc: &str) -> Option<T> {
        self.describe(name, doc, T::schema);
        let node = self.find(name)?;
        self.checked(|checker| T::read(node, checker))
    }

    /// A field that must be there.
    pub fn required<T: Shape>(&mut self, name: &'static str, doc: &str) -> Option<T> {
        let value = self.optional(name, doc);
        if self.is_active() && !self.has(name) {
            self.missing.push(name);
        }
        value
    }

    /// A field that is false unless written.
    pub fn flag(&mut self, name: &'static str, doc: &str) -> bool {
        self.optional(name, doc).unwrap_or(false)
    }

    /// A whole number that may be left out.
    pub fn number<N: Whole>(
        &mut self,
        name: &'static str,
        doc: &str,
        number: Number<N>,
    ) -> Option<N> {
        self.describe(name, doc, |_| number.schema());
        let node = self.find(name)?;
        self.checked(|checker| number.read(node, checker))
    }

    /// A whole number that must be there.
    pub fn required_number<N: Whole>(
        &mut self,
        name: &'static str,
        doc: &str,
        number: Number<N>,
    ) -> Option<N> {
        let value = self.number(name, doc, number);
        if self.is_active() && !self.has(name) {
            self.missing.push(name);
        }
        value
    }

    /// Reads a section by its erased type; its name is a field of this table.
    pub(crate) fn section(&mut self, section: &SectionType) -> Option<Arc<dyn Any + Send + Sync>> {
        self.describe(section.name, section.doc, section.schema);
        let node = self.find(section.name)?;
        self.checked(|checker| (section.read)(node, checker))
    }

    /// Lets other sources read the fields that they have in records of this type.
    pub fn extensions<T: Record>(&mut self) {
        let all = self.sources().iter().flat_map(|source| source.extensions);
        for extension in all.filter(|extension| extension.record == T::NAME) {
            let before = self.known.len();
            let value = (extension.read)(self);
            let asked: Vec<&str> = self.known.iter().skip(before).map(|known| known.name).collect();
            self.is_extended |= asked.iter().any(|name| self.has(name));
            if let (Work::Read(checker), Some(value)) = (&mut self.work, value) {
                checker.extended.push((extension, value));
            }
        }
    }

    /// Whether a field of another source is written here; to be asked after
    /// [`extensions`](Self::extensions).
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// The sources whose sections documents have.
    pub(crate) fn sources(&self) -> &'static [SourceSections] {
        match &self.work {
            Work::Read(checker) => checker.sources,
            Work::Describe(definitions, _) => definitions.sources,
        }
    }

    /// A field that exists elsewhere but not here, with the reason.
    pub fn refused(&mut self, name: &'static str, why: &str, help: &str) {
        if self.find(name).is_none() {
            return;
        }
        if let Some(span) = self.key_span(name) {
            self.report(Diagnostic::new(span, why).help(help));
        }
        self.known.push(Known { name, kinds: &[] });
    }

    /// The same for a field whose value must not be printed: the whole table is pointed at.
    pub fn refused_unseen(&mut self, name: &'static str, why: &str, help: &str) {
        if self.find(name).is_some() {
            self.report(Diagnostic::new(self.span, why).help(help));
        }
    }

    /// Says which kind this table has; fields of other kinds are refused by name.
    pub fn set_kind(&mut self, kind: Option<&'static str>) {
        self.kind = kind;
    }

    /// Asks for fields that only tables of these kinds have.
    pub fn of_kinds<R>(&mut self, kinds: Kinds, ask: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.kinds, kinds);
        let value = ask(self);
        self.kinds = outer;
        value
    }

    /// Whether the field is written here, readable or not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.key_span(name).is_some()
    }

    /// Where the field's name is written; the whole table if it is not.
    #[must_use]
    pub fn at(&self, name: &str) -> Span {
        self.key_span(name).unwrap_or(self.span)
    }

    /// Where the field's value is written; the whole table if it is not.
    #[must_use]
    pub fn value_at(&self, name: &str) -> Span {
        let found = self.entries.iter().find(|(key, _)| key.value == name);
        found.map_or(self.span, |(_, node)| node.span)
    }

    /// Where a field of the field's own table is written; the field's value if it is no table.
    #[must_use]
    pub fn value_within(&self, name: &str, inner: &str) -> Span {
        let found = self.entries.iter().find(|(key, _)| key.value == name);
        let inside = found.and_then(|(_, node)| match &node.value {
            Value::Table(entries) => entries.iter().find(|(key, _)| key.value == inner),
            _ => None,
        });
        inside.map_or_else(|| self.value_at(name), |(_, node)| node.span)
    }

    /// Where the table is written.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Reports a mistake that is not one field's own.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        if let Work::Read(checker) = &mut self.work {
            checker.report(diagnostic);
        }
    }

    /// Of two fields that exclude each other, reports the second.
    pub fn exclusive(&mut self, first: &str, second: &str) {
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

    pub(crate) fn checker(&mut self) -> Option<&mut Checker> {
        match &mut self.work {
            Work::Read(checker) => Some(checker),
            Work::Describe(..) => None,
        }
    }

    fn checked<T>(&mut self, read: impl FnOnce(&mut Checker) -> Option<T>) -> Option<T> {
        match &mut self.work {
            Work::Read(checker) => read(checker),
            Work::Describe(..) => None,
        }
    }
}
