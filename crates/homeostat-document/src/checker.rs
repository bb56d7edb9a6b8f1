//! Collects the mistakes while a tree is read, so that all are shown and not only the first.

use std::path::PathBuf;

use crate::diagnostic::Diagnostic;
use crate::files::Files;
use crate::node::Node;
use crate::span::Span;

/// Knows the files, gathers the mistakes.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    pub(crate) files: Files,
    pub(crate) found: Vec<Diagnostic>,
}

impl Checker {
    pub(crate) fn new(files: Files) -> Self {
        Self { files, found: Vec::new() }
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// "expected WHAT, found the number `5`".
    pub(crate) fn expected(&mut self, what: &str, node: &Node, help: Option<String>) {
        let message = format!("expected {what}, found {}", node.describe());
        self.report(Diagnostic::new(node.span, message).maybe_help(help));
    }

    /// A path in a document, seen from the document's own directory.
    pub(crate) fn resolve(&self, span: Span, path: &str) -> PathBuf {
        self.files.resolve(span.file, path)
    }
}
