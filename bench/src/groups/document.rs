//! A document with a list of routes in a directory of its own, and the program that reads it.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;
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
    /// Declares the routes with these numbers, and `more`.
    pub(super) fn of_routes(numbers: Range<usize>, more: &str) -> Result<Self> {
        let document = Self::new(&format!("{DOCUMENT}{more}"))?;
        std::fs::write(document.path("all.routes"), routes(numbers)?)?;
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

    /// Writes a file that it names.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.path(name), text)?)
    }

    /// Puts another text in its place.
    pub(super) fn rewrite(&self, text: &str) -> Result<()> {
        self.write(self.name, text)
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

    /// Runs a command with the document for a reader that goes after the first line: how long that takes, and how long
    /// the program goes on after that.
    pub(super) fn head(&self, command: &[&str]) -> Result<program::Head> {
        let (document, state) = (self.path(self.name), self.path("state"));
        let more = [text(&document)?, "--state-dir", text(&state)?];
        program::head(&self.program, &[command, &more].concat())
    }

    /// Starts a daemon with the document, and waits until it has converged.
    pub(super) fn keep(&self) -> Result<Running> {
        self.keep_with(&[])
    }

    /// The same with more options.
    pub(super) fn keep_with(&self, more: &[&str]) -> Result<Running> {
        let (document, state) = (self.path(self.name), self.path("state"));
        let run = ["run", text(&document)?, "--state-dir", text(&state)?];
        let running = Running::start(&self.program, &[&run, more].concat())?;
        self.converged(running)
    }

    /// The same in a mount namespace of its own, in which no other program sees the namespaces that it makes.
    pub(super) fn keep_with_own_names(&self, more: &[&str]) -> Result<Running> {
        const SCRIPT: &str = "mount -t tmpfs run /run && mkdir /run/netns && exec \"$0\" \"$@\"";
        let (document, state) = (self.path(self.name), self.path("state"));
        let daemon = ["run", text(&document)?, "--state-dir", text(&state)?];
        let script = ["--mount", "sh", "-ec", SCRIPT, &self.program];
        let running = Running::start("unshare", &[&script[..], &daemon, more].concat())?;
        self.converged(running)
    }

    /// The socket of the daemon that keeps the document.
    pub(super) fn socket(&self) -> PathBuf {
        self.path("state/default.sock")
    }

    fn converged(&self, running: Running) -> Result<Running> {
        self.ask(&["status", "--wait", "--timeout", "5m"])?;
        Ok(running)
    }

    /// Runs a command about the daemon that keeps the document to its end.
    pub(super) fn ask(&self, command: &[&str]) -> Result<()> {
        let state = self.path("state");
        program::run_quietly(&self.program, &[command, &["--state-dir", text(&state)?]].concat())
    }

    /// Begins a command that hands another document to that daemon.
    pub(super) fn begin(&self, command: &[&str], other: &Document) -> Result<Running> {
        let (document, state) = (other.path(other.name), self.path("state"));
        let more = [text(&document)?, "--state-dir", text(&state)?];
        Running::start(&self.program, &[command, &more].concat())
    }

    /// Whether a trial of that daemon is open.
    pub(super) fn is_open_trial(&self) -> Result<bool> {
        let state = self.path("state");
        let command = ["status", "--json", "--state-dir", text(&state)?];
        let status = program::read_any(Path::new(&self.program), &command)?;
        let status: Value = serde_json::from_str(&status)?;
        Ok(status.get("trial").is_some_and(Value::is_object))
    }

    /// How long the list is of what the open trial takes from others.
    pub(super) fn len_of_undo_list(&self) -> u64 {
        let list = self.path("state/confirmed/default/.trial/undo");
        std::fs::metadata(list).map_or(0, |list| list.len())
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

fn routes(numbers: Range<usize>) -> Result<String> {
    let (mut list, gateway) = (String::new(), Ip::V4.gateway());
    for number in numbers {
        let (dst, len) = Ip::V4.destination(number);
        writeln!(list, "{dst}/{len} via {gateway}")?;
    }
    Ok(list)
}
