//! `[namespaces."ct-*"]`: one section for each namespace that is there and whose name matches.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::{Ambiguous, Checker, Diagnostic, Document, NamespaceName, Spanned};
use homeostat_netns::Name;

use crate::failure::DocumentErrors;

/// A document in which the namespaces that are there have the sections that patterns give them.
pub(crate) struct Matched {
    pub(crate) document: Arc<Document>,
    /// The names that two patterns match: no section is theirs.
    pub(crate) ambiguous: Vec<Ambiguous>,
}

/// Looks which namespaces are there. Without patterns none is looked for.
pub(crate) fn matched(document: &Document) -> Result<Matched> {
    if document.patterns.is_empty() {
        return Ok(Matched { document: Arc::new(document.clone()), ambiguous: Vec::new() });
    }
    let names = homeostat_netns::names().context("cannot list the network namespaces")?;
    let (document, ambiguous) = document.matching(names.iter().map(Name::as_str));
    Ok(Matched { document: Arc::new(document), ambiguous })
}

/// What is to be done about a name that two patterns match.
pub(crate) fn why_ambiguous(Ambiguous { name, patterns: [one, other] }: &Ambiguous) -> String {
    format!(
        "the patterns `{}` and `{}` both match `{name}`; write [namespaces.{name}], or patterns that \
         do not overlap",
        one.value, other.value
    )
}

/// Names that two patterns match, as mistakes of the document.
pub(crate) fn refuse(document: &Document, ambiguous: &[Ambiguous]) -> Result<(), DocumentErrors> {
    let mut checker = Checker::new(document.files.clone());
    for Ambiguous { name, patterns } in ambiguous {
        let [one, other]: &[Spanned<NamespaceName>; 2] = patterns;
        let message =
            format!("the namespace `{name}` matches `{}` and `{}`", one.value, other.value);
        let help = format!("write [namespaces.{name}], or patterns that do not overlap");
        let found =
            Diagnostic::new(other.span, message).also(one.span, "the other pattern is here");
        checker.report(found.help(help));
    }
    Ok(checker.into_result()?)
}
