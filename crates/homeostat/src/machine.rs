//! A document bound to this machine: its scopes, their sources, their locks.
//!
//! A [`Machine`] can only be planned for. With the locks of its scopes it becomes [`Drivers`].
//! Namespaces of our own come first: what is inside can be opened only when they are there.

mod drivers;
mod firewalls;
mod observe_only;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Document, Mode, NamespaceName, Scope as Section};
use homeostat_engine::{Error, Explain, Ledger, LedgerKey, Pages, Planner, ScopeLock, WaitsOn};

use crate::context::{Context, Top};
use crate::failure::Helped;
use crate::output::SourceReport;
use crate::registry::{
    Binding, FIRST, Lists, Registered, Remote, SOURCES, going, is_made, known, refuse_namespaces,
    resolve,
};
use crate::scope::{Lookup, Scope, name_of};
use drivers::Driven;
pub(crate) use drivers::Drivers;
use firewalls::Firewalls;
pub(crate) use observe_only::ObserveOnlyPlan;
pub(crate) use waiting::{Waiting, told as told_of_waiting};

/// What can be planned.
pub(crate) struct Machine<'a> {
    context: &'a Context,
    document: &'a Document,
    /// The namespaces of our own, in the first scope, if there are any.
    spaces: Vec<Bound>,
    scopes: Vec<(Scope, Vec<Bound>)>,
    waiting: Vec<(LedgerKey, Waiting)>,
    /// Where the ledger has records of scopes that are there no more.
    gone: Vec<LedgerKey>,
}

/// The sources of one scope.
pub(crate) struct Part {
    pub(crate) scope: Scope,
    /// Namespaces of our own: in the first scope, and driven before all others.
    pub(crate) first: Vec<Box<dyn Planner>>,
    pub(crate) rest: Vec<Box<dyn Planner>>,
}

/// A source in a scope, and what it does about drift.
struct Bound {
    planner: Box<dyn Planner>,
    mode: Mode,
}

/// What all scopes are bound with.
#[derive(Clone, Copy)]
struct With<'a> {
    context: &'a Context,
    document: &'a Document,
    pages: &'a dyn Pages,
}

impl<'a> Machine<'a> {
    /// Binds every source in every scope that the document names, or in which the ledger says that
    /// we own something.
    pub(crate) fn bind(
        context: &'a Context,
        document: &'a Document,
        pages: &dyn Pages,
    ) -> Result<Self> {
        resolve(document, Lists::Skip)?;
        refuse_namespaces(context, document)?;
        let with = With { context, document, pages };
        let (top, section) = (Scope::top(context)?, Some(&document.host));
        let binding = Binding { context, document, scope: &top, section, pages };
        let spaces = bind(&FIRST, &binding)?.into_iter().collect();
        let (scopes, waiting, gone) = (vec![], vec![], vec![]);
        let mut machine = Machine { context, document, spaces, scopes, waiting, gone };
        machine.add(top, section, with)?;
        for (name, section) in &document.namespaces {
            let name = &name.value;
            let on = match Scope::named(name)? {
                Lookup::Found(scope) => {
                    machine.add(scope, Some(section), with)?;
                    continue;
                }
                Lookup::Absent => WaitsOn::Namespace(name.to_string()),
                // Its own source knows the way out: it may be a file that we left there.
                Lookup::NotNetns { error, .. } if is_made(section) => {
                    WaitsOn::Condition(format!("namespace {name}: {error}"))
                }
                Lookup::NotNetns { error, help } => {
                    WaitsOn::Condition(format!("namespace {name}: {error}; {help}"))
                }
            };
            machine.wait(name, section, &on)?;
        }
        if matches!(context.top, Top::Host) {
            machine.add_left_behind(with)?;
        }
        Ok(machine)
    }

    fn add(&mut self, scope: Scope, section: Option<&Section>, with: With<'_>) -> Result<()> {
        let With { context, document, pages } = with;
        let twin = self.scopes.iter().find(|(known, _)| known.identity == scope.identity);
        if let Some((twin, _)) = twin {
            return Err(Helped::error(
                format!("`{}` is the same network namespace as `{}`", scope.name, twin.name),
                "the document speaks of it twice: at its top level, or by another name",
            ));
        }
        let gate = context.gates.of(&scope.identity);
        let scope = Scope { gate, ..scope };
        let binding = Binding { context, document, scope: &scope, section, pages };
        let mut bound = Vec::new();
        for source in SOURCES {
            bound.extend(bind(source, &binding)?);
        }
        self.scopes.push((scope, bound));
        Ok(())
    }

    /// Everything of a section waits `on` the scope of this name.
    fn wait(&mut self, name: &NamespaceName, section: &Section, on: &WaitsOn) -> Result<()> {
        for source in SOURCES {
            let place = LedgerKey {
                owner: self.context.owner.clone(),
                source: source.name.to_owned(),
                scope: name_of(name)?,
                identity: String::new(),
            };
            let keys = (source.wait)(self.document, section);
            self.waiting.push((place, Waiting { keys, on: on.clone() }));
        }
        Ok(())
    }

