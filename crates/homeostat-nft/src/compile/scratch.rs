//! An empty namespace that `nft` loads a text into, and what it tells of it afterwards.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Output;

use homeostat_netlink::{Connection, Family};
use homeostat_netns::Netns;

use super::debugged::Debugged;
use super::{CompileError, Ruleset};
use crate::dump;
use crate::error::Error;
use crate::key::Key;
use crate::listing::{self, Texts};
use crate::model::Table;
use crate::placeholders::{self, Link};
use crate::program::{Running, run};
use crate::statements::At;
use crate::version::{OLDEST, Version};

/// A namespace that is gone when nobody needs it any more.
pub(super) struct Scratch<'a> {
    netns: Netns,
    program: &'a OsStr,
    ruleset: &'a Ruleset<'a>,
}

impl<'a> Scratch<'a> {
    pub(super) fn open(program: &'a OsStr, ruleset: &'a Ruleset<'a>) -> Result<Self, CompileError> {
        let netns = Netns::anonymous().map_err(CompileError::Scratch)?;
        Ok(Scratch { netns, program, ruleset })
    }

    pub(super) fn connect(&self, family: Family) -> Result<Connection, Error> {
        Ok(Connection::open_in(&self.netns, family)?)
    }

    /// Makes links of the same names and numbers.
    pub(super) fn stand_in<'l>(
        &self,
        links: impl Iterator<Item = &'l Link>,
    ) -> Result<(), CompileError> {
        let links: Vec<&Link> = links.collect();
        if links.is_empty() {
            return Ok(());
        }
        let made = self.connect(Family::Route).and_then(|mut connection| {
            placeholders::make(&mut connection, &links).map_err(Error::from)
        });
        made.map_err(|error| CompileError::kernel(&error))
    }

    /// Loads a text.
    pub(super) fn load(&self, text: &str) -> Result<(), CompileError> {
        let name = &self.ruleset.name;
        let directory = &self.ruleset.directory;
        let arguments = ["-f", "-"].map(OsStr::new);
        let ran = self.run_with(|| {
            hide_hosts();
            run(self.program, directory, &arguments, text)
        })?;
        if let Some(signal) = ran.status.signal() {
            // A bug of its own: what it was about to say is lost.
            let words = format!("`nft` crashed on it (signal {signal})");
            return Err(CompileError::refused(&words, name));
        }
        if !ran.status.success() {
            return Err(CompileError::refused(&String::from_utf8_lossy(&ran.stderr), name));
        }
        // A command that prints, and that nobody here knows yet.
        if !ran.stdout.is_empty() {
            return Err(CompileError::prints("list", (name, At { line: 0, column: 0 })));
        }
        Ok(())
    }

    /// The links that a text would hook into, found without loading it.
    pub(super) fn hooked(&self, text: &str) -> BTreeSet<String> {
        let directory = &self.ruleset.directory;
        let arguments = ["-c", "--debug=mnl", "-f", "-"].map(OsStr::new);
        let mut debugged = Debugged::default();
        // Where it cannot be found out, the text stays refused for what `nft` said.
        let _ = self.netns.run(|| {
            hide_hosts();
            let running = Running::start(self.program, directory, &arguments)?;
            running.finish_telling(text, &mut |line| debugged.take(line))
        });
        debugged.names()
    }

    /// Everything that was loaded, with the rules in nft's own words.
    pub(super) fn tables(&self) -> Result<Vec<Table>, CompileError> {
        let texts = self.texts();
        self.dumped(texts).map_err(|error| CompileError::kernel(&error))
    }

    fn dumped(&self, mut texts: Texts) -> Result<Vec<Table>, Error> {
        let mut connection = self.connect(Family::Netfilter)?;
        let mut tables = Vec::new();
        for head in dump::heads(&mut connection)? {
            let mut table = dump::table(&mut connection, &head)?;
            table.texts = texts.remove(&head.key).unwrap_or_default();
            tables.push(table);
        }
        Ok(tables)
    }

    /// The rules in nft's words. For people only, so that a failure only costs the words.
    fn texts(&self) -> Texts {
        let arguments = ["-t", "-a", "list", "ruleset"].map(OsStr::new);
        let listed = self.run(&arguments, "").ok().filter(|ran| ran.status.success());
        listed.map_or_else(Texts::new, |ran| listing::read(&String::from_utf8_lossy(&ran.stdout)))
    }

    /// A table as a text.
    pub(super) fn listing(&self, key: &Key) -> Result<String, CompileError> {
        let family = key.family.to_string();
        let arguments = ["list", "table", &family, &key.name].map(OsStr::new);
        let ran = self.run(&arguments, "")?;
        if !ran.status.success() {
            let words = String::from_utf8_lossy(&ran.stderr);
            return Err(CompileError::refused(&words, &self.ruleset.name));
        }
        Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
    }

    fn run(&self, arguments: &[&OsStr], text: &str) -> Result<Output, CompileError> {
        self.run_with(|| run(self.program, &self.ruleset.directory, arguments, text))
    }

    fn run_with(
        &self,
        start: impl FnOnce() -> io::Result<Output> + Send,
    ) -> Result<Output, CompileError> {
        let ran = self.netns.run(start).map_err(CompileError::Scratch)?;
        ran.map_err(|source| not_started(source, &self.ruleset.directory))
    }
}

/// A name would be frozen to what was found by it today. Where hosts cannot be hidden, only the names that
/// can be told from everything else are refused.
fn hide_hosts() {
    let _ = homeostat_netns::forget_hosts();
}

/// Whether `nft` is there and understands what is asked of it.
pub(super) fn check_version(program: &OsStr, directory: &Path) -> Result<(), CompileError> {
    let told = run(program, directory, &["--version".as_ref()], "");
    let told = told.map_err(|source| not_started(source, directory))?;
    let words = String::from_utf8_lossy(&told.stdout);
    match Version::told(&words) {
        Some(version) if version >= OLDEST => Ok(()),
        version => {
            let found = version.map(|version| version.to_string());
            let found = found.unwrap_or_else(|| format!("`{}`", words.trim()));
            Err(CompileError::TooOld { found, oldest: OLDEST.to_string() })
        }
    }
}

fn not_started(source: io::Error, directory: &Path) -> CompileError {
    match source.kind() {
        io::ErrorKind::NotFound if directory.is_dir() => CompileError::NoProgram,
        io::ErrorKind::TimedOut => CompileError::Endless { source },
        _ => CompileError::Start { source },
    }
}
