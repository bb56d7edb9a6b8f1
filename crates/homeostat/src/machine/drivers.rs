//! What can write, with the locks that allow it.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use homeostat_engine::{Control, Entries, Events, Ledger, LoopDeps, LoopTask, Patience, ScopeLock};
use homeostat_registry::forget_marks;
use tokio::task::JoinSet;

use super::{Bound, Machine, Waiting};
use crate::converge::{Converging, converge};
use crate::failure::of_source;
use crate::output::{SourceReport, summary};

/// Every source that is bound, each in its mode.
pub(crate) struct Drivers<'a> {
    pub(super) machine: Machine<'a>,
    pub(super) first_lock: Option<Arc<ScopeLock>>,
    pub(super) ledger: Arc<dyn Ledger>,
}

impl Drivers<'_> {
    /// Plans everything.
    pub(crate) async fn plan(&self) -> Result<Vec<SourceReport>> {
        self.machine.plan(&*self.ledger).await
    }

    /// Whether no other process holds the lock of the first scope now.
    pub(crate) fn has_top_lock(&self) -> bool {
        self.first_lock.is_some()
    }

    /// Deletes the records of scopes that are gone: nothing of ours can be in them.
    fn prune(&self) -> Result<()> {
        for key in &self.machine.gone {
            self.ledger.clear(key)?;
            forget_marks(&*self.ledger, key).map_err(of_source)?;
        }
        Ok(())
    }

    /// Runs passes until all is as declared, or until only findings remain that time cannot cure.
    pub(crate) async fn converge(self) -> Result<Vec<SourceReport>> {
        self.converge_and(&async |_| {}).await
    }

    /// The same; `then` gets the loops of each round once they are converged.
    pub(crate) async fn converge_and(
        mut self,
        then: &impl AsyncFn(&[Arc<dyn Control>]),
    ) -> Result<Vec<SourceReport>> {
        self.prune()?;
        let creates_scopes = |one: &mut Bound| one.source.scopes.is_some();
        let first = self.machine.bound.extract_if(.., creates_scopes).collect();
        let mut reports = self.run(first, then).await;
        if summary(&reports).total() > 0 {
            let why = "namespaces were made or removed, but the scopes cannot be opened after it";
            self = self.open_anew().context(why)?;
            self.machine.bound.retain(|one| one.source.scopes.is_none());
        }
        let rest = std::mem::take(&mut self.machine.bound);
        reports.extend(self.run(rest, then).await);
        reports.extend(self.machine.waiting.iter().map(Waiting::report));
        Ok(reports)
    }

    /// Opens the scopes that exist now, and closes the others: a lock or a socket in a namespace
    /// keeps it alive. The first scope stays locked all along.
    fn open_anew(mut self) -> Result<Self> {
        self.machine.bound.clear();
        let Machine { context, written, .. } = self.machine;
        let machine = Machine::bind(context, written, &*self.ledger)?;
        let opened = machine.unlock_under(self.first_lock, &self.ledger)?;
        opened.prune()?;
        Ok(opened)
    }

    /// Converges these sources, and reports in their order. One that fails keeps no other from its passes or its
    /// report.
    async fn run(
        &self,
        bound: Vec<Bound>,
        then: &impl AsyncFn(&[Arc<dyn Control>]),
    ) -> Vec<SourceReport> {
        let gates = &self.machine.context.gates;
        let open_gate = |one: &Converging| {
            if one.control.status().is_converged
                && let Some(gate) = gates.kept_by(one.control.ledger_key())
            {
                gate.open();
            }
        };
        let pass = async |one: &mut Converging| {
            // Until its pass has ended well, it is unknown whether a firewall is complete.
            if let Some(gate) = gates.kept_by(one.control.ledger_key()) {
                gate.close();
            }
            one.pass().await;
            open_gate(one);
        };
        // The loops of this run end with it.
        let mut loops = JoinSet::new();
        let (mut reports, mut converging) = (Vec::new(), Vec::new());
        for mut one in bound {
            let Some(lock) = one.lock.take() else {
                let ledger_key = one.planner.ledger_key().clone();
                let report = one.plan(&*self.ledger).await.unwrap_or_else(|error| {
                    Box::new(Entries::of_broken_pass(&error, &ledger_key.source))
                });
                reports.push(Some(SourceReport { ledger_key, report, pattern: None }));
                continue;
            };
            reports.push(None);
            let planner = one.planner;
            let pace = planner.pace(u64::from(std::process::id())).once();
            let (ledger, events) = (Arc::clone(&self.ledger), Events::default());
            let LoopTask { control, run, .. } =
                planner.into_loop(LoopDeps::new(lock, ledger).with_events(events), pace);
            let mut one = Converging::new(control);
            loops.spawn(run);
            pass(&mut one).await;
            converging.push(one);
        }
        converge(&mut converging, Patience::default(), pass, open_gate).await;
        let controls: Vec<_> = converging.iter().map(|one| Arc::clone(&one.control)).collect();
        then(&controls).await;
        let mut healed = converging.into_iter();
        let reports = reports.into_iter().map(|report| report.or_else(|| healed.next()?.report()));
        reports.flatten().collect()
    }
}
