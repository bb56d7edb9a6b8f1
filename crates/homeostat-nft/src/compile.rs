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
use crate::links::{self, Hooks, Link, NamedLinks, PossibleNames};
use crate::mark::Mark;
use crate::model::{Script, Table};
use crate::object::DeclaredBefore;
use crate::ruleset::{Blanked, Ruleset, blank_flushes};
use crate::scratch::{Scratch, check_version};
use crate::source::Nft;
use crate::{diff, dump, rule_lines};

/// Understands rulesets as `nft` does. Clones share what they remember of texts that are still declared.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: OsString,
    write_as: WriteAs,
    cache: CompileCache,
}

/// Whether tables are written as the bytes that they were dumped as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteAs {
    /// Those that come out equal when it is tried.
    Bytes,
    /// None of them.
    Text,
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
        let (write_as, cache) = (WriteAs::Bytes, CompileCache::default());
        Compiler { program: program.into(), write_as, cache }
    }

    /// Lets `nft` load every table whole, as if none could be carried as bytes.
    #[must_use]
    pub fn writing_text(self) -> Self {
        Compiler { write_as: WriteAs::Text, cache: CompileCache::default(), ..self }
    }

    /// Compiles a text for the namespace of a source. Writes nothing outside of a scratch namespace.
    pub fn compile(
        &self,
        ruleset: &Ruleset<'_>,
        source: &Nft,
    ) -> Result<DesiredState, CompileError> {
        let (compiler, mark) = (self.clone(), source.mark.clone());
        let expanded = Expanded::of(ruleset)?;
        let hash = TextHash::of(&expanded, &mark);
        let Some(possible_names) = PossibleNames::of(&expanded.ruleset.text) else {
            let possible_names = PossibleNames::default();
            let input = CompileInput { compiler, expanded, hash, mark, possible_names };
            return Ok(DesiredState::new(input.compile(&[], &BTreeSet::new())?, None));
        };
        let input =
            CompileInput { compiler, expanded: expanded.owned(), hash, mark, possible_names };
        let links = source
            .connect(Family::Route)
            .and_then(|mut connection| links::list(&mut connection).map_err(Error::from));
        let links = links?;
        Ok(DesiredState::new(input.compile(&links, &BTreeSet::new())?, Some(input)))
    }
}

/// Everything that a text is compiled by but the links.
#[derive(Debug)]
pub(crate) struct CompileInput<'a> {
    compiler: Compiler,
    expanded: Expanded<'a>,
    hash: TextHash,
    mark: Mark,
    possible_names: PossibleNames,
}

