//! What xtask itself prints: data on stdout, everything for people on stderr.

use std::io::{self, Write};

/// Prints a line that somebody asked for. A closed pipe is the reader's choice and no failure.
pub(crate) fn data(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

/// Prints a line for the person who watches. A closed pipe is the reader's choice and no failure.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
