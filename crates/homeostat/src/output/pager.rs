//! A long text on a terminal goes through the reader's pager: `HOMEOSTAT_PAGER`, `PAGER`, or `less`. What fits on the
//! screen is printed as it is.
#![expect(
    clippy::disallowed_methods,
    reason = "the one module of the output that starts a program"
)]

use std::io::{self, IsTerminal as _, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use anstream::{AutoStream, ColorChoice};

use crate::cli::Color;
use crate::output::stream::{self, choice, ignore_closed_pipe};

/// Prints to standard output, by a pager if that is a terminal and the text is longer than the screen.
pub(crate) fn print(
    color: Color,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let height = height();
    if height == 0 {
        return stream::print(color, write);
    }
    // The pager shows the colours that the terminal would.
    let color = match choice(color) {
        ColorChoice::Auto => AutoStream::choice(&io::stdout()),
        set => set,
    };
    let mut paged = Paged::new(height);
    let stream: &mut dyn Write = &mut paged;
    ignore_closed_pipe(write(&mut AutoStream::new(stream, color)))?;
    ignore_closed_pipe(paged.finish())
}

/// How many lines the screen has; none, if there is no screen or the reader wants no pager.
fn height() -> usize {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
    size.filter(|_| !words().is_empty()).map_or(0, |size| size.ws_row.into())
}

/// The pager with its arguments.
fn words() -> Vec<String> {
    let set = ["HOMEOSTAT_PAGER", "PAGER"].into_iter().find_map(std::env::var_os);
    let set = set.map_or("less".to_owned(), |set| set.to_string_lossy().into_owned());
    set.split_whitespace().filter(|word| *word != "cat").map(str::to_owned).collect()
}

/// What was written, until it is known whether it fits; then the pager.
enum Paged {
    Short {
        text: Vec<u8>,
        lines: usize,
        height: usize,
    },
    Long {
        child: Child,
        input: ChildStdin,
    },
    /// There is no such program.
    Direct(io::Stdout),
}

impl Paged {
    fn new(height: usize) -> Self {
        Paged::Short { text: Vec::new(), lines: 0, height }
    }

    /// The pager, or the screen where it cannot be started.
    fn long() -> Self {
        let words = words();
        let mut words = words.iter();
        let mut command = Command::new(words.next().map_or("less", String::as_str));
        command.args(words).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        match command.spawn() {
            Ok(mut child) => match child.stdin.take() {
                Some(input) => Paged::Long { child, input },
                None => Paged::Direct(io::stdout()),
            },
            Err(_) => Paged::Direct(io::stdout()),
        }
    }

    /// Prints what is short, or waits until the reader has seen enough.
    fn finish(self) -> io::Result<()> {
        match self {
            Paged::Short { text, .. } => io::stdout().write_all(&text),
            Paged::Long { mut child, input } => {
                drop(input);
                child.wait().map(|_| ())
            }
            Paged::Direct(mut stdout) => stdout.flush(),
        }
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Paged::Long { input, .. } => return input.write(bytes),
            Paged::Direct(stdout) => return stdout.write(bytes),
            Paged::Short { text, lines, height } => {
                text.extend_from_slice(bytes);
                *lines += bytes.split(|byte| *byte == b'\n').count() - 1;
                // The last line of the screen is for the prompt of the shell.
                if *lines < *height {
                    return Ok(bytes.len());
                }
            }
        }
        let Paged::Short { text, .. } = std::mem::replace(self, Paged::long()) else {
            return Ok(bytes.len());
        };
        self.write_all(&text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Paged::Short { .. } => Ok(()),
            Paged::Long { input, .. } => input.flush(),
            Paged::Direct(stdout) => stdout.flush(),
        }
    }
}
