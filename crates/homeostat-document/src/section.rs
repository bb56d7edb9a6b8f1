//! How a source adds its sections to documents.
//!
//! A section is a field of a scope: of the top level, of each namespace, or of both. Its type implements
//! [`Section`] in the crate of its source, which lists all of its sections in one [`SourceSections`].
//! The program hands the lists of all sources to a [`DocumentReader`](crate::DocumentReader); nothing in
//! this crate knows any of them.
//!
//! A source may have fields in the tables of another source: a link's `sysctl` belongs to who keeps
//! knobs. Such fields implement [`Extension`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::checker::Checker;
use crate::document::Document;
use crate::fields::Fields;
use crate::node::Node;
use crate::shape::{Definitions, Shape};
use crate::span::Span;
use crate::words::{Advice, Synonyms};

/// One section of a scope.
pub trait Section: Sized + Clone + fmt::Debug + PartialEq + Eq + Send + Sync + 'static {
    /// The name of the field.
    const NAME: &'static str;
    /// One sentence on what it is.
    const DOC: &'static str;
    const SCOPES: Scopes = Scopes::All;
    /// How it is joined where several files have it.
    const JOIN: Join = Join::Never;

    /// What is written under the name.
    type Value: Shape;
    /// Makes the section of what is written.
    const NEW: fn(Self::Value) -> Self;

    /// Reports mistakes that need more than one entry to be seen. Called once for a document.
    fn check(_document: &Document, _checker: &mut Checker) {}

    /// The values that it gives to what has a name outside of the document.
    fn assignments(&self, _each: &mut dyn FnMut(Assignment<'_>)) {}
}

/// Fields of one source in the tables of another.
pub trait Extension: Sized + Clone + fmt::Debug + PartialEq + Eq + Send + Sync + 'static {
    /// [`Record::NAME`](crate::Record::NAME) of the tables that have the fields.
    const RECORD: &'static str;
    /// Paths of those fields that are joined as tables, with `*` for any name: `links/*/sysctl`.
    const JOINED: &'static [&'static str] = &[];

    /// Asks for the fields. What is read is kept in the scope; nothing is kept if there is none to read.
    fn read(fields: &mut Fields<'_>) -> Option<Self>;

    /// The values that it gives to what has a name outside of the document.
    fn assignments(&self, _each: &mut dyn FnMut(Assignment<'_>)) {}
}

/// The scopes that have a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scopes {
    /// The top level and every namespace.
    All,
    /// The top level alone; in a namespace it is refused with this reason.
    Host(&'static str),
    /// Namespaces alone.
    Namespaces,
}

/// How a section is joined where several files have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// One list after the other.
    Lists,
    /// Field by field; so are the tables below it with these paths, with `*` for any name.
    Tables(&'static [&'static str]),
    /// Not at all: it is written in one file.
    Never,
}

/// A value for something that has a name outside of the document, such as the path of a sysctl. By that
/// name one source can look at what another one sets, and none has to know the other.
#[derive(Clone, Debug)]
pub struct Assignment<'a> {
    pub name: String,
    /// The value as it is written.
    pub value: &'a str,
    /// Where it is written.
    pub span: Span,
}

/// All that one source adds to documents.
#[derive(Clone, Copy, Debug)]
pub struct SourceSections {
    /// The source's name: its settings are in `[settings.NAME]`.
    pub source: &'static str,
    pub sections: &'static [SectionType],
    /// Its fields in the tables of other sources.
    pub extensions: &'static [ExtensionType],
    /// Words of other tools for its sections and fields.
    pub synonyms: Synonyms,
    /// What to do about words of other tools that have no field here.
    pub advice: &'static [Advice],
    /// Its commands, each by the word with which a document requires a signed order for it.
    pub commands: &'static [&'static str],
}

impl SourceSections {
    /// A source with sections of its own, and nothing else.
    #[must_use]
    pub const fn new(source: &'static str, sections: &'static [SectionType]) -> Self {
        Self { source, sections, extensions: &[], synonyms: &[], advice: &[], commands: &[] }
    }
}

/// A section without its type.
#[derive(Clone, Copy)]
pub struct SectionType {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) scopes: Scopes,
    pub(crate) join: Join,
    pub(crate) read: fn(&Node, &mut Checker) -> Option<Arc<dyn Erased>>,
    pub(crate) schema: fn(&mut Definitions) -> Json,
    pub(crate) check: fn(&Document, &mut Checker),
}

/// Fields in the tables of another source, without their type.
#[derive(Clone, Copy)]
pub struct ExtensionType {
    pub(crate) record: &'static str,
    pub(crate) joined: &'static [&'static str],
    pub(crate) read: fn(&mut Fields<'_>) -> Option<Arc<dyn Erased>>,
}

/// A section or fields whose type is forgotten.
pub(crate) trait Erased: Any + fmt::Debug + Send + Sync {
    fn is_same(&self, other: &dyn Erased) -> bool;
    fn assignments(&self, each: &mut dyn FnMut(Assignment<'_>));
}

impl PartialEq for dyn Erased {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

/// Implements [`Erased`] for a wrapper around values of a trait.
macro_rules! erased {
    ($wrapper:ident, $kind:ident) => {
        #[derive(Debug)]
        pub(crate) struct $wrapper<T>(pub(crate) T);

        impl<T: $kind> Erased for $wrapper<T> {
            fn is_same(&self, other: &dyn Erased) -> bool {
                (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| self.0 == other.0)
            }

            fn assignments(&self, each: &mut dyn FnMut(Assignment<'_>)) {
                self.0.assignments(each);
            }
        }
    };
}

erased!(ErasedSection, Section);
erased!(ErasedExtension, Extension);

impl SectionType {
    /// A section by its type.
    #[must_use]
    pub const fn of<S: Section>() -> Self {
        Self {
            name: S::NAME,
            doc: S::DOC,
            scopes: S::SCOPES,
            join: S::JOIN,
            read: |node, checker| {
                let value = S::Value::read(node, checker)?;
                Some(Arc::new(ErasedSection(S::NEW(value))))
            },
            schema: S::Value::schema,
            check: S::check,
        }
    }

    /// The name of the field.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl ExtensionType {
    /// Fields by their type.
    #[must_use]
    pub const fn of<E: Extension>() -> Self {
        Self {
            record: E::RECORD,
            joined: E::JOINED,
            read: |fields| {
                E::read(fields).map(|extension| Arc::new(ErasedExtension(extension)) as _)
            },
        }
    }
}

impl fmt::Debug for SectionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Debug for ExtensionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fields of {}", self.record)
    }
}
