//! From text to tables: `nft` loads the text into an empty namespace, and the kernel says what it means.
//!
//! All but very few tables can be written as the bytes that they were dumped as. That is tried in the scratch
//! namespace, where nothing can be harmed: each table is made again from its bytes, and must come out equal.
//! Start at [`Compiler::compile`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use homeostat_netlink::{Batch, Connection, Family, Transacted};

use crate::desired::{Compiled, DesiredState};
use crate::encode::Encoder;
use crate::error::{CompileError, Error};
use crate::include::{Expanded, expand};
use crate::key::Key;
use crate::links::{self, Hooks, Link, NamedBy, NamedLinks};
use crate::mark::Mark;
use crate::model::{Script, Table};
use crate::object::DeclaredBefore;
use crate::ruleset::{Blanked, Ruleset, blank_flushes};
use crate::scratch::{Scratch, check_version};
use crate::source::{Nft, Wording};
use crate::{diff, dump, expression, rule_lines};

/// Compiles rulesets. Clones share a cache of texts that are still declared.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: OsString,
    /// Whether `nft` loads every table whole, as if none could be carried as bytes.
    writes_text: bool,
    /// What texts that are still declared were compiled to.
    cache: Arc<Mutex<Vec<Cached>>>,
}

type Cached = (TextHash, Weak<Compiled>);

impl Default for Compiler {
    fn default() -> Self {
        Compiler::with_program("nft")
    }
}

impl Compiler {
    /// Takes another program for `nft`.
    #[must_use]
    pub fn with_program(program: impl Into<OsString>) -> Self {
        Compiler { program: program.into(), writes_text: false, cache: Arc::default() }
    }

    /// Lets `nft` load every table whole, as if none could be carried as bytes.
    #[must_use]
    pub fn writing_text(self) -> Self {
        Compiler { writes_text: true, cache: Arc::default(), ..self }
    }

    /// Compiles a text for the namespace of a source. Writes nothing outside of a scratch namespace.
    pub fn compile(&self, ruleset: &Ruleset, source: &Nft) -> Result<DesiredState, CompileError> {
        let (expanded, mark, wording) = (expand(ruleset).1?, source.mark.clone(), source.wording);
        let hash = TextHash::of(&expanded, &mark, wording);
        let possible_names = links::possible_names(&expanded.ruleset.text);
        let links = match possible_names {
            Some(_) => links::list(&mut source.connect(Family::Route)?).map_err(Error::from)?,
            None => Vec::new(),
        };
        let input =
            CompileInput { compiler: self.clone(), expanded, hash, mark, wording, possible_names };
        let compiled = input.compile(&links, &BTreeSet::new())?;
        Ok(DesiredState::new(compiled, input.possible_names.is_some().then_some(input)))
    }
}

/// All that a text is compiled from, but for the links.
#[derive(Debug)]
pub(crate) struct CompileInput {
    compiler: Compiler,
    expanded: Expanded,
    /// Of the text, with all that it includes.
    pub(crate) hash: TextHash,
    mark: Mark,
    wording: Wording,
    /// Words that may be names of links; nothing, if links do not matter to the text.
    possible_names: Option<BTreeSet<String>>,
}

impl CompileInput {
    /// Whether the text may name a link, or is known to.
    pub(crate) fn may_name(&self, link: &str, known: &BTreeSet<String>) -> bool {
        self.possible_names.iter().any(|names| names.contains(link)) || known.contains(link)
    }

    /// Those of the links that it may name, sorted.
    pub(crate) fn relevant(&self, links: &[Link], known: &BTreeSet<String>) -> Vec<Link> {
        let is_relevant = |link: &&Link| self.may_name(&link.name, known);
        let mut relevant: Vec<_> = links.iter().filter(is_relevant).cloned().collect();
        relevant.sort();
        relevant
    }

