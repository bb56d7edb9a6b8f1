//! The single pass, as plain functions: values in, values out.

use std::sync::Arc;

use homeostat_core::report::{JOURNAL, LEDGER};
use homeostat_core::{Finding, Holdings, Outcome, Plan, Report, Source};

use crate::book::{Book, PriorRecords};
use crate::config::{Config, Order};
use crate::error::Error;
use crate::observer::Observer;
use crate::run::{DetachedLane, LaneWait, StepResults, WriterHandle, run};
use crate::verify::{Shown, correct, disturbed, second_look};

/// Observes, diffs and plans. It has no writer, so it cannot write.
pub async fn plan<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    holdings: &Holdings<S::Key, S::Object>,
) -> Result<Plan<S>, Error> {
    plan_focus(&order.widened(), observer, holdings).await
}

/// The same, over the focus as it is.
pub(crate) async fn plan_focus<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    holdings: &Holdings<S::Key, S::Object>,
) -> Result<Plan<S>, Error> {
    let (moment, changes) = observer.diff(order, holdings).await?;
    let mut plan = Plan::new(order.source, Arc::clone(&order.desired), moment, changes)
        .since(holdings.last.clone());
    let Config { guards, missing, .. } = order.config;
    guards.hold(missing, &mut plan, &order.focus);
    Ok(plan)
}

/// Applies a plan, verifies it and records what is ours now.
pub async fn apply<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    book: &mut Book<S>,
    plan: Plan<S>,
) -> Result<Report<S>, Error> {
    let (run, _) = PassRun::start(order, &writer, book, plan, LaneWait::All).await?;
    run.conclude(order, observer, book).await
}

/// One pass: [`plan()`], then [`apply`]. The report says what became of it, and `book` holds the new ownership.
pub async fn pass<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    book: &mut Book<S>,
) -> Result<Report<S>, Error> {
    let order = &order.widened();
    let plan = plan_focus(order, observer, book.holdings()).await?;
    apply(order, observer, writer, book, plan).await
}

/// Steps that ran, and have not been verified and recorded yet.
pub(crate) struct PassRun<S: Source> {
    pub(crate) plan: Plan<S>,
    pub(crate) results: StepResults<S::Object>,
    /// The records that stood before the steps were announced.
    pub(crate) prior: PriorRecords<S>,
}

impl<S: Source> PassRun<S> {
    /// Announces the steps where the target cannot hold a mark, and runs them. Returns the lanes that were detached.
    pub(crate) async fn start<'a, W: WriterHandle<'a, S>>(
        order: &Order<'_, S>,
        writer: &W,
        book: &mut Book<S>,
        mut plan: Plan<S>,
        wait: LaneWait,
    ) -> Result<(Self, Vec<DetachedLane<'a, S>>), Error> {
        let mut prior = book.begin(&plan, order.ownership)?;
        let (results, mut detached) = run(&mut plan, writer, order.config, wait).await;
        order.config.dispatch.end_pass(&order.focus);
        for lane in &mut detached {
            lane.prior.extend(prior.remove_entry(&lane.key));
        }
        Ok((PassRun { plan, results, prior }, detached))
    }

    /// Verifies what the steps did, and records what is ours now.
    pub(crate) async fn conclude(
        mut self,
        order: &Order<'_, S>,
        observer: &mut Observer<S>,
        book: &mut Book<S>,
    ) -> Result<Report<S>, Error> {
        book.absorb(&self.plan, &self.results.tally, std::mem::take(&mut self.prior))?;
        let shown = self.look_again(order, observer, book.holdings()).await;
        book.learn(shown)?;
        let PassRun { plan, results: StepResults { tally, unwritten, .. }, .. } = self;
        book.forget(&plan, &tally);
        book.advance(&plan, &tally, &order.focus);
        let recorded = book.close();
        let report = Report::new(plan, tally);
        Ok(match (recorded, unwritten) {
            (Err(error), _) => report.unrecorded(LEDGER, error.failure()),
            (Ok(()), Some(failure)) => report.unrecorded(JOURNAL, failure),
            (Ok(()), None) => report,
        })
    }

    /// Corrects what the steps claimed. A look that fails leaves outcomes unknown: what was written is still recorded
    /// and reported.
    async fn look_again(
        &mut self,
        order: &Order<'_, S>,
        observer: &mut Observer<S>,
        holdings: &Holdings<S::Key, S::Object>,
    ) -> Shown<S::Key> {
        let PassRun { plan, results, .. } = self;
        let disturbed = disturbed(plan, &results.tally);
        let Some(focus) = second_look(plan, results, &disturbed) else { return Shown::default() };
        match observer.diff(&order.about(focus), holdings).await {
            Ok((_, left)) => correct(plan, results, &disturbed, &left),
            Err(error) => {
                let why = format!("written, but it could not be looked at again: {error}");
                let unknown = disturbed.into_iter();
                let unknown = unknown.map(|key| (key, Finding::Unknown { why: why.clone() }));
                plan.findings.extend(unknown);
                for at in results.unverified.iter().cloned().flatten() {
                    if results.tally.is_applied(at) {
                        results.tally.revise(at, Outcome::Unknown { why: why.clone() });
                    }
                }
                Shown::default()
            }
        }
    }
}
