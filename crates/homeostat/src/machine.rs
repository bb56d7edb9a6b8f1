//! A document bound to this machine: its scopes, their sources, their locks.
//!
//! A [`Machine`] can only be planned for. With the locks of its scopes it becomes [`Drivers`].
//! Sources that create scopes come first: what is inside can be opened only when they exist.

mod drivers;
mod gates;
pub(crate) mod matching;
mod observe_only;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Document, Mode, Scope as Section};
use homeostat_engine::{
    Action, Entry, Error, Explain, Kind, Ledger, LedgerKey, Pages, Planner, ScopeLock, WaitsOn,
};
use homeostat_registry::{
    Binding, Lists, Lookup, Registration, Remote, Scope, Turn, declared_name,
};

use crate::context::{Context, Top};
use crate::failure::{helped, of_source};
use crate::output::SourceReport;
use crate::provider::fleet;
use crate::referenced_files::ReferencedFiles;
use crate::registry::{self, SOURCES};
pub(crate) use drivers::Drivers;
pub(crate) use gates::Gates;
use matching::{Matched, matched, why_ambiguous};
pub(crate) use observe_only::ObserveOnlyPlan;
pub(crate) use waiting::Waiting;

/// What can be planned.
pub(crate) struct Machine<'a> {
    context: &'a Context,
    /// As it is written.
    written: &'a Document,
    /// With a section for each namespace that a pattern matches.
    document: Arc<Document>,
    scopes: Vec<Scope>,
    /// The patterns by which scopes are declared.
    patterns: BTreeMap<String, String>,
    /// Scope by scope. Sources that create scopes are in the first scope only, before all others.
    bound: Vec<Bound>,
    waiting: Vec<Waiting>,
    /// Where the ledger has records of scopes that no longer exist.
    gone: Vec<LedgerKey>,
}

/// A source in a scope, and what it does about drift.
struct Bound {
    source: &'static Registration,
    planner: Box<dyn Planner>,
    /// The network scope under whose lock it writes.
    within: String,
    mode: Mode,
    /// The lock of its scope, once it is unlocked. A source that only observes gets none, and so no way to write.
    lock: Option<Arc<ScopeLock>>,
}

/// The sources of one scope.
pub(crate) struct Part {
    pub(crate) scope: Scope,
    /// The pattern by which it is declared.
    pub(crate) pattern: Option<String>,
    /// Those that create scopes: in the first scope only, and driven before all others.
    pub(crate) first: Vec<Box<dyn Planner>>,
    pub(crate) rest: Vec<Box<dyn Planner>>,
}

impl<'a> Machine<'a> {
    /// Binds every source in every scope that the document names, or in which the ledger says that
    /// we own something.
    pub(crate) fn bind(
        context: &'a Context,
        document: &'a Document,
        pages: &dyn Pages,
    ) -> Result<Self> {
        let top = context.top_scope()?;
        let matched = matched(document)?;
        matching::refuse(document, &matched.ambiguous)?;
        Self::bind_in(Ok(top), context, document, matched, pages)
    }

    /// The same for a daemon whose own namespace may be gone: then what the top level declares waits for it.
    pub(crate) fn bind_or_wait(
        context: &'a Context,
        document: &'a Document,
        pages: &dyn Pages,
    ) -> Result<Self> {
        let gone = match context.top_namespace()? {
            Some(name) if Scope::recorded(&name).map_err(of_source)?.is_none() => Some(name),
            _ => None,
        };
        let top = gone.map_or_else(|| context.top_scope().map(Ok), |name| Ok(Err(name)))?;
        Self::bind_in(top, context, document, matched(document)?, pages)
    }

