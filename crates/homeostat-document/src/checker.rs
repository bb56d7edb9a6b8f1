//! Collects the mistakes while a tree is read, so that all are shown and not only the first.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::Arc;

use educe::Educe;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::files::Files;
use crate::node::Node;
use crate::section::{Erased, SourceSections};
use crate::span::{FileId, Span};

/// Knows the files and the sections that there are, and gathers the mistakes.
#[derive(Debug, Default)]
pub struct Checker {
    pub(crate) files: Files,
    pub(crate) sources: &'static [SourceSections],
    pub(crate) found: Vec<Diagnostic>,
    /// What sources read in the tables of others, in the scope that is being read.
    pub(crate) extended: Vec<Arc<dyn Erased>>,
}

impl Checker {
    /// One for a later stage, which has a document and reads no tree.
    #[must_use]
    pub fn new(files: Files) -> Self {
        Self { files, ..Self::default() }
    }

    pub fn report(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// Adds mistakes in texts beside the document, such as templates, with these texts.
    pub fn absorb(&mut self, others: &Diagnostics) {
        let first = self.files.absorb(&others.files);
        self.found.extend(others.found.iter().map(|one| one.moved(first)));
    }

    /// How many mistakes there are so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// "expected WHAT, found the number `5`".
    pub fn expected(&mut self, what: &str, node: &Node, help: Option<String>) {
        let message = format!("expected {what}, found {}", node.describe());
        self.report(Diagnostic::new(node.span, message).maybe_help(help));
    }

    /// Adds a single line of a file beside the document that is too long to be kept, so that a mistake can
    /// point into it.
    pub fn add_line(&mut self, name: &str, number: usize, text: &str) -> FileId {
        self.files.add_line(name, number, text)
    }

    /// A path in a document, seen from the document's own directory.
    #[must_use]
    pub fn resolve(&self, span: Span, path: &str) -> PathBuf {
        self.files.resolve(span.file, path)
    }

    /// The file that is meant at a place. If the document was restored with copies of its files, it is the copy.
    #[must_use]
    pub fn resolve_file(&self, span: Span, path: &str) -> PathBuf {
        self.files.resolve_file(span.file, path)
    }

    /// What is written at a place.
    #[must_use]
    pub fn written_at(&self, span: Span) -> &str {
        let text = self.files.text(span.file);
        text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    /// An error with all mistakes, if there were any.
    pub fn into_result(self) -> Result<(), Diagnostics> {
        if self.found.is_empty() { Ok(()) } else { Err(Diagnostics::new(self.files, self.found)) }
    }
}

/// Finds keys that are declared twice.
#[derive(Debug, Educe)]
#[educe(Default)]
pub struct Twins<K> {
    places: HashMap<K, Span>,
}

impl<K: Hash + Eq> Twins<K> {
    /// Remembers a key, or reports that it is there already; `what` says what it is the key of.
    pub fn see(&mut self, key: K, span: Span, checker: &mut Checker, what: impl Fn() -> String) {
        match self.places.get(&key) {
            Some(first) => {
                let again = Diagnostic::new(span, format!("{} is declared twice", what()));
                checker.report(again.also(*first, "first declared here"));
            }
            None => drop(self.places.insert(key, span)),
        }
    }
}
