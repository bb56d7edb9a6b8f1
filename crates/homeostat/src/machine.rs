//! A document bound to this machine: its scopes, their sources, their locks.
//!
//! A [`Machine`] can only be planned for. With the locks of its scopes it becomes [`Drivers`].

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use homeostat_document::{Document, Scope as Section};
use homeostat_engine::{
    Driver, Entry, Error, Explain, Failure, Kind, Ledger, Pages, Place, Planner, ScopeLock, Summary,
};

use crate::context::{Context, Top};
use crate::output::{Told, is_converged, summary};
use crate::registry::{Binding, SOURCES, resolve};
use crate::scope::Scope;
use crate::unbuilt;

/// A pass can bring to light what only the next one can mend (a knob that another one rewrote).
const MOST_PASSES: usize = 3;

/// What can be planned.
pub(crate) struct Machine {
    scopes: Vec<(Scope, Vec<Box<dyn Planner>>)>,
    waiting: Vec<(Place, Waiting)>,
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
        let mut machine = Machine { scopes: Vec::new(), waiting: Vec::new() };
        machine.add(Scope::top(context)?, Some(&document.host), with)?;
        for (name, namespace) in &document.namespaces {
            match Scope::named(name.as_str())? {
                Some(scope) => machine.add(scope, Some(&namespace.scope), with)?,
                None => machine.wait(&context.owner, name.as_str(), &namespace.scope),
            }
        }
        if matches!(context.top, Top::Host) {
            machine.add_left_behind(with)?;
        }
        Ok(machine)
    }

    fn add(&mut self, scope: Scope, section: Option<&Section>, with: With<'_>) -> Result<()> {
        let With { context, document, pages } = with;
        let binding = Binding { context, document, scope: &scope, section, pages };
        let mut planners = Vec::new();
        for source in SOURCES {
            planners.extend((source.bind)(&binding)?);
        }
        self.scopes.push((scope, planners));
        Ok(())
    }

    fn wait(&mut self, owner: &str, name: &str, section: &Section) {
        for source in SOURCES {
            let place = Place {
                owner: owner.to_owned(),
                source: source.name.to_owned(),
                scope: name.to_owned(),
                identity: String::new(),
            };
            let keys = (source.wait)(section);
            self.waiting.push((place, Waiting { keys, on: format!("namespace {name}") }));
        }
    }

    /// Scopes that the document no longer names, and that still are what they were.
    fn add_left_behind(&mut self, with: With<'_>) -> Result<()> {
        let known: BTreeSet<String> = self.scopes.iter().map(|(s, _)| s.name.clone()).collect();
        let places = with.pages.places(&with.context.owner)?;
        let left: BTreeSet<(String, String)> = places
            .into_iter()
            .filter(|place| !known.contains(&place.scope))
            .map(|place| (place.scope, place.identity))
            .collect();
        for (name, identity) in left {
            // A name that cannot be opened any more has nothing of ours in it.
            let Ok(Some(scope)) = Scope::named(&name) else { continue };
            if scope.identity == identity {
                self.add(scope, None, with)?;
            }
        }
        Ok(())
    }

    /// Plans everything.
    pub(crate) async fn plan(&self, pages: &dyn Pages) -> Result<Vec<Told>> {
        let mut all = Vec::new();
        for planner in self.scopes.iter().flat_map(|(_, planners)| planners) {
            all.push(Told { place: planner.place().clone(), what: planner.plan(pages).await? });
        }
        all.extend(self.waiting.iter().map(told));
        Ok(all)
    }

    /// Takes the lock of every scope, and becomes able to write.
    pub(crate) fn unlock(self, owner: &str, ledger: &Arc<dyn Ledger>) -> Result<Drivers> {
        let (mut bound, mut locks) = (Vec::new(), Vec::new());
        for (scope, planners) in self.scopes {
            if planners.is_empty() {
                continue;
            }
            let lock = scope.lock(owner)?;
            for planner in planners {
                bound.push(planner.unlock(&lock, Arc::clone(ledger))?);
            }
            locks.push(lock);
        }
        Ok(Drivers { bound, _locks: locks, waiting: self.waiting })
    }
}

/// What can write, with the locks that allow it.
pub(crate) struct Drivers {
    bound: Vec<Box<dyn Driver>>,
    _locks: Vec<ScopeLock>,
    waiting: Vec<(Place, Waiting)>,
}

impl Drivers {
    /// Plans everything.
    pub(crate) async fn plan(&mut self) -> Result<Vec<Told>> {
        let mut all = Vec::new();
        for driver in &mut self.bound {
            let place = driver.place().clone();
            all.push(Told { place, what: driver.plan().await? });
        }
        all.extend(self.waiting.iter().map(told));
        Ok(all)
    }

    /// Runs passes until all is as declared, or nothing moves any more.
    pub(crate) async fn converge(&mut self) -> Vec<Told> {
        let mut all = self.pass().await;
        for _ in 1..MOST_PASSES {
            if is_converged(&all) || summary(&all).total() == 0 {
                break;
            }
            let again = self.pass().await;
            let moved = summary(&again).total() > 0;
            let pairs = all.into_iter().zip(again);
            all = pairs.map(|(before, now)| now.after(before)).collect();
            if !moved {
                break;
            }
        }
        all.extend(self.waiting.iter().map(told));
        all
    }

    /// One pass over every source. One that fails keeps no other from its pass or its report.
    async fn pass(&mut self) -> Vec<Told> {
        let mut all = Vec::new();
        for driver in &mut self.bound {
            let place = driver.place().clone();
            let what = driver.pass().await.unwrap_or_else(|error| Box::new(Broken::by(&error)));
            all.push(Told { place, what });
        }
        all
    }
}

fn told((place, waiting): &(Place, Waiting)) -> Told {
    Told { place: place.clone(), what: Box::new(waiting.clone()) }
}

/// Wishes in a scope that is not there.
#[derive(Clone)]
struct Waiting {
    keys: Vec<String>,
    on: String,
}

impl Explain for Waiting {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind == Kind::Pending {
            for key in &self.keys {
                tell(Entry::Pending { key: key.clone(), on: self.on.clone() });
            }
        }
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn is_converged(&self) -> bool {
        self.keys.is_empty()
    }
}

/// A source whose pass ended early.
struct Broken {
    failure: Failure,
}

impl Broken {
    fn by(error: &Error) -> Self {
        let mut failure = Failure::from_error(error, error.retry());
        failure.help = error.help();
        Broken { failure }
    }
}

impl Explain for Broken {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind == Kind::Failed {
            let (action, key) = (None, "the pass".to_owned());
            tell(Entry::Failed { action, key, failure: self.failure.clone() });
        }
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn is_converged(&self) -> bool {
        false
    }
}
