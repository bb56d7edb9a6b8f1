//! Reads a table field by field. Asking for a field is what makes it known: the same call reads it, lets the unknown
//! ones be found, and, when describing, writes the field into the JSON Schema.
//!
//! A table with fields of its own implements [`Record`]; adding a field to it is one line. A table by the user's names
//! is a [`Map`].

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::checker::Checker;
use crate::diagnostic::Diagnostic;
use crate::node::{Entry, Node, Value, shorten};
use crate::number::{Number, Whole};
use crate::section::{Erased, SectionType, SourceSections};
use crate::shape::{Definitions, Shape, Text};
use crate::span::{Span, Spanned};
use crate::words::{Synonyms, advice, nearest, synonym};

/// Words of other tools for what belongs to no source.
const OWN_SYNONYMS: Synonyms = &[("netns", "namespaces")];

/// A table with named fields.
pub trait Record: Sized {
    /// Name of its definition in the JSON Schema.
    const NAME: &'static str;
    /// One sentence on what it is.
    const DOC: &'static str;

    /// Asks for every field, then builds the value. Must not return before all were asked.
    fn read(fields: &mut Fields<'_>) -> Option<Self>;
}

/// A table whose field names are the user's own: links by name, knobs by key.
pub trait Keyed: Sized {
    /// What a field name is, for the schema.
    const KEY: &'static str;

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self>;

    /// Describes one field's value.
    fn entry_schema(definitions: &mut Definitions) -> Json;
}

/// A record in a table by the user's names: it takes its own from [`Fields::name`].
pub trait NamedRecord: Record {
    /// What the name is, for the schema.
    const KEY: &'static str;
}

impl<T: NamedRecord> Keyed for T {
    const KEY: &'static str = T::KEY;

    fn read_entry(key: &Spanned<String>, node: &Node, checker: &mut Checker) -> Option<Self> {
        let entries = read_table(node, checker)?;
        let fields = Fields::new(entries, node.span, Work::Read(checker));
        Fields { name: Some(key), ..fields }.read()
    }

    fn entry_schema(definitions: &mut Definitions) -> Json {
        describe_record::<Self>(definitions)
    }
}

/// Which values of `kind` a field belongs to; empty if to all.
pub type Kinds = &'static [&'static str];

