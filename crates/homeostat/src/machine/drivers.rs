//! What can write, with the locks that allow it.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_document::Document;
use homeostat_engine::{
    Control, Entries, Events, Ledger, LedgerKey, LoopDeps, LoopTask, Patience, Planner, ScopeLock,
};
use tokio::task::JoinHandle;

use super::Machine;
use super::firewalls::Firewalls;
use super::observe_only::ObserveOnlyPlan;
use super::waiting::{self, Waiting};
use crate::context::Context;
use crate::converge::{Converging, converge};
use crate::output::{Told, summary};
use crate::registry::going;

/// Every source that is bound, each in its mode.
pub(crate) struct Drivers<'a> {
    pub(super) context: &'a Context,
    pub(super) document: &'a Document,
    /// The namespaces of our own, if there are any: driven before all others.
    pub(super) spaces: Vec<Driven>,
    pub(super) driven: Vec<Driven>,
    /// Of each scope, in which something can be written.
    pub(super) locks: Vec<Option<Arc<ScopeLock>>>,
    pub(super) firewalls: Firewalls,
    pub(super) waiting: Vec<(LedgerKey, Waiting)>,
    pub(super) gone: Vec<LedgerKey>,
    pub(super) ledger: Arc<dyn Ledger>,
}

/// One source in one scope. One that only observes has no lock, and so no way to write.
pub(super) struct Driven {
    pub(super) planner: Box<dyn Planner>,
    pub(super) lock: Option<Arc<ScopeLock>>,
}

impl Drivers<'_> {
    /// Plans everything.
    pub(crate) async fn plan(&self) -> Result<Vec<Told>> {
        let (mut all, mut gone) = (Vec::new(), BTreeSet::new());
        for driven in &self.spaces {
            let told = driven.plan(&*self.ledger).await?;
            gone.extend(going(&*told.what)?);
            all.push(told);
        }
        for driven in &self.driven {
            if !gone.contains(&driven.planner.place().scope) {
                all.push(driven.plan(&*self.ledger).await?);
            }
        }
        all.extend(self.waiting.iter().map(waiting::told));
        Ok(all)
    }

    /// Drops the records of scopes that are gone: nothing of ours can be in them.
    pub(crate) fn prune(&self) -> Result<()> {
        for place in &self.gone {
            self.ledger.clear(place)?;
        }
        Ok(())
    }

    /// Runs passes until all is as declared, or until only findings remain that time cannot cure.
    pub(crate) async fn converge(mut self) -> Result<Vec<Told>> {
        let spaces = std::mem::take(&mut self.spaces);
        let mut told = run(spaces, &self.firewalls, &self.ledger).await;
        if summary(&told).total() > 0 {
            let why = "namespaces were made or removed, but the scopes cannot be opened after it";
            self = self.open_anew().context(why)?;
        }
        let driven = std::mem::take(&mut self.driven);
        told.extend(run(driven, &self.firewalls, &self.ledger).await);
        told.extend(self.waiting.iter().map(waiting::told));
        Ok(told)
    }

    /// Opens the scopes that are there now, and lets go of the others: a lock or a socket in a namespace
    /// keeps it alive. The first scope stays locked all along.
    fn open_anew(mut self) -> Result<Self> {
        let first = self.locks.first_mut().and_then(Option::take);
        (self.driven, self.locks) = (Vec::new(), Vec::new());
        let machine = Machine::bind(self.context, self.document, &*self.ledger)?;
        let opened = machine.unlock_under(first, &self.ledger)?;
        opened.prune()?;
        Ok(opened)
    }
}

/// A loop of this run; it ends with it.
struct Running {
    control: Arc<dyn Control>,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    fn start(planner: Box<dyn Planner>, lock: Arc<ScopeLock>, ledger: &Arc<dyn Ledger>) -> Self {
        let pace = planner.pace(u64::from(std::process::id())).once();
        let deps = LoopDeps { lock, ledger: Arc::clone(ledger), events: Events::default() };
        let LoopTask { control, run } = planner.into_loop(deps, pace);
        Running { control, task: tokio::spawn(run) }
    }
}

/// Converges these sources, and reports in their order. One that fails keeps no other from its passes or its
/// report.
async fn run(driven: Vec<Driven>, firewalls: &Firewalls, ledger: &Arc<dyn Ledger>) -> Vec<Told> {
    let (mut reports, mut running, mut converging) = (Vec::new(), Vec::new(), Vec::new());
    let pass = async |one: &mut Converging| {
        firewalls.before(one.control.place());
        one.pass().await;
        firewalls.after(&*one.control);
    };
    for Driven { planner, lock } in driven {
        let Some(lock) = lock else {
            reports.push(Some(observed(&*planner, ledger).await));
            continue;
        };
        reports.push(None);
        let begun = Running::start(planner, lock, ledger);
        let mut one = Converging::new(Arc::clone(&begun.control));
        running.push(begun);
        pass(&mut one).await;
        converging.push(one);
    }
    converge(&mut converging, Patience::default(), pass, |one| firewalls.after(&*one.control))
        .await;
    let mut healed = converging.into_iter();
    let reports = reports.into_iter().map(|report| report.or_else(|| healed.next()?.report()));
    reports.flatten().collect()
}

/// What a source that only observes finds.
async fn observed(planner: &dyn Planner, ledger: &Arc<dyn Ledger>) -> Told {
    let place = planner.place().clone();
    let what = ObserveOnlyPlan::plan(planner, &**ledger).await;
    let what =
        what.unwrap_or_else(|error| Box::new(Entries::of_broken_pass(&error, &place.source)));
    Told { place, what }
}

impl Driven {
    async fn plan(&self, ledger: &dyn Ledger) -> Result<Told> {
        let place = self.planner.place().clone();
        let what = match self.lock {
            Some(_) => self.planner.plan(ledger).await?,
            None => ObserveOnlyPlan::plan(&*self.planner, ledger).await?,
        };
        Ok(Told { place, what })
    }
}