    /// Compiles the text for the links that are there, unless that was done before. Some of them it is known to name.
    pub(crate) fn compile(
        &self,
        there: &[Link],
        known: &BTreeSet<String>,
    ) -> Result<Arc<Compiled>, CompileError> {
        let is_same = |former: &Compiled| former.links == self.relevant(there, &former.named_links);
        let of_text = |(hash, compiled): &Cached| {
            if *hash == self.hash { compiled.upgrade() } else { None }
        };
        let cached = self.cache().iter().filter_map(of_text).find(|former| is_same(former));
        if let Some(compiled) = cached {
            return Ok(compiled);
        }
        let compiled = self.compile_anew(there, known);
        let compiled = Arc::new(compiled.map_err(|error| self.expanded.placed(error))?);
        let mut cache = self.cache();
        cache.retain(|(_, compiled)| compiled.strong_count() > 0);
        cache.push((self.hash, Arc::downgrade(&compiled)));
        Ok(compiled)
    }

    fn cache(&self) -> MutexGuard<'_, Vec<Cached>> {
        self.compiler.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compile_anew(
        &self,
        there: &[Link],
        known: &BTreeSet<String>,
    ) -> Result<Compiled, CompileError> {
        let ruleset = &self.expanded.ruleset;
        ruleset.check()?;
        check_version(&self.compiler.program, &ruleset.directory)?;
        let Blanked { text, commands } = blank_flushes(&ruleset.text);
        let mut named = NamedLinks::new(there, |name| self.may_name(name, known));
        let scratch = self.load(&text, &mut named)?;
        let mut tables = self.tables_in_words(&scratch, &text)?;
        if let Some(table) = tables.iter().find(|table| !self.mark.fits(&table.comment)) {
            return Err(CompileError::LongComment { table: table.key.clone() });
        }
        self.add_scripts(&scratch, &text, &named, &mut tables)?;
        let waiting = named.waiting(&tables, self.hooks(&named, &tables)?);
        let (links, named_links) = named.into_known();
        let commands: Vec<_> = commands.iter().map(|one| format!("`{one}`")).collect();
        let note =
            format!("{} at the beginning of the text means nothing here", commands.join(", "));
        let notes = if commands.is_empty() { Vec::new() } else { vec![note] };
        Ok(Compiled { notes, links, named_links, waiting, ..Compiled::new(tables) })
    }

    /// What was loaded into a scratch namespace, with the lines of the text that the rules come from. Where no line is
    /// known, and for plans that people read, `nft` lists them, which costs as much as loading them.
    fn tables_in_words(
        &self,
        scratch: &Scratch<'_>,
        text: &str,
    ) -> Result<Vec<Table>, CompileError> {
        let mut tables = scratch.tables()?;
        rule_lines::attach(text, |line| self.expanded.place(line), &mut tables);
        if self.wording == Wording::Listed || !tables.iter().all(rule_lines::knows_all) {
            scratch.add_listing(&mut tables);
        }
        Ok(tables)
    }

