//! What a document says of one scope: the sections of all sources, each by its type.

use std::any::Any;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::fields::Fields;
use crate::section::{
    Assignment, Erased, ErasedExtension, ErasedSection, Extension, Scopes, Section, SectionType,
};
use crate::span::{Span, Spanned};

/// The sections of one scope. One that is not written is absent; an empty one is there.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    sections: Vec<Written>,
    extensions: Vec<Arc<dyn Erased>>,
    /// Where the namespace is, if not at its name.
    pub(crate) found_at: Option<FoundAt>,
}

/// Where a namespace is found that has no entry in `/run/netns`. We do not keep it alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundAt {
    /// At this file, as container engines mount them.
    Path(PathBuf),
    /// It is that of the process whose id is in this file.
    PidFile(PathBuf),
}

/// A section that is written, readable or not.
#[derive(Clone, Debug)]
struct Written {
    section: &'static SectionType,
    /// Where its name is.
    span: Span,
    value: Option<Arc<dyn Erased>>,
}

impl Scope {
    /// A section, if it is written and could be read.
    #[must_use]
    pub fn get<S: Section>(&self) -> Option<&S> {
        let mut values = self.sections.iter().filter_map(|one| one.value.as_deref());
        let found = values.find_map(|value| (value as &dyn Any).downcast_ref::<ErasedSection<S>>());
        found.map(|section| &section.0)
    }

    /// The fields of a source in the tables of others.
    pub fn extensions<E: Extension>(&self) -> impl Iterator<Item = &E> {
        let values = self.extensions.iter().map(|value| &**value as &dyn Any);
        values.filter_map(|value| Some(&value.downcast_ref::<ErasedExtension<E>>()?.0))
    }

    /// Where the namespace is, if not at its name.
    #[must_use]
    pub fn found_at(&self) -> Option<&FoundAt> {
        self.found_at.as_ref()
    }

    /// Where a section's name is written; nothing if the section is not written at all.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<Span> {
        self.sections.iter().find(|one| one.section.name == name).map(|one| one.span)
    }

    /// Whether a section is written: an empty one says that there shall be nothing, a missing one does
    /// not.
    #[must_use]
    pub fn states(&self, name: &str) -> bool {
        self.place_of(name).is_some()
    }

    /// The values that the scope gives to what has a name outside of the document, by that name, and where
    /// each is written.
    #[must_use]
    pub fn assignments(&self) -> HashMap<String, Spanned<String>> {
        let mut all = HashMap::new();
        let mut add = |Assignment { name, value, span }: Assignment<'_>| {
            all.insert(name, Spanned::new(value.to_owned(), span));
        };
        let sections = self.sections.iter().filter_map(|one| one.value.as_ref());
        sections.chain(&self.extensions).for_each(|value| value.assignments(&mut add));
        all
    }

    /// Asks for all sections that the top level has.
    pub(crate) fn read_host(fields: &mut Fields<'_>) -> Self {
        Self::read(fields, |scopes| scopes != Scopes::Namespaces)
    }

    /// Asks for all sections that a namespace has, and refuses the others.
    pub(crate) fn read_namespace(fields: &mut Fields<'_>) -> Self {
        let scope = Self::read(fields, |scopes| !matches!(scopes, Scopes::Host(_)));
        for section in fields.sources().iter().flat_map(|source| source.sections) {
            if let Scopes::Host(why) = section.scopes {
                fields.refused(section.name, why, OUTSIDE);
            }
        }
        scope
    }

    fn read(fields: &mut Fields<'_>, has: impl Fn(Scopes) -> bool) -> Self {
        let all = fields.sources().iter().flat_map(|source| source.sections);
        let mut sections = Vec::new();
        for section in all.filter(|section| has(section.scopes)) {
            let value = fields.section(section);
            if fields.has(section.name) {
                sections.push(Written { section, span: fields.at(section.name), value });
            }
        }
        let extended = fields.checker().map(|checker| std::mem::take(&mut checker.extended));
        Self { sections, extensions: extended.unwrap_or_default(), found_at: None }
    }
}

/// What to do about a section that only the top level has.
pub(crate) const OUTSIDE: &str = "move it to the top level of the document";

/// Two are equal when the same sections say the same, in whatever order.
impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        let is_there = |one: &Written| {
            let two = other.sections.iter().find(|two| two.section.name == one.section.name);
            two.is_some_and(|two| one.value == two.value)
        };
        self.sections.len() == other.sections.len()
            && self.sections.iter().all(is_there)
            && self.extensions == other.extensions
            && self.found_at == other.found_at
    }
}

impl Eq for Scope {}
