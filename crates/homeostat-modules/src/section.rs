//! The section of the document: `modules`.

use homeostat_document::{
    Checker, Diagnostic, Document, Join, Scope, Scopes, Section, SectionType, SourceSections,
    Spanned, Text, ValueError,
};

use crate::key::{Key, ModuleName};
use crate::model::DesiredState;

/// All that modules add to documents.
pub const SECTIONS: SourceSections =
    SourceSections::new("modules", &[SectionType::of::<ModuleSection>()]);

/// `modules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSection(pub Vec<Spanned<ModuleName>>);

impl Section for ModuleSection {
    const NAME: &'static str = "modules";
    const DOC: &'static str = "Kernel modules that are loaded before everything else";
    const SCOPES: Scopes = Scopes::Host("modules belong to the kernel, not to a namespace");
    const JOIN: Join = Join::Lists;

    type Value = Vec<Spanned<ModuleName>>;
    const NEW: fn(Self::Value) -> Self = Self;

    fn check(document: &Document, checker: &mut Checker) {
        for (_, scope) in document.scopes() {
            let mut seen: Vec<&Spanned<ModuleName>> = Vec::new();
            for name in modules(scope) {
                if let Some(first) = seen.iter().find(|seen| seen.value == name.value) {
                    let message = format!("`{}` is in the list twice", name.value);
                    let twice = Diagnostic::new(name.span, message);
                    checker
                        .report(twice.also(first.span, "it is here, too").help("keep one of them"));
                }
                seen.push(name);
            }
        }
    }
}

impl Text for ModuleName {
    const WHAT: &'static str = "the name of a kernel module, such as \"8021q\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse().map_err(|error: crate::key::NameError| {
            ValueError::new(error.to_string()).help(error.help())
        })
    }
}

pub(crate) fn modules(scope: &Scope) -> impl Iterator<Item = &Spanned<ModuleName>> {
    scope.get::<ModuleSection>().into_iter().flat_map(|section| &section.0)
}

/// What a scope declares.
#[must_use]
pub fn desired(scope: &Scope) -> DesiredState {
    DesiredState::new(modules(scope).map(|name| name.value.clone()))
}

/// Every declared module of a scope.
pub fn keys(scope: &Scope) -> impl Iterator<Item = Key> + '_ {
    modules(scope).map(|name| Key(name.value.clone()))
}