    /// Scopes that the document no longer names, and that still are what they were; of the others
    /// only records are left.
    fn add_left_behind(&mut self, with: With<'_>) -> Result<()> {
        for place in with.pages.places(&with.context.owner)? {
            let name = &place.scope;
            // What is not here is not gone with anything that was here.
            let remote = known(&place.source).remote.as_ref();
            if let Some(remote) = remote.filter(|remote| remote.identity == place.identity) {
                self.miss(place, remote);
                continue;
            }
            if self.waiting.iter().any(|(waiting, _)| waiting.scope == *name) {
                continue;
            }
            if let Some((scope, _)) = self.scopes.iter().find(|(scope, _)| scope.name == *name) {
                if scope.identity != place.identity {
                    self.gone.push(place);
                }
                continue;
            }
            match Scope::recorded(name)? {
                Some(scope) if scope.identity == place.identity => self.add(scope, None, with)?,
                _ => self.gone.push(place),
            }
        }
        Ok(())
    }

    /// What we own elsewhere stays ours while the document does not say where that is.
    fn miss(&mut self, place: LedgerKey, remote: &Remote) {
        let mut bound = self.scopes.iter().flat_map(|(_, bound)| bound);
        if bound.all(|bound| bound.planner.place().source != place.source) {
            let keys = vec![place.source.clone()];
            let on = WaitsOn::Condition(format!(
                "`[{}]`, which says where what we own is",
                remote.section
            ));
            self.waiting.push((place, Waiting { keys, on }));
        }
    }

    /// Plans everything.
    pub(crate) async fn plan(&self, pages: &dyn Pages) -> Result<Vec<SourceReport>> {
        let (mut all, mut gone) = (Vec::new(), BTreeSet::new());
        for bound in &self.spaces {
            let what = bound.plan(pages).await?;
            gone.extend(going(&*what)?);
            all.push(SourceReport { ledger_key: bound.planner.place().clone(), report: what });
        }
        let scopes = self.scopes.iter().filter(|(scope, _)| !gone.contains(&scope.name));
        for bound in scopes.flat_map(|(_, bound)| bound) {
            let place = bound.planner.place().clone();
            all.push(SourceReport { ledger_key: place, report: bound.plan(pages).await? });
        }
        all.extend(self.waiting.iter().map(waiting::told));
        Ok(all)
    }

    /// What waits for a scope that is not there.
    pub(crate) fn waiting(&self) -> Vec<(LedgerKey, Waiting)> {
        self.waiting.clone()
    }

    /// What each scope has, for who keeps loops there.
    pub(crate) fn into_parts(self) -> Vec<Part> {
        let Machine { spaces: mut first, scopes, .. } = self;
        let planners = |all: Vec<Bound>| all.into_iter().map(|bound| bound.planner).collect();
        let parts = scopes.into_iter().map(|(scope, all)| {
            let first = planners(std::mem::take(&mut first));
            Part { scope, first, rest: planners(all) }
        });
        parts.collect()
    }

    /// Takes the lock of every scope that has something to heal, and becomes able to write there.
    pub(crate) fn unlock(self, ledger: &Arc<dyn Ledger>) -> Result<Drivers<'a>> {
        self.unlock_under(None, ledger)
    }

    /// The same for who has the lock of the first scope already.
    fn unlock_under(
        self,
        mut held: Option<Arc<ScopeLock>>,
        ledger: &Arc<dyn Ledger>,
    ) -> Result<Drivers<'a>> {
        let Machine { context, document, spaces: mut first, scopes, waiting, gone } = self;
        let (mut spaces, mut driven, mut locks) = (Vec::new(), Vec::new(), Vec::new());
        let firewalls = Firewalls::of(scopes.iter().map(|(scope, _)| scope));
        for (scope, all) in scopes {
            let first = std::mem::take(&mut first);
            let heals = first.iter().chain(&all).any(|bound| bound.mode == Mode::Heal);
            let lock = match held.take() {
                Some(held) => Some(held),
                None => heals.then(|| scope.lock(context)).transpose()?.map(Arc::new),
            };
            spaces.extend(unlock(first, lock.as_ref()));
            driven.extend(unlock(all, lock.as_ref()));
            locks.push(lock);
        }
        for one in spaces.iter().chain(&driven) {
            one.planner.check_records(&**ledger)?;
        }
        // What is elsewhere may keep us waiting: nothing here waits for it.
        driven.sort_by_key(|one: &Driven| known(&one.planner.place().source).remote.is_some());
        let ledger = Arc::clone(ledger);
        Ok(Drivers { context, document, spaces, driven, locks, firewalls, waiting, gone, ledger })
    }
}

fn unlock(all: Vec<Bound>, lock: Option<&Arc<ScopeLock>>) -> impl Iterator<Item = Driven> {
    all.into_iter().map(move |Bound { planner, mode }| {
        let lock = lock.filter(|_| mode == Mode::Heal).map(Arc::clone);
        Driven { planner, lock }
    })
}

fn bind(source: &Registered, binding: &Binding<'_>) -> Result<Option<Bound>> {
    let mode = binding.document.settings.source(source.name).mode.as_ref();
    let mode = mode.map_or(Mode::Heal, |mode| mode.value);
    let planner = (source.bind)(binding)?;
    Ok(planner.map(|planner| Bound { planner, mode }))
}

impl Bound {
    async fn plan(&self, pages: &dyn Pages) -> Result<Box<dyn Explain>, Error> {
        match self.mode {
            Mode::Heal => self.planner.plan(pages).await,
            Mode::Observe => ObserveOnlyPlan::plan(&*self.planner, pages).await,
        }
    }
}