/// The fields of one table, being read or being described.
pub struct Fields<'a> {
    name: Option<&'a Spanned<String>>,
    /// [`Record::NAME`] of the table.
    record: &'static str,
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
        let (name, record, kind, kinds) = (None, "", None, &[]);
        Self { name, record, entries, span, known, missing, kind, kinds, is_extended: false, work }
    }

    fn read<T: Record>(mut self) -> Option<T> {
        self.record = T::NAME;
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
        self.field(name, doc, T::schema, T::read)
    }

    /// A field that must be there.
    pub fn required<T: Shape>(&mut self, name: &'static str, doc: &str) -> Option<T> {
        self.require(name);
        self.optional(name, doc)
    }

    fn require(&mut self, name: &'static str) {
        if self.fits(self.kinds) && !self.has(name) {
            self.missing.push(name);
        }
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
        self.field(name, doc, |_| number.schema(), |node, checker| number.read(node, checker))
    }

    /// A whole number that must be there.
    pub fn required_number<N: Whole>(
        &mut self,
        name: &'static str,
        doc: &str,
        number: Number<N>,
    ) -> Option<N> {
        self.require(name);
        self.number(name, doc, number)
    }

    /// Reads a section by its erased type; its name is a field of this table.
    pub(crate) fn section(&mut self, section: &SectionType) -> Option<Arc<dyn Erased>> {
        self.field(section.name, section.doc, section.schema, section.read)
    }

    /// Makes a field known: describes it, or reads it if it is written.
    fn field<T>(
        &mut self,
        name: &'static str,
        doc: &str,
        schema: impl FnOnce(&mut Definitions) -> Json,
        read: impl FnOnce(&Node, &mut Checker) -> Option<T>,
    ) -> Option<T> {
        let kinds = self.kinds;
        if let Work::Describe(definitions, properties) = &mut self.work {
            let mut schema = schema(definitions);
            let mut doc = doc.to_owned();
            if !kinds.is_empty() {
                doc = format!("{doc} (kind {})", kinds.join(", "));
            }
            if let Some(what) = schema.get("description").and_then(Json::as_str) {
                doc = format!("{doc}: {what}");
            }
            schema["description"] = json!(doc);
            insert_property(properties, name, schema);
        }
        let node = self.find(name)?;
        read(node, self.checker()?)
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
                checker.extended.push(value);
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

    /// The same for a field whose value must not be printed.
    pub fn refused_unseen(&mut self, name: &'static str, why: &str, help: &str) {
        if self.find(name).is_some() {
            self.report(Diagnostic::unseen(self.at(name), why).help(help));
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

    /// Whether a field that another source reads is written here and true.
    #[must_use]
    pub fn is_true(&self, name: &str) -> bool {
        self.entry(name).is_some_and(|(_, node)| matches!(node.value, Value::Bool(true)))
    }

    /// Where the field's name is written; the whole table if it is not.
    #[must_use]
    pub fn at(&self, name: &str) -> Span {
        self.key_span(name).unwrap_or(self.span)
    }

    /// Where the field's value is written; the whole table if it is not.
    #[must_use]
    pub fn value_at(&self, name: &str) -> Span {
        self.entry(name).map_or(self.span, |(_, node)| node.span)
    }

    /// Where a field of the field's own table is written; the field's value if it is no table.
    #[must_use]
    pub fn value_within(&self, name: &str, inner: &str) -> Span {
        let inside = self.entry(name).and_then(|(_, node)| match &node.value {
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

    /// The value of a field is a secret: no mistake draws a line that has it.
    pub fn conceal(&mut self, name: &str) {
        let span = self.value_at(name);
        if let Some(checker) = self.checker() {
            checker.files.conceal(span);
        }
    }

    /// Reports a mistake that is not one field's own.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        if let Some(checker) = self.checker() {
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
        self.entry(name).map(|(key, _)| key.span)
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|(key, _)| key.value == name)
    }

    fn find(&mut self, name: &'static str) -> Option<&'a Node> {
        self.known.push(Known { name, kinds: self.kinds });
        self.entry(name).filter(|_| self.fits(self.kinds)).map(|(_, node)| node)
    }

    pub(crate) fn checker(&mut self) -> Option<&mut Checker> {
        match &mut self.work {
            Work::Read(checker) => Some(checker),
            Work::Describe(..) => None,
        }
    }

    /// Whether none of the fields is here, and no unknown field may have been meant for one.
    #[must_use]
    pub fn lacks(&self, names: &[&str]) -> bool {
        let known = |key: &str| self.known.iter().any(|known| known.name == key);
        let all_known = self.entries.iter().all(|(key, _)| known(&key.value));
        all_known && !names.iter().any(|name| self.has(name))
    }

    /// Reports unknown and missing fields; whether there were none.
    fn finish(mut self) -> bool {
        let mut meant = Vec::new();
        for (key, _) in self.entries {
            if let Some(diagnostic) = self.judge(key, &mut meant) {
                self.report(diagnostic);
            }
        }
        self.missing.retain(|name| !meant.contains(name));
        let missing = std::mem::take(&mut self.missing);
        for name in &missing {
            self.report(Diagnostic::new(self.span, format!("the field `{name}` is missing")));
        }
        missing.is_empty()
    }

    /// What is wrong with the field's name, if anything.
    fn judge(&self, key: &Spanned<String>, meant: &mut Vec<&'static str>) -> Option<Diagnostic> {
        let same: Vec<&Known> = self.known.iter().filter(|one| one.name == key.value).collect();
        if same.iter().any(|one| self.fits(one.kinds)) {
            return None;
        }
        // When the kind itself is wrong, the field may be one of the kind that was meant.
        let has_kinds = self.known.iter().any(|one| !one.kinds.is_empty());
        if has_kinds && self.kind.is_none() && self.has("kind") {
            return None;
        }
        if !same.is_empty() {
            return Some(self.wrong_kind(key, &same));
        }
        let diagnostic =
            Diagnostic::new(key.span, format!("unknown field `{}`", shorten(&key.value)));
        let synonyms = self.sources().iter().map(|source| source.synonyms);
        let stands_for = synonym(&key.value, synonyms.chain([OWN_SYNONYMS]), self.usable());
        let advices = self.sources().iter().flat_map(|source| source.advice);
        if stands_for.is_none()
            && let Some(help) = advice(&key.value, self.record, advices)
        {
            return Some(diagnostic.help(help));
        }
        let near = stands_for.or_else(|| nearest(&key.value, self.usable()));
        meant.extend(near);
        let help = near.map(|name| format!("did you mean `{name}`?")).or_else(|| {
            let names: Vec<&str> = self.usable().collect();
            (!names.is_empty()).then(|| format!("the fields here are {}", names.join(", ")))
        });
        Some(diagnostic.maybe_help(help))
    }

    fn fits(&self, kinds: Kinds) -> bool {
        kinds.is_empty() || self.kind.is_some_and(|kind| kinds.contains(&kind))
    }

    fn wrong_kind(&self, key: &Spanned<String>, same: &[&Known]) -> Diagnostic {
        let kinds: Vec<&str> = same.iter().flat_map(|one| one.kinds).copied().collect();
        let message = match self.kind {
            Some(kind) => format!("`{}` is not an option of kind `{kind}`", key.value),
            None => format!("`{}` needs a kind", key.value),
        };
        Diagnostic::new(key.span, message).help(format!("it is for kind {}", kinds.join(", ")))
    }

    /// The names of the fields that this table can have.
    fn usable(&self) -> impl Iterator<Item = &'static str> {
        self.known.iter().filter(|one| self.fits(one.kinds)).map(|one| one.name)
    }

    fn into_schema(self, doc: &str) -> Json {
        let required = self.missing;
        let Work::Describe(_, properties) = self.work else { return Json::Null };
        json!({ "type": "object", "description": doc, "properties": properties,
            "required": required, "additionalProperties": false })
    }
}

/// The same field of two kinds may take either shape.
fn insert_property(properties: &mut serde_json::Map<String, Json>, name: &str, schema: Json) {
    let Some(first) = properties.get_mut(name) else {
        properties.insert(name.to_owned(), schema);
        return;
    };
    // A field of its own has a description, a joined one leaves that to its shapes.
    let joined = first.get("description").is_none();
    match first.get_mut("anyOf") {
        Some(Json::Array(shapes)) if joined => shapes.push(schema),
        _ => *first = json!({ "anyOf": [first.take(), schema] }),
    }
}

/// Reads a node as a record and reports the fields that it does not have.
pub fn read_record<T: Record>(node: &Node, checker: &mut Checker) -> Option<T> {
    let entries = read_table(node, checker)?;
    Fields::new(entries, node.span, Work::Read(checker)).read()
}

/// Describes a record; its text is kept among the definitions, once.
pub fn describe_record<T: Record>(definitions: &mut Definitions) -> Json {
    if !definitions.parts.contains_key(T::NAME) {
        let mut fields =
            Fields::new(&[], Span::default(), Work::Describe(definitions, serde_json::Map::new()));
        T::read(&mut fields);
        let schema = fields.into_schema(T::DOC);
        definitions.parts.insert(T::NAME, schema);
    }
    json!({ "$ref": format!("#/$defs/{}", T::NAME) })
}

pub fn read_table<'n>(node: &'n Node, checker: &mut Checker) -> Option<&'n [Entry]> {
    let help = match &node.value {
        Value::Table(entries) => return Some(entries),
        Value::Null => Some("write `{}` to say that there is nothing in it".to_owned()),
        _ => None,
    };
    checker.expected("a table", node, help);
    None
}

/// A table by the user's own names, in the order of writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map<T>(pub Vec<T>);

impl<T: Keyed> Shape for Map<T> {
    fn read(node: &Node, checker: &mut Checker) -> Option<Self> {
        let entries = read_table(node, checker)?;
        let read = |(key, node): &Entry| T::read_entry(key, node, checker);
        Some(Self(entries.iter().filter_map(read).collect()))
    }

    fn schema(definitions: &mut Definitions) -> Json {
        let values = T::entry_schema(definitions);
        json!({ "type": "object", "propertyNames": { "description": T::KEY },
            "additionalProperties": values })
    }
}

/// Implements `Shape` for records.
#[macro_export]
macro_rules! record {
    ($($name:ty),+) => {$(
        impl $crate::Shape for $name {
            fn read(
                node: &$crate::Node,
                checker: &mut $crate::Checker,
            ) -> Option<Self> {
                $crate::read_record(node, checker)
            }

            fn schema(definitions: &mut $crate::Definitions) -> $crate::Json {
                $crate::describe_record::<Self>(definitions)
            }
        }
    )+};
}
