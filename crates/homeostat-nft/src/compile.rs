//! From text to tables: loaded by the real `nft` into an empty namespace, and read back from the kernel.
//!
//! Start at [`Compiler::compile`].

mod fault;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;

use homeostat_netlink::{Connection, Family};
use homeostat_netns::Netns;

use crate::clearing::{Cleared, clear, owner_wanted};
use crate::dump;
use crate::error::Error;
use crate::listing::{self, Texts};
use crate::mark::Mark;
use crate::model::Table;
use crate::placeholders;
use crate::program::run;
use crate::source::Nft;
use crate::statements::{At, printing};
use crate::version::{OLDEST, Version};
use crate::wish::Wish;
pub use fault::{CompileError, Fault};

/// A text in nft's own language.
#[derive(Clone, Debug)]
pub struct Ruleset<'a> {
    /// The text.
    pub text: Cow<'a, str>,
    /// What errors call it.
    pub name: String,
    /// Where what it includes is looked for.
    pub directory: PathBuf,
}

impl Ruleset<'_> {
    /// The text of a file.
    pub fn read(path: &Path) -> Result<Self, CompileError> {
        let name = path.display().to_string();
        let refused = |source| CompileError::Read { name: name.clone(), source };
        let size = std::fs::metadata(path).map_err(refused)?.len();
        if size > LARGEST {
            return Err(CompileError::TooLarge { name, size });
        }
        let bytes = std::fs::read(path).map_err(refused)?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| CompileError::NotText { name: name.clone() })?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).to_owned();
        Ok(Ruleset { text: Cow::Owned(text), name, directory })
    }
}

/// More than this is no firewall. A set of a million addresses needs a fifth of it.
const LARGEST: u64 = 64 << 20;

/// Understands rulesets as `nft` does.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: OsString,
}

impl Default for Compiler {
    fn default() -> Self {
        Compiler { program: "nft".into() }
    }
}

impl Compiler {
    /// Takes another program for `nft`.
    #[must_use]
    pub fn with_program(program: impl Into<OsString>) -> Self {
        Compiler { program: program.into() }
    }

    /// Compiles a text for the namespace of a source. Writes nothing outside of a scratch namespace.
    pub fn compile(&self, ruleset: &Ruleset<'_>, source: &Nft) -> Result<Wish, CompileError> {
        if ruleset.text.contains('\0') {
            return Err(CompileError::NotText { name: ruleset.name.clone() });
        }
        if let Some(at) = owner_wanted(&ruleset.text) {
            return Err(CompileError::owned(&ruleset.name, at));
        }
        if let Some((command, at)) = printing(&ruleset.text) {
            return Err(CompileError::prints(command, (&ruleset.name, at)));
        }
        self.check_version(&ruleset.directory)?;
        let scratch = Netns::anonymous().map_err(CompileError::Scratch)?;
        if placeholders::are_needed(&ruleset.text) {
            stand_in(&scratch, source).map_err(|error| CompileError::kernel(&error))?;
        }
        let cleared = clear(&ruleset.text);
        self.load(&scratch, ruleset, &cleared)?;
        let texts = self.texts(&scratch, &ruleset.directory);
        let tables = tables(&scratch, texts).map_err(|error| CompileError::kernel(&error))?;
        room_for(&source.mark, &tables)?;
        Ok(Wish::new(tables, notes(&cleared)))
    }

    fn load(
        &self,
        scratch: &Netns,
        ruleset: &Ruleset<'_>,
        cleared: &Cleared,
    ) -> Result<(), CompileError> {
        let directory = &ruleset.directory;
        let arguments: [&OsStr; 4] =
            ["-I".as_ref(), directory.as_os_str(), "-f".as_ref(), "-".as_ref()];
        let ran = self.run(scratch, directory, &arguments, &cleared.text)?;
        if !ran.status.success() {
            let words = String::from_utf8_lossy(&ran.stderr);
            return Err(CompileError::refused(&words, &ruleset.name));
        }
        // What is included may have commands that print, too.
        if !ran.stdout.is_empty() {
            return Err(CompileError::prints("list", (&ruleset.name, At { line: 0, column: 0 })));
        }
        Ok(())
    }

    fn check_version(&self, directory: &Path) -> Result<(), CompileError> {
        let told = run(&self.program, directory, &["--version".as_ref()], "");
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

    fn run(
        &self,
        scratch: &Netns,
        directory: &Path,
        arguments: &[&OsStr],
        text: &str,
    ) -> Result<Output, CompileError> {
        let ran = scratch.run(|| run(&self.program, directory, arguments, text));
        ran.map_err(CompileError::Scratch)?.map_err(|source| not_started(source, directory))
    }

    /// The rules in nft's words. For people only, so that a failure only costs the words.
    fn texts(&self, scratch: &Netns, directory: &Path) -> Texts {
        let arguments: [&OsStr; 4] =
            ["-t".as_ref(), "-a".as_ref(), "list".as_ref(), "ruleset".as_ref()];
        let listed = self.run(scratch, directory, &arguments, "").ok();
        let listed = listed.filter(|ran| ran.status.success());
        listed.map_or_else(Texts::new, |ran| listing::read(&String::from_utf8_lossy(&ran.stdout)))
    }
}

fn not_started(source: io::Error, directory: &Path) -> CompileError {
    match source.kind() {
        io::ErrorKind::NotFound if directory.is_dir() => CompileError::NoProgram,
        _ => CompileError::Start { source },
    }
}

fn stand_in(scratch: &Netns, source: &Nft) -> Result<(), Error> {
    let links = placeholders::links(&mut source.connect(Family::Route)?)?;
    let mut inside = Connection::open_in(scratch, Family::Route)?;
    Ok(placeholders::make(&mut inside, &links)?)
}

fn tables(scratch: &Netns, mut texts: Texts) -> Result<Vec<Table>, Error> {
    let mut connection = Connection::open_in(scratch, Family::Netfilter)?;
    let mut tables = Vec::new();
    for head in dump::heads(&mut connection)? {
        let mut table = dump::table(&mut connection, &head)?;
        table.texts = texts.remove(&head.key).unwrap_or_default();
        tables.push(table);
    }
    Ok(tables)
}

fn room_for(mark: &Mark, tables: &[Table]) -> Result<(), CompileError> {
    match tables.iter().find(|table| !mark.fits(&table.comment)) {
        Some(table) => Err(CompileError::LongComment { table: table.key.clone() }),
        None => Ok(()),
    }
}

fn notes(cleared: &Cleared) -> Vec<String> {
    let commands: Vec<_> = cleared.commands.iter().map(|one| format!("`{one}`")).collect();
    if commands.is_empty() {
        return Vec::new();
    }
    vec![format!("{} at the beginning of the text means nothing here", commands.join(", "))]
}
