//! Builds a table and refuses a name that is already in it.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::node::{Entry, shorten};
use crate::span::Span;

/// The entries so far, and where each name stands.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) list: Vec<Entry>,
    places: HashMap<String, Span>,
}

impl Entries {
    /// Adds an entry, or says where its name was used before.
    pub(crate) fn add(&mut self, entry: Entry) -> Option<Diagnostic> {
        let (name, span) = (&entry.0.value, entry.0.span);
        if let Some(first) = self.places.get(name) {
            return Some(twice(name, span, *first));
        }
        self.places.insert(name.clone(), span);
        self.list.push(entry);
        None
    }
}

/// "`name` is defined twice", with both places.
pub(crate) fn twice(name: &str, again: Span, first: Span) -> Diagnostic {
    Diagnostic::new(again, format!("`{}` is defined twice", shorten(name)))
        .also(first, "first defined here")
}
