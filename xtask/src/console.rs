//! Output of xtask itself: data on stdout, messages on stderr. A closed pipe is ignored.

use std::io::{self, Write};

pub(crate) fn data(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
