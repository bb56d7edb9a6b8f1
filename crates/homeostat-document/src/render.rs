//! Draws one mistake with its source line.

use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Place};
use crate::files::{Files, Line};
use crate::span::Span;

/// Two places with at most so many lines between them are drawn in one picture.
const NEAR: usize = 12;

/// Longest stretch of text that is drawn, in bytes.
const LONG: usize = 10_000;

/// The drawing, ended by an empty line.
pub(crate) fn render(files: &Files, diagnostic: &Diagnostic, renderer: &Renderer) -> String {
    let message = visible(&diagnostic.message);
    let also = diagnostic.also.as_ref().map(|(span, label)| (*span, visible(label)));
    let help = diagnostic.help.as_deref().map(visible);
    let mut group = Group::with_title(Level::ERROR.primary_title(message.as_str()));
    group = match (&diagnostic.place, &also) {
        (Place::Path(path), _) => group.element(Origin::path(path.as_str())),
        (Place::Unseen(span), _) => group.element(named(files, *span)),
        (Place::Span(span), Some((other, label))) => {
            group.elements(pictures(files, *span, *other, label))
        }
        (Place::Span(span), None) => group.element(picture(files, *span, None)),
    };
    if let Some(help) = &help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    format!("{}\n\n", renderer.render(&[group]))
}

/// Two places: in one picture if they are near, else in two.
fn pictures<'a>(files: &'a Files, span: Span, other: Span, label: &'a str) -> Vec<Element<'a>> {
    let (here, there) = (files.line(span), files.line(other));
    let (first, last) = if here.start <= there.start { (&here, &there) } else { (&there, &here) };
    let end = last.start + last.text.len();
    let far = last.number.abs_diff(first.number) > NEAR || end - first.start > LONG;
    if span.file != other.file || far {
        return vec![picture(files, span, None), picture(files, other, Some(label))];
    }
    let text = files.text(span.file).get(first.start..end).unwrap_or("");
    let within = |line: &Line<'_>| {
        let shift = line.start - first.start;
        line.within.start + shift..line.within.end + shift
    };
    let both = Snippet::source(text)
        .line_start(first.number)
        .path(files.name(span.file))
        .annotation(AnnotationKind::Primary.span(within(&here)))
        .annotation(AnnotationKind::Context.span(within(&there)).label(label));
    vec![both.into()]
}

/// The line with a mark under the place. Only the line itself is handed over, so that the cost does
/// not grow with the file; one that is too long to be looked at is only named.
fn picture<'a>(files: &'a Files, span: Span, label: Option<&'a str>) -> Element<'a> {
    let line = files.line(span);
    if line.text.len() > LONG {
        return named(files, span).into();
    }
    let kind = match label {
        Some(_) => AnnotationKind::Context,
        None => AnnotationKind::Primary,
    };
    let mark = kind.span(line.within).label(label);
    Snippet::source(line.text)
        .line_start(line.number)
        .path(files.name(span.file))
        .annotation(mark)
        .into()
}

/// A place without its line.
fn named(files: &Files, span: Span) -> Origin<'_> {
    let at = files.locate(span);
    Origin::path(files.name(span.file)).line(at.line).char_column(at.column)
}

/// Values of the user end up in messages: nothing in them may move the cursor.
fn visible(text: &str) -> String {
    let escape = |c: char| {
        if c.is_control() { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(escape).collect()
}
