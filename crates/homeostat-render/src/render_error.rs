//! Why a file could not be rendered: the place in the template, through includes, with an excerpt.

use std::error::Error as _;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use homeostat_core::outcome::Retry;
use homeostat_document::{Diagnostic, Diagnostics, Files, Location, Span};
use minijinja::{Error as JinjaError, ErrorKind};

use crate::context::Needs;
use crate::error::{Error, words};
use crate::filters::Failed;
use crate::inputs::Verdict;
use crate::set::{Loader, TooMuch};

/// Why a file could not be rendered. It always has a place. Its message has no value in it once the file has read a secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RenderError {
    /// The file that was to be rendered.
    pub file: PathBuf,
    /// The place in a template, or in the text of the document that stands for one.
    pub at: Location,
    pub message: String,
    pub cause: RenderCause,
    /// Where the template was included, the nearest place first.
    pub included_at: Vec<Location>,
    drawn: Diagnostics,
}

/// What has to change before the file can be rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RenderCause {
    /// A template or the data.
    Mistake,
    /// The data lacks a value that a template needs.
    Undefined,
    /// Something is not known yet, or may not be read.
    Needs(Needs),
    /// A template is being written.
    BeingWritten {
        /// When it may be finished; nothing while a process has it open.
        due_in: Option<Duration>,
    },
}

/// A place as the engine tells it.
struct Place {
    name: String,
    line: usize,
    range: Option<Range<usize>>,
}

impl RenderError {
    pub(crate) fn new(
        file: &Path,
        template: &str,
        loader: &Loader,
        error: &JinjaError,
        has_read_secret: bool,
    ) -> Box<Self> {
        // From the outside to the inside: includes, then what failed in the innermost template.
        let mut places: Vec<Place> = Vec::new();
        let (mut innermost, mut next) = (error, Some(error));
        while let Some(error) = next {
            innermost = error;
            if let (Some(name), Some(line)) = (error.name(), error.line()) {
                places.push(Place { name: name.to_owned(), line, range: error.range() });
            }
            next = error.source().and_then(|source| source.downcast_ref());
        }
        let (message, cause) = explain(innermost, has_read_secret);
        Self::at(file, template, loader, places, message, cause)
    }

    /// A mistake that was found without rendering; the place is known or not.
    pub(crate) fn mistake(
        file: &Path,
        template: &str,
        loader: &Loader,
        message: String,
        range: Option<Range<usize>>,
    ) -> Box<Self> {
        let place = Place { name: template.to_owned(), line: 1, range };
        Self::at(file, template, loader, vec![place], message, RenderCause::Mistake)
    }

    /// A file has read what it may not have; the place is known or not.
    pub(crate) fn needs(
        file: &Path,
        template: &str,
        loader: &Loader,
        needs: &Needs,
        range: Option<Range<usize>>,
    ) -> Box<Self> {
        let cause = RenderCause::Needs(needs.clone());
        let place = Place { name: template.to_owned(), line: 1, range };
        Self::at(file, template, loader, vec![place], needs.to_string(), cause)
    }

    fn at(
        file: &Path,
        template: &str,
        loader: &Loader,
        mut places: Vec<Place>,
        message: String,
        cause: RenderCause,
    ) -> Box<Self> {
        if places.is_empty() {
            places.push(Place { name: template.to_owned(), line: 1, range: None });
        }
        let mut files = Files::default();
        let spans = places.iter().rev().map(|place| {
            let (name, text) = loader.describe(&place.name);
            let range = place.range.clone().unwrap_or_else(|| whole_line(&text, place.line));
            let file = files.add_text(&name, text);
            Span::new(file, range.start, range.end)
        });
        let spans: Vec<Span> = spans.collect();
        let mut included_at: Vec<Location> = spans.iter().map(|span| files.locate(*span)).collect();
        let at = included_at.remove(0);
        let first = spans.first().copied().unwrap_or_default();
        let mut diagnostic = Diagnostic::new(first, message.clone());
        if let Some(including) = spans.get(1) {
            diagnostic = diagnostic.also(*including, "included here");
        }
        if included_at.len() > 1 {
            let all: Vec<_> = included_at.iter().map(ToString::to_string).collect();
            diagnostic = diagnostic.help(format!("it is included at {}", all.join(", at ")));
        }
        let drawn = Diagnostics::new(files, vec![diagnostic]);
        Box::new(RenderError { file: file.to_owned(), at, message, cause, included_at, drawn })
    }

