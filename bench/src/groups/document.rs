//! A document with a list of routes in a directory of its own, and the program that reads it.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::wire::Ip;
use crate::program::{self, Running, text};

const DOCUMENT: &str = "[[routes]]\nfrom-file = \"all.routes\"\n";

pub(super) struct Document {
    program: String,
    directory: TempDir,
    /// What its file is called, which says its format.
    name: &'static str,
}

impl Document {
    /// Declares the first `size` routes, and `more`.
    pub(super) fn of_routes(size: usize, more: &str) -> Result<Self> {
        let document = Self::new(&format!("{DOCUMENT}{more}"))?;
        std::fs::write(document.path("all.routes"), routes(size)?)?;
        Ok(document)
    }

    pub(super) fn new(text: &str) -> Result<Self> {
        Self::called("host.toml", text)
    }

    /// One in a file of this name.
    pub(super) fn called(name: &'static str, text: &str) -> Result<Self> {
        let document = Document { program: program()?, directory: tempfile::tempdir()?, name };
        std::fs::write(document.path(name), text)?;
        Ok(document)
    }

    /// Runs a command with the document to its end, and returns the most memory that it had.
    pub(super) fn peak(&self, command: &str) -> Result<usize> {
        program::peak(&self.program, &[command, text(&self.path(self.name))?])
    }

    /// Runs a command with the document to its end.
    pub(super) fn run(&self, command: &[&str]) -> Result<()> {
        let (document, state) = (self.path(self.name), self.path("state"));
        let more = [text(&document)?, "--state-dir", text(&state)?];
        program::run_quietly(&self.program, &[command, &more].concat())
    }

    /// Starts a daemon with the document, and waits until it has converged.
    pub(super) fn keep(&self) -> Result<Running> {
        let (document, state) = (self.path(self.name), self.path("state"));
        let (document, state) = (text(&document)?, text(&state)?);
        let running = Running::start(&self.program, &["run", document, "--state-dir", state])?;
        self.converged(running)
    }

    /// The same in a mount namespace of its own, in which no other program sees the namespaces that it makes.
    pub(super) fn keep_with_own_names(&self) -> Result<Running> {
        const SCRIPT: &str = "mount -t tmpfs run /run && mkdir /run/netns && exec \"$0\" \"$@\"";
        let (document, state) = (self.path(self.name), self.path("state"));
        let daemon = ["run", text(&document)?, "--state-dir", text(&state)?];
        let script = ["--mount", "sh", "-ec", SCRIPT, &self.program];
        let running = Running::start("unshare", &[&script[..], &daemon].concat())?;
        self.converged(running)
    }

    fn converged(&self, running: Running) -> Result<Running> {
        let state = self.path("state");
        let wait = ["status", "--wait", "--timeout", "5m", "--state-dir", text(&state)?];
        program::run_quietly(&self.program, &wait)?;
        Ok(running)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// The program in the directory of this one, or one above, for tests.
fn program() -> Result<String> {
    let own = std::env::current_exe()?;
    let mut places = own.ancestors().skip(1).take(2).map(|place| place.join("homeostat"));
    let found = places.find(|program| program.is_file());
    let found = found.context(
        "`homeostat` is not built: `cargo build -p homeostat` with the same profile does it",
    )?;
    Ok(text(&found)?.to_owned())
}

fn routes(size: usize) -> Result<String> {
    let (mut list, gateway) = (String::new(), Ip::V4.gateway());
    for number in 0..size {
        let (dst, len) = Ip::V4.destination(number);
        writeln!(list, "{dst}/{len} via {gateway}")?;
    }
    Ok(list)
}
