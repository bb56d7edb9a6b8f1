//! From text to tables: loaded by the real `nft` into an empty namespace, and read back from the kernel.
//!
//! Start at [`Compiler::compile`].

mod carry;
mod debugged;
mod expanded;
mod fault;
mod memory;
mod ruleset;
mod scratch;
mod spoken;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;

use homeostat_netlink::Family;

use crate::clearing::{Cleared, clear};
use crate::desired::{Compiled, DesiredState};
use crate::error::Error;
use crate::mark::Mark;
use crate::model::{Script, Table};
use crate::own;
use crate::placeholders::{self, Link, Relevance};
use crate::source::Nft;
use expanded::Expanded;
pub use expanded::Included;
pub(crate) use fault::TOO_LONG;
pub use fault::{CompileError, Fault};
use memory::{Memory, Print};
pub use ruleset::Ruleset;
use scratch::Scratch;
use spoken::{Hooks, Spoken};

/// Understands rulesets as `nft` does. Clones share what they remember of texts that are still declared.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: OsString,
    carries: Carries,
    memory: Memory,
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
        Compiler::with_program("nft")
    }
}

impl Compiler {
    /// Takes another program for `nft`.
    #[must_use]
    pub fn with_program(program: impl Into<OsString>) -> Self {
        let (carries, memory) = (Carries::Proven, Memory::default());
        Compiler { program: program.into(), carries, memory }
    }

    /// Lets `nft` load every table whole, as if none could be carried as bytes.
    #[must_use]
    pub fn carrying_nothing(self) -> Self {
        Compiler { carries: Carries::Nothing, memory: Memory::default(), ..self }
    }

    /// Compiles a text for the namespace of a source. Writes nothing outside of a scratch namespace.
    pub fn compile(
        &self,
        ruleset: &Ruleset<'_>,
        source: &Nft,
    ) -> Result<DesiredState, CompileError> {
        let (compiler, mark) = (self.clone(), source.mark.clone());
        let expanded = Expanded::of(ruleset)?;
        let print = Print::of(&expanded, &mark);
        let Some(relevance) = Relevance::of(&expanded.ruleset.text) else {
            let relevance = Relevance::default();
            let recipe = Recipe { compiler, expanded, print, mark, relevance };
            return Ok(DesiredState::new(recipe.compile(&[], &BTreeSet::new())?, None));
        };
        let recipe = Recipe { compiler, expanded: expanded.owned(), print, mark, relevance };
        let links = source
            .connect(Family::Route)
            .and_then(|mut connection| placeholders::links(&mut connection).map_err(Error::from));
        let links = links.map_err(|error| CompileError::kernel(&error))?;
        Ok(DesiredState::new(recipe.compile(&links, &BTreeSet::new())?, Some(recipe)))
    }
}

/// Everything that a text is compiled by but the links.
#[derive(Debug)]
pub(crate) struct Recipe<'a> {
    compiler: Compiler,
    expanded: Expanded<'a>,
    print: Print,
    mark: Mark,
    relevance: Relevance,
}

impl Recipe<'_> {
    /// Whether both are for the same text, with all that it includes.
    pub(crate) fn is_same_text(&self, other: &Self) -> bool {
        self.print == other.print
    }

    /// Whether the text itself may speak of a link.
    pub(crate) fn speaks_of(&self, link: &str) -> bool {
        self.relevance.covers(link)
    }

    /// Those of the links that the text may speak of, some of which it is known to speak of.
    pub(crate) fn relevant(&self, links: &[Link], known: &BTreeSet<String>) -> Vec<Link> {
        let is_relevant = |link: &&Link| self.speaks_of(&link.name) || known.contains(&link.name);
        let mut relevant: Vec<_> = links.iter().filter(is_relevant).cloned().collect();
        relevant.sort();
        relevant
    }

    /// Compiles the text by the links that are there, some of which it is known to speak of; unless that
    /// was done before.
    pub(crate) fn compile(
        &self,
        there: &[Link],
        known: &BTreeSet<String>,
    ) -> Result<Arc<Compiled>, CompileError> {
        let memory = &self.compiler.memory;
        let is_same = |former: &Compiled| former.links == self.relevant(there, &former.spoken);
        if let Some(compiled) = memory.recall(self.print, is_same) {
            return Ok(compiled);
        }
        let compiled = self.compile_anew(there, known);
        let compiled = Arc::new(compiled.map_err(|error| self.expanded.placed(error))?);
        memory.keep(self.print, &compiled);
        Ok(compiled)
    }

    fn compile_anew(
        &self,
        there: &[Link],
        known: &BTreeSet<String>,
    ) -> Result<Compiled, CompileError> {
        let ruleset = &self.expanded.ruleset;
        ruleset.check()?;
        scratch::check_version(&self.compiler.program, &ruleset.directory)?;
        let cleared = clear(&ruleset.text);
        let mut spoken = Spoken::new(there, |name| self.speaks_of(name) || known.contains(name));
        let scratch = self.load(&cleared, &mut spoken)?;
        let mut tables = scratch.tables()?;
        room_for(&self.mark, &tables)?;
        self.mark_uncarried(&scratch, (&cleared, &spoken), &mut tables)?;
        own::attach(&cleared.text, |line| self.expanded.place(line), &mut tables);
        let waiting = spoken.waiting(&tables, self.hooks(&spoken, &tables)?);
        let (links, spoken) = spoken.into_known();
        let notes = notes(&cleared);
        Ok(Compiled { notes, links, spoken, waiting, ..Compiled::new(tables) })
    }

    /// Loads the text. A link that is not there is stood in for by one with a number that none has.
    fn load(
        &self,
        cleared: &Cleared,
        spoken: &mut Spoken<'_>,
    ) -> Result<Scratch<'_>, CompileError> {
        let scratch = Scratch::open(&self.compiler.program, &self.expanded.ruleset)?;
        scratch.stand_in(spoken.all())?;
        loop {
            let Err(refused) = scratch.load(&cleared.text) else { return Ok(scratch) };
            // Nothing was loaded: a text is one transaction.
            let news = match refused.missing_links(|fault| self.expanded.ruleset.line(fault)) {
                Some(names) => spoken.learn_numbers(names),
                None if refused.is_absence() => spoken.learn_hooks(scratch.hooked(&cleared.text)),
                None => Vec::new(),
            };
            if news.is_empty() {
                return Err(refused);
            }
            scratch.stand_in(news.iter())?;
        }
    }

    /// What becomes of hooks into links that are not there. Asked only where it matters.
    fn hooks(&self, spoken: &Spoken<'_>, tables: &[Table]) -> Result<Hooks, CompileError> {
        if !spoken.may_hide_hooks(tables) {
            // Nobody learns of hooks from a kernel that takes them.
            return Ok(Hooks::WantLinks);
        }
        let scratch = Scratch::open(&self.compiler.program, &self.expanded.ruleset)?;
        Ok(Hooks::told(&scratch.load(Hooks::PROBE)))
    }

    /// Gives the tables that cannot be carried as bytes the text that `nft` loads in place of them.
    fn mark_uncarried(
        &self,
        scratch: &Scratch<'_>,
        (cleared, spoken): (&Cleared, &Spoken<'_>),
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
            let scratch = Scratch::open(&self.compiler.program, &self.expanded.ruleset)?;
            scratch.stand_in(spoken.all())?;
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
