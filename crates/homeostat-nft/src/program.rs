//! Runs `nft`: the only program that this crate starts.
#![expect(clippy::disallowed_methods, reason = "the one module of this crate that starts programs")]

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Runs `nft` on the calling thread's network, with this text on its standard input.
pub(crate) fn run(
    program: &OsStr,
    directory: &Path,
    arguments: &[&OsStr],
    text: &str,
) -> io::Result<Output> {
    Running::start(program, directory, arguments)?.finish(text)
}

/// An `nft` that waits for its text.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(
        program: &OsStr,
        directory: &Path,
        arguments: &[&OsStr],
    ) -> io::Result<Self> {
        let command = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            // Words that are looked for must not be translated.
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        command.map(Running)
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Gives it the text, and waits for its end.
    pub(crate) fn finish(mut self, text: &str) -> io::Result<Output> {
        let stdin = self.0.stdin.take();
        std::thread::scope(|scope| {
            // On a thread of its own: `nft` may print before it has read all.
            scope.spawn(move || {
                if let Some(mut stdin) = stdin {
                    // One that ends early says why on its standard error.
                    let _ = stdin.write_all(text.as_bytes());
                }
            });
            self.0.wait_with_output()
        })
    }
}