    /// Binds everything; `top` is the first scope, or the name of one that is gone.
    fn bind_in(
        top: Result<Scope, String>,
        context: &'a Context,
        written: &'a Document,
        matched: Matched,
        pages: &dyn Pages,
    ) -> Result<Self> {
        let files = ReferencedFiles::of(written);
        registry::resolve(written, Lists::Skip)?;
        let (scopes, bound, waiting, gone) = (vec![], vec![], vec![], vec![]);
        let Matched { document, ambiguous } = matched;
        let (shared, patterns) = (Arc::clone(&document), BTreeMap::new());
        let mut machine =
            Machine { context, written, document: shared, scopes, patterns, bound, waiting, gone };
        match top {
            Ok(top) => machine.add(top, Some(&document.host), pages)?,
            Err(name) => machine.wait(&name, &document.host, &WaitsOn::Namespace(name.clone())),
        }
        for (name, section) in &document.namespaces {
            let name = &name.value;
            let scope_name = declared_name(&document, name).map_err(of_source)?;
            let pattern = document.pattern_of(name);
            let on = match Scope::find(&scope_name).map_err(of_source)? {
                // What it is called exactly comes before what it matches.
                Lookup::Found(scope) if pattern.is_some() && machine.has(&scope) => continue,
                // It came or went just now.
                Lookup::Absent | Lookup::NotNetns(_) if pattern.is_some() => continue,
                Lookup::Found(scope) => {
                    let declared_by =
                        pattern.map(|pattern| (scope.name.clone(), pattern.to_string()));
                    machine.patterns.extend(declared_by);
                    machine.add(scope, Some(section), pages)?;
                    continue;
                }
                Lookup::Absent => WaitsOn::Namespace(scope_name.clone()),
                Lookup::NotNetns(error) => {
                    // The source that creates it knows the way out: it may be a file that we left there.
                    let mut creators = SOURCES.iter().filter_map(|source| source.scopes.as_ref());
                    let is_created = creators.any(|creator| (creator.creates)(section));
                    let help = error.help().filter(|_| !is_created);
                    let help = help.map(|help| format!("; {help}")).unwrap_or_default();
                    WaitsOn::Condition(format!("namespace {name}: {error}{help}"))
                }
            };
            machine.wait(&scope_name, section, &on);
        }
        for one in &ambiguous {
            let scope_name = declared_name(&document, &one.name).map_err(of_source)?;
            let on = WaitsOn::Condition(why_ambiguous(one));
            let section = written.patterns.iter().find(|(name, _)| *name == one.patterns[0]);
            if let Some((_, section)) = section {
                machine.wait(&scope_name, section, &on);
            }
        }
        if matches!(context.top, Top::Host) {
            machine.add_left_behind(pages)?;
        }
        files.check_unchanged(written)?;
        Ok(machine)
    }

    /// Whether a scope is there under another name.
    fn has(&self, scope: &Scope) -> bool {
        self.scopes.iter().any(|known| known.identity == scope.identity)
    }

    fn add(&mut self, scope: Scope, section: Option<&Section>, pages: &dyn Pages) -> Result<()> {
        let twin = self.scopes.iter().find(|known| known.identity == scope.identity);
        if let Some(twin) = twin {
            return Err(helped(
                format!("`{}` is the same network namespace as `{}`", scope.name, twin.name),
                "the document speaks of it twice: at its top level, or by another name",
            ));
        }
        let (context, shared) = (self.context, Arc::clone(&self.document));
        let document = &*shared;
        let (caller, gate) = (context.caller_in(&scope.name), &context.gates.of(&scope.identity));
        let caller = &*caller;
        let is_top = section.is_some_and(|section| std::ptr::eq(section, &raw const document.host));
        let is_here = |source: &&Registration| {
            is_top || source.scopes.is_none() && source.own_scopes.is_none()
        };
        for source in SOURCES.iter().filter(is_here) {
            let binding = Binding { source, caller, document, scope: &scope, section, pages, gate };
            let mode = document.settings.source(source.name()).mode;
            let mode = mode.map_or(Mode::Heal, |mode| mode.value);
            // A process that takes no part in the elections of its fleet writes to nothing that machines share.
            let takes_turns = source.shared.is_some() && fleet::is_in(document);
            let mode = match caller.turns.of(source.name()) {
                Turn::Alone if takes_turns => Mode::Observe,
                Turn::Standby(_) => Mode::Observe,
                Turn::Alone | Turn::Leader(_) => mode,
            };
            for planner in (source.bind)(&binding).map_err(of_source)? {
                let within = scope.name.clone();
                self.bound.push(Bound { source, planner, within, mode, lock: None });
            }
        }
        self.scopes.push(scope);
        Ok(())
    }

    /// Everything of a section waits `on` the scope of this name.
    fn wait(&mut self, scope: &str, section: &Section, on: &WaitsOn) {
        for source in SOURCES.iter().filter(|source| source.scopes.is_none()) {
            let ledger_key = LedgerKey::new(&self.context.caller.owner, source.name(), scope);
            let keys = (source.waiting)(&self.document, section);
            self.waiting.push(Waiting { ledger_key, keys, on: on.clone() });
        }
    }

    /// Scopes that the document no longer names, and that still are what they were; of the others
    /// only records are left.
    fn add_left_behind(&mut self, pages: &dyn Pages) -> Result<()> {
        for key in pages.places(&self.context.caller.owner)? {
            let name = &key.scope;
            // A target on another machine is not gone with any scope of this one.
            let remote = registry::find(&key.source).and_then(|source| source.remote.as_ref());
            if let Some(remote) = remote.filter(|remote| remote.identity == key.identity) {
                self.add_missing_remote(key, remote);
                continue;
            }
            if registry::find(&key.source).is_some_and(|source| source.own_scopes.is_some()) {
                // What it did not take for its own is of another machine.
                if self.bound.iter().all(|one| *one.planner.ledger_key() != key) {
                    self.gone.push(key);
                }
                continue;
            }
            if self.waiting.iter().any(|waiting| waiting.ledger_key.scope == *name) {
                continue;
            }
            if let Some(scope) = self.scopes.iter().find(|scope| scope.name == *name) {
                if scope.identity != key.identity {
                    self.gone.push(key);
                }
                continue;
            }
            match Scope::recorded(name).map_err(of_source)? {
                Some(scope) if scope.identity == key.identity => self.add(scope, None, pages)?,
                _ => self.gone.push(key),
            }
        }
        Ok(())
    }

