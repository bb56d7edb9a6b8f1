//! Streams that know about colour and that take a closed pipe for an early end.

use std::io::{self, BufWriter, Write};

use anstream::AutoStream;
use anstream::ColorChoice;

use crate::cli::Color;

pub(super) fn choice(color: Color) -> ColorChoice {
    match color {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    }
}

/// Standard output, buffered.
pub(crate) fn stdout(color: Color) -> impl Write {
    BufWriter::with_capacity(1 << 16, AutoStream::new(io::stdout(), choice(color)))
}

pub(crate) fn stderr(color: Color) -> impl Write {
    AutoStream::new(io::stderr(), choice(color))
}

/// Prints to standard output, buffered.
pub(crate) fn print(
    color: Color,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut stdout = stdout(color);
    ignore_closed_pipe(write(&mut stdout).and_then(|()| stdout.flush()))
}

/// A reader that has closed the pipe has seen enough: no error.
pub(crate) fn ignore_closed_pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// The same, where printing is mixed with what may fail for other reasons.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
