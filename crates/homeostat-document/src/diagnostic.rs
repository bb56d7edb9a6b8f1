//! What is wrong with a document: one [`Diagnostic`] a mistake, all of them in [`Diagnostics`].

use std::fmt;

use annotate_snippets::Renderer;

use crate::document::Document;
use crate::files::{Files, Location};
use crate::render;
use crate::span::{FileId, Span};

/// One mistake, with its place and the way out where there is one.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub(crate) place: Place,
    pub(crate) message: String,
    pub(crate) also: Option<(Span, String)>,
    pub(crate) help: Option<String>,
}

/// Where a mistake is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In a text that could be read.
    Span(Span),
    /// In a text that is not shown, since it has a secret in it.
    Unseen(Span),
    /// A file or directory as a whole, by name.
    Path(String),
}

/// How many diagnostics are shown at most.
const MOST_DRAWN: usize = 500;

/// A message may quote names and values of the document, or the words of another program.
fn bounded(mut message: String) -> String {
    const LONGEST: usize = 4000;
    if let Some((cut, _)) = message.char_indices().nth(LONGEST) {
        message.truncate(cut);
        message += "...";
    }
    message
}

/// Every mistake of a document, sorted by place. Never empty when it is an error.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    pub(crate) files: Files,
    pub(crate) found: Vec<Diagnostic>,
    readable: Option<Box<Document>>,
}

/// A mistake as plain fields, for machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the file or directory.
    pub file: String,
    /// Line from 1; nothing if the file as a whole is meant.
    pub line: Option<usize>,
    /// Column in characters from 1; nothing if the file as a whole is meant.
    pub column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// The other place that it has to do with, and what is there.
    pub also: Option<(Location, String)>,
    /// The way out, if one is known.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A mistake at a place.
    #[must_use]
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Self { place: Place::Span(span), message: bounded(message.into()), also: None, help: None }
    }

    /// A mistake at a place whose line has a secret in it: the place is named, and the line is not drawn.
    #[must_use]
    pub fn unseen(span: Span, message: impl Into<String>) -> Self {
        Self { place: Place::Unseen(span), ..Self::new(span, message) }
    }

    pub(crate) fn about_path(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: Place::Path(path.into()), message: message.into(), also: None, help: None }
    }

    /// The same with the way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with the way out, if there is one.
    #[must_use]
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    /// The same with the other place that it has to do with.
    #[must_use]
    pub fn also(mut self, span: Span, label: impl Into<String>) -> Self {
        self.also = Some((span, label.into()));
        self
    }

    /// The same, where the files have others before them.
    pub(crate) fn moved(&self, first: u32) -> Self {
        let moved = |span: Span| Span { file: FileId(span.file.0.saturating_add(first)), ..span };
        let mut one = self.clone();
        match &mut one.place {
            Place::Span(span) | Place::Unseen(span) => *span = moved(*span),
            Place::Path(_) => {}
        }
        one.also = one.also.map(|(span, label)| (moved(span), label));
        one
    }

    fn order(&self) -> (u8, Span) {
        match &self.place {
            Place::Path(_) => (0, Span::default()),
            Place::Span(span) | Place::Unseen(span) => (1, *span),
        }
    }

    /// A parser in trouble may say the same of one place many times.
    fn is_same(&self, other: &Self) -> bool {
        let spans = matches!((&self.place, &other.place), (Place::Span(_), Place::Span(_)));
        spans && self.order() == other.order() && self.message == other.message
    }

    fn finding(&self, files: &Files) -> Finding {
        let at = match &self.place {
            Place::Span(span) | Place::Unseen(span) => Ok(files.locate(*span)),
            Place::Path(path) => Err(path.clone()),
        };
        Finding {
            line: at.as_ref().ok().map(|at| at.line),
            column: at.as_ref().ok().map(|at| at.column),
            file: at.map_or_else(|path| path, |at| at.file),
            message: self.message.clone(),
            also: self.also.as_ref().map(|(span, label)| (files.locate(*span), label.clone())),
            help: self.help.clone(),
        }
    }
}

impl Diagnostics {
    /// All mistakes found in these files, in the order of their places.
    #[must_use]
    pub fn new(files: Files, mut found: Vec<Diagnostic>) -> Self {
        found.sort_by_key(Diagnostic::order);
        found.dedup_by(|again, first| again.is_same(first));
        hide_secrets(&files, &mut found);
        Self { files, found, readable: None }
    }

    /// Keeps the part of the document that could be read.
    pub(crate) fn beside(mut self, readable: Option<Document>) -> Self {
        self.readable = readable.map(Box::new);
        self
    }

    /// The part of the document that could be read, in which later stages may look for more
    /// mistakes. It is no desired state: what is missing from it may only be misspelt.
    #[must_use]
    pub fn readable(&self) -> Option<&Document> {
        self.readable.as_deref()
    }

    /// The mistakes as plain fields.
    pub fn iter(&self) -> impl Iterator<Item = Finding> + '_ {
        self.found.iter().map(|one| one.finding(&self.files))
    }

    /// How many mistakes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The mistakes for people: the source line, a mark under the value, the way out. Of very many
    /// the first are drawn and the rest counted.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let drawn = self.found.iter().take(MOST_DRAWN);
        let mut text: String =
            drawn.map(|one| render::render(&self.files, one, &renderer)).collect();
        if let Some(rest) = self.found.len().checked_sub(MOST_DRAWN).filter(|rest| *rest > 0) {
            text += &["and ", &rest.to_string(), " more\n"].concat();
        }
        text
    }
}

/// No mistake is drawn with a line that has a secret in it.
fn hide_secrets(files: &Files, found: &mut [Diagnostic]) {
    let line = |span: Span| (span.file, files.line(span).start);
    let secrets = found.iter().filter_map(|one| match one.place {
        Place::Unseen(span) => Some(line(span)),
        _ => None,
    });
    let secrets: Vec<_> = secrets.chain(files.secret_lines()).collect();
    if secrets.is_empty() {
        return;
    }
    for one in found {
        let Place::Span(span) = one.place else { continue };
        let (here, there) = (line(span), line(one.also.as_ref().map_or(span, |(also, _)| *also)));
        // Lines between two places may be drawn, too.
        let drawn = here.min(there)..=here.max(there);
        if secrets.iter().any(|secret| drawn.contains(secret)) {
            one.place = Place::Unseen(span);
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, finding) in self.iter().enumerate() {
            let newline = if position == 0 { "" } else { "\n" };
            write!(f, "{newline}{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)?;
        if let Some((at, label)) = &self.also {
            write!(f, " ({label}: {at})")?;
        }
        self.help.iter().try_for_each(|help| write!(f, "\n  help: {help}"))
    }
}