    fn open_scratch(&self, named: &NamedLinks<'_>) -> Result<Scratch<'_>, CompileError> {
        let scratch = Scratch::open(&self.compiler.program, &self.expanded.ruleset)?;
        scratch.create_links(named.all())?;
        Ok(scratch)
    }

    /// Loads the text. In place of a link that is not there it gets one with a number that no other has.
    fn load(&self, text: &str, named: &mut NamedLinks<'_>) -> Result<Scratch<'_>, CompileError> {
        let scratch = self.open_scratch(named)?;
        loop {
            let Err(refused) = scratch.load(text) else { return Ok(scratch) };
            // Nothing was loaded: a text is one transaction.
            let new = match refused.missing_links(&self.expanded.ruleset.text) {
                Some(missing) => named.add(missing, NamedBy::Number),
                None if refused.is_absence() => named.add(scratch.hooked(text), NamedBy::Hook),
                None => Vec::new(),
            };
            if new.is_empty() {
                return Err(refused);
            }
            scratch.create_links(new.iter())?;
        }
    }

    /// What the kernel does with hooks into absent links. It is tried only where it matters.
    fn hooks(&self, named: &NamedLinks<'_>, tables: &[Table]) -> Result<Hooks, CompileError> {
        if !named.may_hide_hooks(tables) {
            // On a kernel that takes such hooks, no link was added for one.
            return Ok(Hooks::WantLinks);
        }
        let scratch = Scratch::open(&self.compiler.program, &self.expanded.ruleset)?;
        Ok(Hooks::of(&scratch.load(Hooks::PROBE)))
    }

    /// Gives the tables that cannot be carried as bytes the text that `nft` loads in place of them.
    fn add_scripts(
        &self,
        scratch: &Scratch<'_>,
        text: &str,
        named: &NamedLinks<'_>,
        tables: &mut [Table],
    ) -> Result<(), CompileError> {
        let uncarried = if self.compiler.writes_text {
            tables.iter().map(|table| table.key.clone()).collect()
        } else {
            uncarried(&mut scratch.connect(Family::Netfilter)?, tables)?
        };
        if uncarried.is_empty() {
            return Ok(());
        }
        // The scratch namespace of the trial has other tables now.
        let (first, second) = (self.open_scratch(named)?, self.open_scratch(named)?);
        first.load(text)?;
        let mut scripts = BTreeMap::new();
        for table in tables.iter().filter(|table| uncarried.contains(&table.key)) {
            let text = self.mark.written(&first.listing(&table.key)?, &table.comment);
            second.load(&text)?;
            let program = self.compiler.program.clone();
            scripts.insert(table.key.clone(), Arc::new(Script { program, text }));
        }
        // A listing need not be loaded as the bytes of the text that it came from.
        for table in self.tables_in_words(&second, text)? {
            let script = scripts.remove(&table.key);
            if let Some(place) = tables.iter_mut().find(|one| one.key == table.key) {
                *place = Table { script, ..table };
            }
        }
        Ok(())
    }
}

/// Elements of one set are alike: so many of them are tried.
const ENOUGH: usize = 256;

/// So much of a table that the kernel takes and dumps all of it alike: some elements of each set, and of the rules of
/// one shape the first.
fn sample(table: &Table) -> Table {
    let mut table = table.clone();
    table.sets.values_mut().for_each(|set| set.elements.truncate(ENOUGH));
    let mut shapes = BTreeSet::new();
    for chain in table.chains.values_mut() {
        chain.rules.retain(|rule| {
            let shape = expression::shape(rule.expressions());
            !rule.inside.is_empty() || shape.map_or(true, |shape| shapes.insert(shape))
        });
    }
    table
}

/// The tables that cannot be carried as bytes. Afterwards the namespace has the tables of the trial.
fn uncarried(connection: &mut Connection, tables: &[Table]) -> Result<BTreeSet<Key>, Error> {
    let tried: Vec<Table> = tables.iter().map(sample).collect();
    let mut uncarried = BTreeSet::new();
    loop {
        let rest: Vec<_> = tried.iter().filter(|one| !uncarried.contains(&one.key)).collect();
        if let Some(refused) = recreate(connection, &rest)? {
            uncarried.insert(refused);
            continue;
        }
        uncarried.extend(changed(connection, &rest)?);
        return Ok(uncarried);
    }
}

/// Creates the tables again in one transaction; returns the one that was refused.
fn recreate(connection: &mut Connection, tables: &[&Table]) -> Result<Option<Key>, Error> {
    let (mut batch, mut places, mut last_id) = (Batch::new(), Vec::new(), 0);
    for table in tables {
        let mut encoder = Encoder {
            batch: &mut batch,
            last_id: &mut last_id,
            key: &table.key,
            mark: &Mark::new(""),
            desired: Some(table),
            seen: Some(table),
            flags: 0,
        };
        if diff::recreate(table, None).iter().try_for_each(|op| encoder.op(op)).is_err() {
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

/// The tables that are not equal to what they were created from.
fn changed(connection: &mut Connection, tables: &[&Table]) -> Result<Vec<Key>, Error> {
    let heads = dump::heads(connection)?;
    let mut changed = Vec::new();
    for table in tables {
        let head = heads.iter().find(|head| head.key == table.key);
        let seen = head
            .map(|head| dump::table(connection, head, &mut dump::InParts::default()))
            .transpose()?;
        let none = DeclaredBefore::default();
        let is_equal = seen.is_some_and(|seen| diff::table(table, Some((&seen, &none))).is_empty());
        if !is_equal {
            changed.push(table.key.clone());
        }
    }
    Ok(changed)
}

/// Identifies a text with all that it includes: a text of a million addresses is not kept for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextHash(u64, usize);

impl TextHash {
    fn of(expanded: &Expanded, mark: &Mark, wording: Wording) -> Self {
        let mut hasher = DefaultHasher::new();
        (expanded, mark, wording).hash(&mut hasher);
        TextHash(hasher.finish(), expanded.ruleset.text.len())
    }
}
