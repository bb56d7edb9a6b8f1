//! A document bound to this machine: its scopes, their sources, their locks.
//!
//! A [`Machine`] can only be planned for. With the locks of its scopes it becomes [`Drivers`].

mod broken;
mod drivers;
mod unapplied;
mod waiting;

use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Document, Mode, NamespaceName, Scope as Section};
use homeostat_engine::{Error, Explain, Ledger, Pages, Place, Planner};

use crate::context::{Context, Top};
use crate::failure::Helped;
use crate::output::Told;
use crate::registry::{Binding, SOURCES, resolve};
use crate::scope::{Scope, name_of};
use crate::unbuilt;
use drivers::Driven;
pub(crate) use drivers::Drivers;
use unapplied::Unapplied;
use waiting::Waiting;

/// What can be planned.
pub(crate) struct Machine {
    scopes: Vec<(Scope, Vec<Bound>)>,
    waiting: Vec<(Place, Waiting)>,
    /// Where the ledger has records of scopes that are there no more.
    gone: Vec<Place>,
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

impl Machine {
    /// Binds every source in every scope that the document names, or in which the ledger says that
    /// we own something.
    pub(crate) fn bind(context: &Context, document: &Document, pages: &dyn Pages) -> Result<Self> {
        resolve(document)?;
        unbuilt::refuse(document)?;
        let with = With { context, document, pages };
        let mut machine = Machine { scopes: vec![], waiting: vec![], gone: vec![] };
        machine.add(Scope::top(context)?, Some(&document.host), with)?;
        for (name, namespace) in &document.namespaces {
            match Scope::named(name)? {
                Some(scope) => machine.add(scope, Some(&namespace.scope), with)?,
                None => machine.wait(&context.owner, name, &namespace.scope)?,
            }
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
        let binding = Binding { context, document, scope: &scope, section, pages };
        let mut bound = Vec::new();
        for source in SOURCES {
            let mode = (source.settings)(&document.settings).mode.as_ref();
            let mode = mode.map_or(Mode::Heal, |mode| mode.value);
            let planner = (source.bind)(&binding)?;
            bound.extend(planner.map(|planner| Bound { planner, mode }));
        }
        self.scopes.push((scope, bound));
        Ok(())
    }

    fn wait(&mut self, owner: &str, name: &NamespaceName, section: &Section) -> Result<()> {
        for source in SOURCES {
            let place = Place {
                owner: owner.to_owned(),
                source: source.name.to_owned(),
                scope: name_of(name)?,
                identity: String::new(),
            };
            let keys = (source.wait)(section);
            self.waiting.push((place, Waiting { keys, on: format!("namespace {name}") }));
        }
        Ok(())
    }

    /// Scopes that the document no longer names, and that still are what they were; of the others
    /// only records are left.
    fn add_left_behind(&mut self, with: With<'_>) -> Result<()> {
        for place in with.pages.places(&with.context.owner)? {
            let name = &place.scope;
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

    /// Plans everything.
    pub(crate) async fn plan(&self, pages: &dyn Pages) -> Result<Vec<Told>> {
        let mut all = Vec::new();
        for bound in self.scopes.iter().flat_map(|(_, bound)| bound) {
            let place = bound.planner.place().clone();
            all.push(Told { place, what: bound.plan(pages).await? });
        }
        all.extend(self.waiting.iter().map(waiting::told));
        Ok(all)
    }

    /// Takes the lock of every scope that has something to heal, and becomes able to write there.
    pub(crate) fn unlock(self, context: &Context, ledger: &Arc<dyn Ledger>) -> Result<Drivers> {
        let (mut driven, mut locks) = (Vec::new(), Vec::new());
        for (scope, all) in self.scopes {
            let heals = all.iter().any(|bound| bound.mode == Mode::Heal);
            let lock = heals.then(|| scope.lock(context)).transpose()?;
            for bound in all {
                driven.push(match &lock {
                    Some(lock) if bound.mode == Mode::Heal => {
                        Driven::Healing(bound.planner.unlock(lock, Arc::clone(ledger))?)
                    }
                    _ => Driven::Observing(bound.planner),
                });
            }
            locks.extend(lock);
        }
        let (waiting, gone) = (self.waiting, self.gone);
        Ok(Drivers { driven, _locks: locks, waiting, gone, ledger: Arc::clone(ledger) })
    }
}

impl Bound {
    async fn plan(&self, pages: &dyn Pages) -> Result<Box<dyn Explain>, Error> {
        match self.mode {
            Mode::Heal => self.planner.plan(pages).await,
            Mode::Observe => Unapplied::plan(&*self.planner, pages).await,
        }
    }
}