    /// Objects on a remote target stay ours while the document does not say where the target is.
    fn add_missing_remote(&mut self, key: LedgerKey, remote: &Remote) {
        if self.bound.iter().all(|bound| bound.source.name() != key.source) {
            let keys = vec![key.source.clone()];
            let on = WaitsOn::Condition(format!(
                "`[{}]`, which says where our objects are",
                remote.section
            ));
            self.waiting.push(Waiting { ledger_key: key, keys, on });
        }
    }

    /// Plans everything. What is ours inside of a scope that a plan deletes needs no plan of its own.
    pub(crate) async fn plan(&self, pages: &dyn Pages) -> Result<Vec<SourceReport>> {
        let (mut all, mut deleted) = (Vec::new(), BTreeSet::new());
        for bound in &self.bound {
            let place = bound.planner.ledger_key().clone();
            if deleted.contains(&place.scope) {
                continue;
            }
            let report = bound.plan(pages).await?;
            deleted.extend(deleted_scopes(bound.source, &*report));
            let pattern = self.patterns.get(&bound.within).cloned();
            all.push(SourceReport { ledger_key: place, report, pattern });
        }
        all.extend(self.waiting.iter().map(Waiting::report));
        Ok(all)
    }

    /// What each scope has, for a daemon that keeps loops there, and what waits for scopes that do not exist.
    pub(crate) fn into_parts(self) -> (Vec<Part>, Vec<Waiting>) {
        let mut bound = self.bound;
        let mut patterns = self.patterns;
        let parts = self.scopes.into_iter().map(|scope| {
            let pattern = patterns.remove(&scope.name);
            let here = bound.extract_if(.., |one| one.within == scope.name);
            let (first, rest): (Vec<_>, Vec<_>) = here.partition(|one| one.source.scopes.is_some());
            let planners = |all: Vec<Bound>| all.into_iter().map(|one| one.planner).collect();
            Part { scope, pattern, first: planners(first), rest: planners(rest) }
        });
        (parts.collect(), self.waiting)
    }

    /// Takes the lock of every scope that has something to heal, and becomes able to write there.
    pub(crate) fn unlock(self, ledger: &Arc<dyn Ledger>) -> Result<Drivers<'a>> {
        self.unlock_under(None, ledger)
    }

    /// The same for a process that has the lock of the first scope already.
    pub(crate) fn unlock_under(
        mut self,
        mut first_lock: Option<Arc<ScopeLock>>,
        ledger: &Arc<dyn Ledger>,
    ) -> Result<Drivers<'a>> {
        for (index, scope) in std::mem::take(&mut self.scopes).iter().enumerate() {
            let heals = |one: &Bound| one.mode == Mode::Heal && one.within == scope.name;
            if !self.bound.iter().any(heals) {
                continue;
            }
            let lock = match &first_lock {
                Some(lock) if index == 0 => Arc::clone(lock),
                _ => Arc::new(self.context.lock_to_mark(scope, &**ledger)?),
            };
            if index == 0 {
                first_lock = Some(Arc::clone(&lock));
            }
            for one in self.bound.iter_mut().filter(|one| heals(one)) {
                one.lock = Some(Arc::clone(&lock));
            }
        }
        for one in &self.bound {
            one.planner.check_records(&**ledger)?;
        }
        // A target on another machine may keep us waiting: nothing here waits for it.
        self.bound.sort_by_key(|one| one.source.remote.is_some());
        Ok(Drivers { machine: self, first_lock, ledger: Arc::clone(ledger) })
    }
}

impl Bound {
    async fn plan(&self, pages: &dyn Pages) -> Result<Box<dyn Explain>, Error> {
        let plan = self.planner.plan(pages).await?;
        Ok(match self.mode {
            Mode::Heal => plan,
            Mode::Observe => Box::new(ObserveOnlyPlan::of(plan, self.planner.ledger_key())),
        })
    }
}

/// The names of the scopes that a plan of this source deletes.
fn deleted_scopes(source: &Registration, plan: &dyn Explain) -> BTreeSet<String> {
    let mut deleted = BTreeSet::new();
    if let Some(creator) = &source.scopes {
        plan.explain(Kind::Change, &mut |entry| match entry {
            Entry::Change(line, _) if line.action == Action::Delete => {
                deleted.extend((creator.scope)(&line.key));
            }
            _ => {}
        });
    }
    deleted
}
