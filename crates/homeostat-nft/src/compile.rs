//! From text to tables: `nft` loads the text into an empty namespace, and the kernel says what it means.
//!
//! All but very few tables can be written as the bytes that they were dumped as. That is tried in the scratch
//! namespace, where nothing can be harmed: each table is made again from its bytes, and must come out equal.
//! Start at [`Compiler::compile`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use homeostat_netlink::{Batch, Connection, Family, Transacted};

use crate::desired::{Compiled, DesiredState};
use crate::encode::{Encoder, Unwritable};
use crate::error::{CompileError, Error};
use crate::include::Expanded;
use crate::key::Key;
use crate::links::{self, Hooks, Link, Relevance, Spoken};
use crate::mark::Mark;
use crate::model::{Script, Table};
use crate::object::Former;
use crate::ruleset::{Cleared, Ruleset, clear};
use crate::scratch::{Scratch, check_version};
use crate::source::Nft;
use crate::{diff, dump, rule_lines};

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
            .and_then(|mut connection| links::list(&mut connection).map_err(Error::from));
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
        check_version(&self.compiler.program, &ruleset.directory)?;
        let cleared = clear(&ruleset.text);
        let mut spoken = Spoken::new(there, |name| self.speaks_of(name) || known.contains(name));
        let scratch = self.load(&cleared, &mut spoken)?;
        let mut tables = scratch.tables()?;
        room_for(&self.mark, &tables)?;
        self.mark_uncarried(&scratch, (&cleared, &spoken), &mut tables)?;
        rule_lines::attach(&cleared.text, |line| self.expanded.place(line), &mut tables);
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
            Carries::Proven => uncarried(scratch, tables)?,
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

/// Elements of one set are alike: so many of them are tried.
const ENOUGH: usize = 256;

/// The tables that cannot be carried. The scratch is not what it was after it.
fn uncarried(scratch: &Scratch<'_>, tables: &[Table]) -> Result<BTreeSet<Key>, CompileError> {
    let mut connection =
        scratch.connect(Family::Netfilter).map_err(|error| CompileError::kernel(&error))?;
    try_all(&mut connection, tables).map_err(|error| CompileError::kernel(&error))
}

fn try_all(connection: &mut Connection, tables: &[Table]) -> Result<BTreeSet<Key>, Error> {
    let tried: Vec<Table> = tables.iter().map(small).collect();
    let mut uncarried = BTreeSet::new();
    loop {
        let rest: Vec<_> = tried.iter().filter(|one| !uncarried.contains(&one.key)).collect();
        if let Some(refused) = make_again(connection, &rest)? {
            uncarried.insert(refused);
            continue;
        }
        uncarried.extend(changed(connection, &rest)?);
        return Ok(uncarried);
    }
}

fn small(table: &Table) -> Table {
    let mut table = table.clone();
    table.sets.values_mut().for_each(|set| set.elements.truncate(ENOUGH));
    table
}

/// Makes the tables again in one transaction; tells the one that was refused.
fn make_again(connection: &mut Connection, tables: &[&Table]) -> Result<Option<Key>, Error> {
    let (mut batch, mut places, mut last_id) = (Batch::new(), Vec::new(), 0);
    for table in tables {
        if write(table, &mut batch, &mut last_id).is_err() {
            return Ok(Some(table.key.clone()));
        }
        places.resize(batch.count(), &table.key);
    }
    if places.is_empty() {
        return Ok(None);
    }
    Ok(match connection.transact(&batch, None)? {
        Transacted::Refused { place, .. } => {
            let key = place.and_then(|place| places.get(place)).or(places.first());
            key.map(|key| (*key).clone())
        }
        Transacted::Done | Transacted::Unknown => None,
    })
}

fn write(table: &Table, batch: &mut Batch, last_id: &mut u32) -> Result<(), Unwritable> {
    let mark = Mark::new("");
    let (desired, seen) = (Some(table), Some(table));
    let (key, flags) = (&table.key, 0);
    let mut encoder = Encoder { batch, last_id, key, mark: &mark, desired, seen, flags };
    diff::made_again(table).iter().try_for_each(|op| encoder.op(op))
}

/// The tables that came out otherwise.
fn changed(connection: &mut Connection, tables: &[&Table]) -> Result<Vec<Key>, Error> {
    let heads = dump::heads(connection)?;
    let mut changed = Vec::new();
    for table in tables {
        let head = heads.iter().find(|head| head.key == table.key);
        let seen = head.map(|head| dump::table(connection, head)).transpose()?;
        let none = Former::default();
        let is_equal = seen.is_some_and(|seen| diff::table(table, Some((&seen, &none))).is_empty());
        if !is_equal {
            changed.push(table.key.clone());
        }
    }
    Ok(changed)
}

/// Shared by everybody who compiles with the same program.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<Remembered>>>);

#[derive(Debug)]
struct Remembered {
    text: Print,
    compiled: Weak<Compiled>,
}

/// What tells texts apart, each with all that it includes: a text of a million addresses is not kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print(u64, usize);

impl Print {
    fn of(expanded: &Expanded<'_>, mark: &Mark) -> Self {
        let mut hasher = DefaultHasher::new();
        (expanded, mark).hash(&mut hasher);
        Print(hasher.finish(), expanded.ruleset.text.len())
    }
}

impl Memory {
    /// What a text was compiled to under the same circumstances.
    fn recall(&self, print: Print, is_same: impl Fn(&Compiled) -> bool) -> Option<Arc<Compiled>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_text = all.iter().filter(|one| one.text == print);
        of_text.filter_map(|one| one.compiled.upgrade()).find(|compiled| is_same(compiled))
    }

    fn keep(&self, print: Print, compiled: &Arc<Compiled>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.compiled.strong_count() > 0);
        all.push(Remembered { text: print, compiled: Arc::downgrade(compiled) });
    }
}