impl CompileInput<'_> {
    /// Whether both are for the same text, with all that it includes.
    pub(crate) fn is_same_text(&self, other: &Self) -> bool {
        self.hash == other.hash
    }

    /// Whether the text itself may speak of a link.
    pub(crate) fn may_name(&self, link: &str) -> bool {
        self.possible_names.covers(link)
    }

    /// Those of the links that the text may speak of, some of which it is known to speak of.
    pub(crate) fn relevant(&self, links: &[Link], known: &BTreeSet<String>) -> Vec<Link> {
        let is_relevant = |link: &&Link| self.may_name(&link.name) || known.contains(&link.name);
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
        let cache = &self.compiler.cache;
        let is_same = |former: &Compiled| former.links == self.relevant(there, &former.named_links);
        if let Some(compiled) = cache.get(self.hash, is_same) {
            return Ok(compiled);
        }
        let compiled = self.compile_anew(there, known);
        let compiled = Arc::new(compiled.map_err(|error| self.expanded.placed(error))?);
        cache.insert(self.hash, &compiled);
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
        let blanked = blank_flushes(&ruleset.text);
        let mut named_links =
            NamedLinks::new(there, |name| self.may_name(name) || known.contains(name));
        let scratch = self.load(&blanked, &mut named_links)?;
        let mut tables = scratch.tables()?;
        room_for(&self.mark, &tables)?;
        self.mark_uncarried(&scratch, (&blanked, &named_links), &mut tables)?;
        rule_lines::attach(&blanked.text, |line| self.expanded.place(line), &mut tables);
        let waiting = named_links.waiting(&tables, self.hooks(&named_links, &tables)?);
        let (links, named_links) = named_links.into_known();
        let notes = notes(&blanked);
        Ok(Compiled { notes, links, named_links, waiting, ..Compiled::new(tables) })
    }

    /// Loads the text. A link that is not there is stood in for by one with a number that none has.
    fn load(
        &self,
        blanked: &Blanked,
        named_links: &mut NamedLinks<'_>,
    ) -> Result<Scratch<'_>, CompileError> {
        let scratch = Scratch::open(&self.compiler.program, &self.expanded.ruleset)?;
        scratch.create_links(named_links.all())?;
        loop {
            let Err(refused) = scratch.load(&blanked.text) else { return Ok(scratch) };
            // Nothing was loaded: a text is one transaction.
            let news = match refused.missing_links(|fault| self.expanded.ruleset.line(fault)) {
                Some(names) => named_links.learn_numbers(names),
                None if refused.is_absence() => {
                    named_links.learn_hooks(scratch.hooked(&blanked.text))
                }
                None => Vec::new(),
            };
            if news.is_empty() {
                return Err(refused);
            }
            scratch.create_links(news.iter())?;
        }
    }

    /// What becomes of hooks into links that are not there. Asked only where it matters.
    fn hooks(&self, named: &NamedLinks<'_>, tables: &[Table]) -> Result<Hooks, CompileError> {
        if !named.may_hide_hooks(tables) {
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
        (blanked, named_links): (&Blanked, &NamedLinks<'_>),
        tables: &mut [Table],
    ) -> Result<(), CompileError> {
        let uncarried = match self.compiler.write_as {
            WriteAs::Bytes => uncarried(scratch, tables)?,
            WriteAs::Text => tables.iter().map(|table| table.key.clone()).collect(),
        };
        if uncarried.is_empty() {
            return Ok(());
        }
        // The first one was used up by the trial.
        let fresh = || -> Result<_, CompileError> {
            let scratch = Scratch::open(&self.compiler.program, &self.expanded.ruleset)?;
            scratch.create_links(named_links.all())?;
            Ok(scratch)
        };
        let (first, second) = (fresh()?, fresh()?);
        first.load(&blanked.text)?;
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

fn notes(blanked: &Blanked) -> Vec<String> {
    let commands: Vec<_> = blanked.commands.iter().map(|one| format!("`{one}`")).collect();
    if commands.is_empty() {
        return Vec::new();
    }
    vec![format!("{} at the beginning of the text means nothing here", commands.join(", "))]
}

/// Elements of one set are alike: so many of them are tried.
const ENOUGH: usize = 256;

/// The tables that cannot be carried. The scratch is not what it was after it.
fn uncarried(scratch: &Scratch<'_>, tables: &[Table]) -> Result<BTreeSet<Key>, CompileError> {
    let mut connection = scratch.connect(Family::Netfilter)?;
    Ok(try_all(&mut connection, tables)?)
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
    diff::recreate(table).iter().try_for_each(|op| encoder.op(op))
}

/// The tables that came out otherwise.
fn changed(connection: &mut Connection, tables: &[&Table]) -> Result<Vec<Key>, Error> {
    let heads = dump::heads(connection)?;
    let mut changed = Vec::new();
    for table in tables {
        let head = heads.iter().find(|head| head.key == table.key);
        let seen = head.map(|head| dump::table(connection, head)).transpose()?;
        let none = DeclaredBefore::default();
        let is_equal = seen.is_some_and(|seen| diff::table(table, Some((&seen, &none))).is_empty());
        if !is_equal {
            changed.push(table.key.clone());
        }
    }
    Ok(changed)
}

/// Shared by everybody who compiles with the same program.
#[derive(Clone, Debug, Default)]
struct CompileCache(Arc<Mutex<Vec<Cached>>>);

#[derive(Debug)]
struct Cached {
    text: TextHash,
    compiled: Weak<Compiled>,
}

/// What tells texts apart, each with all that it includes: a text of a million addresses is not kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TextHash(u64, usize);

impl TextHash {
    fn of(expanded: &Expanded<'_>, mark: &Mark) -> Self {
        let mut hasher = DefaultHasher::new();
        (expanded, mark).hash(&mut hasher);
        TextHash(hasher.finish(), expanded.ruleset.text.len())
    }
}

impl CompileCache {
    /// What a text was compiled to under the same circumstances.
    fn get(&self, hash: TextHash, is_same: impl Fn(&Compiled) -> bool) -> Option<Arc<Compiled>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_text = all.iter().filter(|one| one.text == hash);
        of_text.filter_map(|one| one.compiled.upgrade()).find(|compiled| is_same(compiled))
    }

    fn insert(&self, hash: TextHash, compiled: &Arc<Compiled>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.compiled.strong_count() > 0);
        all.push(Cached { text: hash, compiled: Arc::downgrade(compiled) });
    }
}