    /// The error with its places, to be shown among others.
    #[must_use]
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.drawn
    }

    /// The error for people: the lines of the templates with a mark under the place.
    #[must_use]
    pub fn draw(&self, color: bool) -> String {
        self.drawn.render(color)
    }

    /// What it says of the inputs that the file was to be made of.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match &self.cause {
            RenderCause::Needs(Needs::Input(_) | Needs::Facts) => Verdict::Incomplete,
            RenderCause::BeingWritten { .. } => Verdict::Unchecked,
            RenderCause::Needs(_) | RenderCause::Mistake | RenderCause::Undefined => {
                Verdict::Refused { why: self.to_string() }
            }
        }
    }

    /// When it makes sense to try again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.cause {
            RenderCause::BeingWritten { .. } => Retry::Soon,
            RenderCause::Mistake | RenderCause::Undefined | RenderCause::Needs(_) => {
                Retry::OnChange
            }
        }
    }
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)?;
        self.included_at.iter().try_for_each(|at| write!(f, " (included at {at})"))
    }
}

impl std::error::Error for RenderError {}

/// The message of the innermost error, and what it means.
fn explain(error: &JinjaError, has_read_secret: bool) -> (String, RenderCause) {
    let source = error.source();
    if let Some(needs) = source.and_then(|source| source.downcast_ref::<Needs>()) {
        return (needs.to_string(), RenderCause::Needs(needs.clone()));
    }
    if let Some(read) = source.and_then(|source| source.downcast_ref::<Error>()) {
        let cause = match read {
            Error::BeingWritten { due_in, .. } => RenderCause::BeingWritten { due_in: *due_in },
            _ => RenderCause::Mistake,
        };
        // The name of a template may have been made of a secret.
        let unnamed =
            "a template cannot be read, whose name is not shown: the file has read a secret";
        return (if has_read_secret { unnamed.to_owned() } else { words(read) }, cause);
    }
    let too_much = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    let too_much = too_much.and_then(std::io::Error::get_ref);
    if let Some(too_much) = too_much.and_then(|error| error.downcast_ref::<TooMuch>()) {
        return (too_much.to_string(), RenderCause::Mistake);
    }
    let kind = error.kind();
    // These quote the template only.
    let is_public = matches!(
        kind,
        ErrorKind::SyntaxError
            | ErrorKind::UndefinedError
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownMethod
            | ErrorKind::OutOfFuel
    );
    let message = if has_read_secret && !is_public {
        format!("{kind}, with a value that is not shown: the file has read a secret")
    } else if let Some(Failed(text)) = source.and_then(|source| source.downcast_ref()) {
        text.clone()
    } else if kind == ErrorKind::OutOfFuel {
        "the template takes too many steps: does it repeat itself?".to_owned()
    } else {
        match error.detail() {
            // Their details are whole sentences.
            Some(detail)
                if matches!(kind, ErrorKind::UndefinedError | ErrorKind::InvalidOperation) =>
            {
                detail.to_owned()
            }
            Some(detail) => format!("{kind}: {detail}"),
            None => kind.to_string(),
        }
    };
    let is_undefined = kind == ErrorKind::UndefinedError;
    (message, if is_undefined { RenderCause::Undefined } else { RenderCause::Mistake })
}

/// The bytes of a line, without the spaces before it.
fn whole_line(text: &str, number: usize) -> Range<usize> {
    let mut start = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index + 1 == number {
            let content = line.trim_end();
            let indent = content.len() - content.trim_start().len();
            return start + indent..start + content.len();
        }
        start += line.len();
    }
    0..0
}
