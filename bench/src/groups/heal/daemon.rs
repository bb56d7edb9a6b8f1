//! `homeostat run` over a list of routes, in the calling thread's namespace.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::super::wire::Ip;
use crate::program::{self, Running, text};

const DOCUMENT: &str = "[[routes]]\nfrom-file = \"all.routes\"\n";

/// A daemon that has converged. It ends when this is dropped.
pub(super) struct Daemon {
    pub(super) running: Running,
    _directory: TempDir,
}

impl Daemon {
    /// Starts one with the first `size` routes and `more` in its document, and waits until it has converged.
    pub(super) fn start(size: usize, more: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join("all.routes"), routes(size)?)?;
        Self::run(directory, &format!("{DOCUMENT}{more}"))
    }

    /// The same with any document.
    pub(super) fn of(document: &str) -> Result<Self> {
        Self::run(tempfile::tempdir()?, document)
    }

    fn run(directory: TempDir, text_of_document: &str) -> Result<Self> {
        let program = program()?;
        let [document, state] = ["host.toml", "state"].map(|name| directory.path().join(name));
        std::fs::write(&document, text_of_document)?;
        let (document, state) = (text(&document)?, text(&state)?);
        let running = Running::start(&program, &["run", document, "--state-dir", state])?;
        let wait = ["status", "--wait", "--timeout", "5m", "--state-dir", state];
        program::run_quietly(&program, &wait)?;
        Ok(Daemon { running, _directory: directory })
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
