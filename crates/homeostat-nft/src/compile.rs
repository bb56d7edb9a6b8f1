//! From text to tables: loaded by the real `nft` into an empty namespace, and read back from the kernel.
//!
//! Start at [`Compiler::compile`].

mod absent;
mod carry;
mod fault;
mod scratch;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_netlink::Family;

use crate::clearing::{Cleared, clear, owner_wanted};
use crate::error::Error;
use crate::mark::Mark;
use crate::model::{Script, Table};
use crate::placeholders::{self, Link, Relevance};
use crate::source::Nft;
use crate::statements::printing;
use crate::wish::{Compiled, Wish};
use absent::Absent;
pub(crate) use fault::TOO_LONG;
pub use fault::{CompileError, Fault};
use scratch::Scratch;

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
        let meta = std::fs::metadata(path).map_err(refused)?;
        // A pipe would be waited for, and a device may never end.
        if !meta.is_file() {
            return Err(refused(std::io::Error::other("this is not a regular file")));
        }
        let size = meta.len();
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

    fn owned(&self) -> Ruleset<'static> {
        let text = Cow::Owned(self.text.clone().into_owned());
        Ruleset { text, name: self.name.clone(), directory: self.directory.clone() }
    }

    /// What no `nft` has to be asked about.
    fn check(&self) -> Result<(), CompileError> {
        if self.text.contains('\0') {
            return Err(CompileError::NotText { name: self.name.clone() });
        }
        if let Some(at) = owner_wanted(&self.text) {
            return Err(CompileError::owned(&self.name, at));
        }
        match printing(&self.text) {
            Some((command, at)) => Err(CompileError::prints(command, (&self.name, at))),
            None => Ok(()),
        }
    }
}

/// More than this is no firewall. A set of a million addresses needs a fifth of it.
const LARGEST: u64 = 64 << 20;

/// Understands rulesets as `nft` does.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: OsString,
    carries: Carries,
}

/// Whether tables are written as the bytes that they were dumped as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carries {
    /// Those that come out equal when it is tried.
    Proven,
    /// None of them.
    Nothing,
}

impl Default for Compiler {
    fn default() -> Self {
        Compiler { program: "nft".into(), carries: Carries::Proven }
    }
}

impl Compiler {
    /// Takes another program for `nft`.
    #[must_use]
    pub fn with_program(program: impl Into<OsString>) -> Self {
        Compiler { program: program.into(), ..Compiler::default() }
    }

    /// Lets `nft` load every table whole, as if none could be carried as bytes.
    #[must_use]
    pub fn carrying_nothing(self) -> Self {
        Compiler { carries: Carries::Nothing, ..self }
    }

    /// Compiles a text for the namespace of a source. Writes nothing outside of a scratch namespace.
    pub fn compile(&self, ruleset: &Ruleset<'_>, source: &Nft) -> Result<Wish, CompileError> {
        ruleset.check()?;
        scratch::check_version(&self.program, &ruleset.directory)?;
        let (compiler, mark) = (self.clone(), source.mark.clone());
        let Some(relevance) = Relevance::of(&ruleset.text) else {
            let ruleset = ruleset.clone();
            let recipe = Recipe { compiler, ruleset, mark, relevance: Relevance::default() };
            return Ok(Wish::new(recipe.compile(Vec::new())?, None));
        };
        let recipe = Recipe { compiler, ruleset: ruleset.owned(), mark, relevance };
        let links = source
            .connect(Family::Route)
            .and_then(|mut connection| placeholders::links(&mut connection).map_err(Error::from));
        let links = links.map_err(|error| CompileError::kernel(&error))?;
        Ok(Wish::new(recipe.compile(recipe.relevant(&links))?, Some(recipe)))
    }
}

/// Everything that a text is compiled by but the links.
#[derive(Debug)]
pub(crate) struct Recipe<'a> {
    compiler: Compiler,
    ruleset: Ruleset<'a>,
    mark: Mark,
    relevance: Relevance,
}

impl Recipe<'_> {
    /// The links that the text may speak of.
    pub(crate) fn relevant(&self, links: &[Link]) -> Vec<Link> {
        let mut relevant: Vec<_> =
            links.iter().filter(|link| self.relevance.covers(&link.name)).cloned().collect();
        relevant.sort();
        relevant
    }

    /// Whether the text may speak of a link.
    pub(crate) fn speaks_of(&self, link: &str) -> bool {
        self.relevance.covers(link)
    }

    /// Compiles the text by these links.
    pub(crate) fn compile(&self, links: Vec<Link>) -> Result<Compiled, CompileError> {
        let cleared = clear(&self.ruleset.text);
        let (scratch, absent) = self.load(&cleared, &links)?;
        let mut tables = scratch.tables()?;
        room_for(&self.mark, &tables)?;
        self.mark_uncarried(&scratch, (&cleared, &links, &absent), &mut tables)?;
        let waiting = absent.waiting(&tables);
        let notes = notes(&cleared);
        Ok(Compiled { notes, links, waiting, ..Compiled::new(tables) })
    }

    /// Loads the text. A link that is not there is stood in for by one with a number that none has.
    fn load(&self, cleared: &Cleared, links: &[Link]) -> Result<Loaded<'_>, CompileError> {
        let mut absent = Absent::default();
        loop {
            let scratch = Scratch::open(&self.compiler.program, &self.ruleset)?;
            scratch.stand_in(links.iter().chain(absent.all()))?;
            let refused = match scratch.load(&cleared.text) {
                Ok(()) => return Ok((scratch, absent)),
                Err(refused) => refused,
            };
            if !absent.learn(&refused, (&cleared.text, links)) {
                return Err(refused);
            }
        }
    }

    /// Gives the tables that cannot be carried as bytes the text that `nft` loads in place of them.
    fn mark_uncarried(
        &self,
        scratch: &Scratch<'_>,
        (cleared, links, absent): (&Cleared, &[Link], &Absent),
        tables: &mut [Table],
    ) -> Result<(), CompileError> {
        let uncarried = match self.compiler.carries {
            Carries::Proven => carry::uncarried(scratch, tables)?,
            Carries::Nothing => tables.iter().map(|table| table.key.clone()).collect(),
        };
        if uncarried.is_empty() {
            return Ok(());
        }
        // The first one was used up by the trial.
        let fresh = || -> Result<_, CompileError> {
            let scratch = Scratch::open(&self.compiler.program, &self.ruleset)?;
            scratch.stand_in(links.iter().chain(absent.all()))?;
            Ok(scratch)
        };
        let (first, second) = (fresh()?, fresh()?);
        first.load(&cleared.text)?;
        let mut scripts = BTreeMap::new();
        for table in tables.iter().filter(|table| uncarried.contains(&table.key)) {
            let text = self.mark.written(&first.listing(&table.key)?, &table.comment);
            second.load(&text)?;
            let program = self.compiler.program.clone();
            scripts.insert(table.key.clone(), Arc::new(Script { program, text }));
        }
        // A listing need not be loaded as the bytes of the text that it came from.
        for table in second.tables()? {
            let script = scripts.remove(&table.key);
            if let Some(place) = tables.iter_mut().find(|one| one.key == table.key) {
                *place = Table { script, ..table };
            }
        }
        Ok(())
    }
}

type Loaded<'a> = (Scratch<'a>, Absent);

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
