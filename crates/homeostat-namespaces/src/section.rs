//! What the document says of namespaces themselves: `create = true` in `[namespaces.NAME]`.

use homeostat_document::{
    Checker, Diagnostic, Document, Scope, Scopes, Section, SectionType, SourceSections,
};
use homeostat_netns::Name;

use crate::key::Key;

/// All that namespaces add to documents.
pub const SECTIONS: SourceSections =
    SourceSections::new("namespaces", &[SectionType::of::<Create>()]);

/// Whether a namespace is made when it is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create(pub bool);

impl Section for Create {
    const NAME: &'static str = "create";
    const DOC: &'static str = "Whether the namespace is made when it is not there";
    const SCOPES: Scopes = Scopes::Namespaces;

    type Value = bool;
    const NEW: fn(Self::Value) -> Self = Self;

    fn check(document: &Document, checker: &mut Checker) {
        for (name, scope) in &document.namespaces {
            if is_made(scope) && scope.found_at().is_some() {
                let message = format!("`{}` is made, and also found elsewhere", name.value);
                let help = "leave `create` out: only what has a name in /run/netns is made";
                checker.report(Diagnostic::new(name.span, message).help(help));
            }
        }
        for (pattern, _) in document.patterns.iter().filter(|(_, scope)| is_made(scope)) {
            let message =
                format!("the pattern `{}` matches namespaces and makes none", pattern.value);
            let help = "leave `create` out, or write the name of one namespace";
            checker.report(Diagnostic::new(pattern.span, message).help(help));
        }
    }
}

/// Whether a scope asks for its namespace to be made.
#[must_use]
pub fn is_made(scope: &Scope) -> bool {
    scope.get::<Create>().is_some_and(|create| create.0)
}

/// The namespaces of a document that shall be made, or those that shall only be there.
pub fn named(document: &Document, made: bool) -> Result<Vec<Key>, homeostat_netns::Error> {
    let mut keys = Vec::new();
    for (name, scope) in &document.namespaces {
        if is_made(scope) == made && scope.found_at().is_none() {
            keys.extend(Key::new(Name::new(name.as_str())?));
        }
    }
    Ok(keys)
}
