//! The section of the document: `[nftables]`, a ruleset in nft's own language, beside the document or
//! inside of it.

use std::path::PathBuf;

use homeostat_core::{Failure, Retry};
use homeostat_document::{
    Checker, Diagnostic, Diagnostics, Document, Fields, Join, Record, Scope, Section, SectionType,
    SourceSections, Span, Spanned, record,
};
use homeostat_registry::NamedFiles;

use crate::compile::Compiler;
use crate::desired::DesiredState;
use crate::error::{CompileError, Fault};
use crate::include::Included;
use crate::ruleset::Ruleset;
use crate::source::Nft;

/// All that nftables add to documents.
pub const SECTIONS: SourceSections = SourceSections {
    synonyms: &[("nft", "nftables")],
    ..SourceSections::new("nft", &[SectionType::of::<Nftables>()])
};

/// The firewall. Without file and ruleset it declares that there are no tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nftables {
    /// The text, or where it is.
    pub ruleset: Option<Declared>,
    /// Whether the tables may be taken over from any owner.
    pub adopt: bool,
}

/// Where the nft text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Declared {
    /// A file, seen from the document's own directory.
    File(Spanned<PathBuf>),
    /// The text itself.
    Text(Spanned<String>),
}

/// What errors call a text of the document itself.
const INLINE: &str = "ruleset";

/// The text that a scope declares.
#[must_use]
pub fn declared(scope: &Scope) -> Option<&Declared> {
    scope.get::<Nftables>().and_then(|nftables| nftables.ruleset.as_ref())
}

/// Reports a file that cannot be read. Only `nft` itself can find more, and it needs a kernel for that:
/// that is for plans.
pub fn resolve(scope: &Scope, checker: &mut Checker) {
    if let Some(Declared::File(path)) = declared(scope)
        && let Err(error) = Ruleset::read(path)
    {
        push(checker, path.span, &error);
    }
}

/// Adds the file of a scope's ruleset, if it is in one, and what the ruleset includes.
pub fn files(document: &Document, scope: &Scope, named: &mut NamedFiles) {
    let Some(declared) = declared(scope) else { return };
    if let Declared::File(path) = declared {
        named.files.insert(path.value.clone());
    }
    // One that cannot be read includes nothing.
    if let Ok(ruleset) = ruleset(document, declared) {
        let Included { files, directories } = ruleset.included();
        named.files.extend(files);
        named.directories.extend(directories);
    }
}

/// Compiles what a document declares.
pub fn desired(
    document: &Document,
    nftables: &Nftables,
    compiler: &Compiler,
    source: &Nft,
) -> Result<DesiredState, Diagnostics> {
    let Some(declared) = &nftables.ruleset else { return Ok(DesiredState::nothing()) };
    let desired =
        ruleset(document, declared).and_then(|ruleset| compiler.compile(&ruleset, source));
    match desired {
        Ok(desired) if nftables.adopt => Ok(desired.adopting()),
        Ok(desired) => Ok(desired),
        Err(error) => {
            let mut checker = Checker::new(document.files.clone());
            match declared {
                Declared::Text(text) => push_inside(document, text, &error, &mut checker),
                Declared::File(path) => push(&mut checker, path.span, &error),
            }
            checker.into_result().map(|()| DesiredState::nothing())
        }
    }
}

impl Section for Nftables {
    const NAME: &'static str = "nftables";
    const DOC: &'static str = "The firewall, in nft's own language";
    const JOIN: Join = Join::Tables(&[]);

    type Value = Self;
    const NEW: fn(Self::Value) -> Self = |nftables| nftables;
}

record!(Nftables);

impl Record for Nftables {
    const NAME: &'static str = "nftables";
    const DOC: &'static str = "The firewall, in nft's own language";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let file = fields.optional("file", "A file in nft's own language");
        let text = fields.optional("ruleset", "The same, written here");
        let adopt = fields.flag("adopt", "Take these tables over from any owner");
        fields.exclusive("file", "ruleset");
        let ruleset = file.map(Declared::File).or(text.map(Declared::Text));
        Some(Self { ruleset, adopt })
    }
}

fn ruleset(document: &Document, declared: &Declared) -> Result<Ruleset, CompileError> {
    let root = document.files.root().to_owned();
    match declared {
        Declared::File(path) => Ok(Ruleset { root, ..Ruleset::read(path)? }),
        Declared::Text(text) => {
            let directory = document.files.directory(text.span);
            let here = directory.as_os_str().is_empty();
            let directory = if here { PathBuf::from(".") } else { directory };
            Ok(Ruleset { text: text.as_str().into(), name: INLINE.to_owned(), directory, root })
        }
    }
}

/// A mistake in a text that stands in the document itself, at its own place where that is known: a text
/// without escapes and indentation is there as it is.
fn push_inside(
    document: &Document,
    text: &Spanned<String>,
    error: &CompileError,
    checker: &mut Checker,
) {
    let start = document.written_at(text.span).find(text.as_str());
    let is_placed = |fault: &Fault| fault.file == INLINE && fault.line > 0;
    let (Some(start), true) = (start, error.faults().iter().any(is_placed)) else {
        return push(checker, text.span, error);
    };
    for fault in error.faults() {
        if !is_placed(fault) {
            report(checker, text.span, &in_one_line(fault), error);
            continue;
        }
        let at = u32::try_from(start + offset(text, fault)).unwrap_or_default();
        let at = text.span.start.saturating_add(at);
        // The line that `nft` repeats is drawn from the document.
        let message = fault.message.lines().next().unwrap_or_default();
        report(checker, Span { start: at, end: at + 1, ..text.span }, message, error);
    }
}

/// The byte of a text that a fault is about.
fn offset(text: &str, fault: &Fault) -> usize {
    let lines = text.split_inclusive('\n').take(fault.line.saturating_sub(1) as usize);
    lines.map(str::len).sum::<usize>() + fault.column.saturating_sub(1) as usize
}

/// A fault in one line: with the line of the text that `nft` repeats.
fn in_one_line(fault: &Fault) -> String {
    let mut lines = fault.message.lines();
    let message = lines.next().unwrap_or_default().to_owned();
    let line = lines.next().map(str::trim).filter(|line| !line.is_empty());
    let message = line.map_or(message.clone(), |line| format!("{message}: {line}"));
    Fault { message, ..fault.clone() }.to_string()
}

fn push(checker: &mut Checker, span: Span, error: &CompileError) {
    for fault in error.faults() {
        report(checker, span, &in_one_line(fault), error);
    }
    if !error.faults().is_empty() {
        return;
    }
    report(checker, span, &Failure::from_error(error, Retry::Soon).error, error);
}

fn report(checker: &mut Checker, span: Span, message: &str, error: &CompileError) {
    let help = error.help().map(str::to_owned);
    checker.report(Diagnostic::new(span, message).maybe_help(help));
}
