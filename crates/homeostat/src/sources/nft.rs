//! The firewall: `[nftables]`, a text in nft's own language.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use homeostat_document::{Document, Nftables, Ruleset as Declared, Scope as Section};
use homeostat_document::{Settings, SourceSettings, Span, Spanned};
use homeostat_engine::book::holdings;
use homeostat_engine::{Bound, Ownership, Pages, Place, Section as Stated};
use homeostat_nft::{CompileError, Fault, Included, Mark, Nft, Ruleset, Shown, Wish, Wording};

use crate::context::Context;
use crate::failure::{Helped, Misfits};
use crate::registry::{Bind, Binding, Lists, Registered};
use crate::scope::Scope;

/// The firewall in the registry.
pub(crate) const REGISTERED: Registered =
    Registered { name: NAME, settings, check, bind, wait, remote: None };

/// What errors call a text of the document itself.
const INLINE: &str = "ruleset";

pub(crate) const NAME: &str = <Nft as homeostat_engine::Source>::NAME;

fn settings(all: &Settings) -> &SourceSettings {
    &all.nft
}

/// Only `nft` itself can tell more, and it needs a kernel for that: that is for plans.
fn check(section: &Section, _lists: Lists, misfits: &mut Misfits<'_>) {
    if let Some(Declared::File(path)) = declared(section)
        && let Err(error) = Ruleset::read(path)
    {
        push(misfits, path.span, &error);
    }
}

/// Which tables there will be, nobody knows before the text is compiled.
fn wait(_document: &Document, section: &Section) -> Vec<String> {
    declared(section).map(|_| "the tables of [nftables]".to_owned()).into_iter().collect()
}

/// The marks are in the kernel: without a section, there is business only where some are found.
fn bind(binding: &Binding<'_>) -> Bind {
    let source = Nft::of(Arc::clone(&binding.scope.netns), Mark::new(&binding.context.owner));
    let for_people = binding.context.is_for_people;
    let source = source.with_wording(if for_people { Wording::Listed } else { Wording::Parts });
    let place = binding.place(NAME);
    let stated = binding.section.and_then(|section| section.nftables.as_ref());
    if stated.is_none()
        && holdings::<Nft>(binding.pages, &place)?.records.is_empty()
        && !source.owns_any()
    {
        return Ok(None);
    }
    let wish = stated.map(|nftables| wish(binding, nftables, &source)).transpose()?;
    let section = if stated.is_some() { Stated::Stated } else { Stated::Missing };
    let config = binding.config(settings, section);
    let (wish, ownership) = (Arc::new(wish.unwrap_or_default()), Ownership::Marked);
    let nothing = Some(Arc::new(Wish::nothing()));
    Ok(Some(Box::new(Bound { source, wish, ownership, config, place, nothing })))
}

/// Our tables of a scope as a text.
pub(crate) fn show(context: &Context, scope: &Scope, pages: &dyn Pages) -> Result<Shown> {
    let source = Nft::of(Arc::clone(&scope.netns), Mark::new(&context.owner));
    let records = holdings::<Nft>(pages, &scope.place(&context.owner, NAME))?.records;
    source.show(&records).map_err(|failure| match failure.help {
        Some(help) => Helped::error(failure.error, help),
        None => anyhow!(failure.error),
    })
}

/// The tables that were taken over, by name and the kernel's number: they carry no mark.
pub(crate) fn taken_over(place: &Place, pages: &dyn Pages) -> Result<Vec<(String, u64)>> {
    let records = holdings::<Nft>(pages, place)?.records;
    let tables = records.iter().filter_map(|(key, record)| {
        let handle = record.identity.as_ref()?.parse().ok()?;
        Some((key.to_string(), handle))
    });
    Ok(tables.collect())
}

fn declared(section: &Section) -> Option<&Declared> {
    section.nftables.as_ref().and_then(|nftables| nftables.ruleset.as_ref())
}

fn wish(binding: &Binding<'_>, nftables: &Nftables, source: &Nft) -> Result<Wish> {
    let document = binding.document;
    let Some(declared) = &nftables.ruleset else { return Ok(Wish::nothing()) };
    let span = match declared {
        Declared::File(path) => path.span,
        Declared::Text(text) => text.span,
    };
    let compiled = ruleset(document, declared)
        .and_then(|ruleset| binding.context.compiler.compile(&ruleset, source));
    match compiled {
        Ok(wish) if nftables.adopt => Ok(wish.adopting()),
        Ok(wish) => Ok(wish),
        Err(error) => {
            let mut misfits = Misfits::in_document(document);
            match declared {
                Declared::Text(text) => push_inside(&mut misfits, text, &error),
                Declared::File(_) => push(&mut misfits, span, &error),
            }
            misfits.into_result()?;
            Ok(Wish::nothing())
        }
    }
}

/// The file of a section's ruleset, if it is in one, and what the ruleset includes.
pub(crate) fn files(document: &Document, section: &Section) -> (Option<PathBuf>, Included) {
    let Some(declared) = declared(section) else { return (None, Included::default()) };
    let file = match declared {
        Declared::File(path) => Some(path.value.clone()),
        Declared::Text(_) => None,
    };
    // One that cannot be read includes nothing.
    let included = ruleset(document, declared).map(|ruleset| ruleset.included());
    (file, included.unwrap_or_default())
}

fn ruleset<'a>(document: &Document, declared: &'a Declared) -> Result<Ruleset<'a>, CompileError> {
    match declared {
        Declared::File(path) => Ruleset::read(path),
        Declared::Text(text) => {
            let file = document.locate(text.span).file;
            let directory = Path::new(&file).parent().map_or_else(PathBuf::new, Path::to_owned);
            let here = directory.as_os_str().is_empty();
            let directory = if here { PathBuf::from(".") } else { directory };
            let text = Cow::Borrowed(text.as_str());
            Ok(Ruleset { text, name: INLINE.to_owned(), directory })
        }
    }
}

/// A mistake in a text that stands in the document itself, at its own place where that is known: a text
/// without escapes and indentation is there as it is.
fn push_inside(misfits: &mut Misfits<'_>, text: &Spanned<String>, error: &CompileError) {
    let start = misfits.document().written_at(text.span).find(text.as_str());
    let is_placed = |fault: &Fault| fault.file == INLINE && fault.line > 0;
    let (Some(start), true) = (start, error.faults().iter().any(is_placed)) else {
        return push(misfits, text.span, error);
    };
    for fault in error.faults() {
        if !is_placed(fault) {
            misfits.push(text.span, &in_one_line(fault), error.help());
            continue;
        }
        let at = u32::try_from(start + offset(text, fault)).unwrap_or_default();
        let at = text.span.start.saturating_add(at);
        // The line that `nft` repeats is drawn from the document.
        let message = fault.message.lines().next().unwrap_or_default();
        misfits.push(Span { start: at, end: at + 1, ..text.span }, message, error.help());
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

fn push(misfits: &mut Misfits<'_>, span: Span, error: &CompileError) {
    for fault in error.faults() {
        misfits.push(span, &in_one_line(fault), error.help());
    }
    if !error.faults().is_empty() {
        return;
    }
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    misfits.push(span, &message, error.help());
}
