//! Runs `nft`: the only program that this crate starts.
#![expect(clippy::disallowed_methods, reason = "the one module of this crate that starts programs")]

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `nft` on the calling thread's network, with this text on its standard input.
pub(crate) fn run(
    program: &OsStr,
    directory: &Path,
    arguments: &[&OsStr],
    text: &str,
) -> io::Result<Output> {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        // Words that are looked for must not be translated.
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // On a thread of its own: `nft` may print before it has read all.
        scope.spawn(move || {
            if let Some(mut stdin) = stdin {
                // One that ends early says why on its standard error.
                let _ = stdin.write_all(text.as_bytes());
            }
        });
        child.wait_with_output()
    })
}
