//! How an error reaches people: what failed, why, and the way out.

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use homeostat_document::Diagnostics;
use homeostat_engine::{Failure, Retry};
use homeostat_registry::Error as SourceError;

use crate::cli::Color;
use crate::output::line::plain;
use crate::output::stream;

/// An error in plain words, and what to do.
pub(crate) fn helped(message: impl Into<String>, help: impl Into<String>) -> anyhow::Error {
    Failure::new(message, Retry::Never).with_help(help).into()
}

/// The mistakes in a document, drawn.
#[derive(Debug, thiserror::Error)]
#[error("{drawn}")]
pub(crate) struct DocumentErrors {
    drawn: String,
    count: usize,
}

impl DocumentErrors {
    /// Those, and the ones that a later stage found.
    pub(crate) fn and_also(mut self, more: Option<DocumentErrors>) -> Self {
        if let Some(more) = more {
            self.drawn += &more.drawn;
            self.count += more.count;
        }
        self
    }
}

impl From<Diagnostics> for DocumentErrors {
    fn from(diagnostics: Diagnostics) -> Self {
        // Drawn with colour; the stream takes it out where it does not belong.
        DocumentErrors { drawn: diagnostics.render(true), count: diagnostics.len() }
    }
}

/// Why a source could not be bound, shown or commanded.
pub(crate) fn of_source(error: SourceError) -> anyhow::Error {
    match error {
        SourceError::Document(diagnostics) => DocumentErrors::from(diagnostics).into(),
        SourceError::Busy(error) => error.into(),
        SourceError::Failed(failure) => failure.into(),
        other => other.into(),
    }
}

/// Prints what went wrong beside what was asked for, which was done.
pub(crate) fn warn(error: &anyhow::Error, color: Color) {
    let _ = writeln!(stream::stderr(color), "warning: {}", plain(&text(error)));
}

/// Prints an error to stderr.
pub(crate) fn report(error: &anyhow::Error, color: Color) -> ExitCode {
    // If stderr is closed, the error cannot be shown.
    let _ = write(error, &mut stream::stderr(color));
    ExitCode::FAILURE
}

/// Writes an error for people.
pub(crate) fn write(error: &anyhow::Error, to: &mut dyn std::io::Write) -> std::io::Result<()> {
    if let Some(Relayed(text)) = error.downcast_ref() {
        return to.write_all(text.as_bytes());
    }
    if let Some(DocumentErrors { drawn, count }) = error.downcast_ref() {
        let errors = if *count == 1 { "1 error".to_owned() } else { format!("{count} errors") };
        return writeln!(
            to,
            "{}\n\n{errors} in the document; nothing was changed",
            drawn.trim_end()
        );
    }
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let bold = Style::new().bold();
    let message: Vec<_> = format!("{error:#}").lines().map(plain).collect();
    writeln!(to, "{red}error{red:#}: {}", message.join("\n"))?;
    match help(error) {
        Some(help) => writeln!(to, "{bold}help{bold:#}: {}", plain(&help)),
        None => Ok(()),
    }
}

/// An error of the daemon, drawn there.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Relayed(pub(crate) String);

/// What an error says, without colour.
pub(crate) fn text(error: &anyhow::Error) -> String {
    anstream::adapter::strip_str(&format!("{error:#}")).to_string()
}

/// The way out of an error, if one is known.
pub(crate) fn help(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let failure = cause.downcast_ref::<Failure>();
        failure
            .and_then(|failure| failure.help.clone())
            .or_else(|| cause.downcast_ref::<homeostat_engine::journal::JournalError>()?.help())
            .or_else(|| engine_help(cause.downcast_ref()?))
            .or_else(|| cause.downcast_ref::<homeostat_netns::Error>()?.help())
    })
}

/// What the engine advises, in the words of our flags and settings.
fn engine_help(error: &homeostat_engine::Error) -> Option<String> {
    use homeostat_engine::Error::{Locked, NewerLedger, OpenLedger};
    let help = error.help()?;
    Some(match error {
        OpenLedger { .. } => format!("{help}; --state-dir names another one"),
        NewerLedger { path, .. } => format!(
            "{help}; --state-dir names another one. To go on with this version, move {} away: marks in the \
             kernel stay, but original values and the records of objects without a mark are lost",
            path.display()
        ),
        Locked { .. } => format!("{help} with a protocol of its own"),
        _ => help,
    })
}
