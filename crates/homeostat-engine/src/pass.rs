//! The single pass, as plain functions.

use std::sync::Arc;

use homeostat_core::report::{JOURNAL, LEDGER};
use homeostat_core::{Fails, Focus, Holdings, Outcome, Plan, Report, Source};

use crate::book::Book;
use crate::config::{Config, Order};
use crate::error::Error;
use crate::fate::Prior;
use crate::observer::Observer;
use crate::run::{DetachedLane, Ran, may_detach, run, run_detaching};
use crate::verify::{Shown, doubts};

/// Observes, diffs and plans. It has no writer, so it cannot write.
pub async fn plan<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    holdings: &Holdings<S::Key, S::Object>,
) -> Result<Plan<S>, Error> {
    let order = &order.widened();
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
    (book, plan): (&mut Book<S>, Plan<S>),
) -> Result<Report<S>, Error> {
    let prior = book.begin(&plan, order.ownership)?;
    let ran = run(&plan, writer, order.config).await;
    order.config.dispatch.end_pass(&order.focus);
    conclude(order, observer, (book, prior), (plan, ran)).await
}

/// The same, but lanes that take long are detached, to be concluded when they have ended.
pub(crate) async fn apply_detaching<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    writer: &Arc<S::Writer>,
    (book, mut plan): (&mut Book<S>, Plan<S>),
) -> Result<(Report<S>, Vec<DetachedLane<S>>), Error> {
    if !may_detach::<S>(order.config) {
        let report = apply(order, observer, writer, (book, plan)).await?;
        return Ok((report, Vec::new()));
    }
    let mut prior = book.begin(&plan, order.ownership)?;
    let (ran, mut detached) = run_detaching(&mut plan, writer, order.config).await;
    order.config.dispatch.end_pass(&order.focus);
    for lane in &mut detached {
        lane.prior.extend(prior.remove_entry(&lane.key));
    }
    let report = conclude(order, observer, (book, prior), (plan, ran)).await?;
    Ok((report, detached))
}

/// Verifies what steps did, and records what is ours now.
pub(crate) async fn conclude<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    (book, prior): (&mut Book<S>, Prior<S>),
    (mut plan, mut ran): (Plan<S>, Ran<S::Object>),
) -> Result<Report<S>, Error> {
    book.absorb(&plan, &ran.tally, prior)?;
    let shown = look_again(order, observer, book.holdings(), (&mut plan, &mut ran)).await;
    book.learn(shown)?;
    book.forget(&plan, &ran.tally);
    match &order.focus {
        Focus::All => book.advance(&plan, &ran.tally),
        Focus::Keys(keys) if S::FAILS == Fails::Lanes => {
            book.catch_up((&plan, &ran.tally), keys);
        }
        // Elsewhere what waits is rare, and a desired state may be long: the next full pass is soon enough.
        Focus::Keys(_) => {}
    }
    let recorded = book.close();
    let report = Report::new(plan, ran.tally);
    Ok(match (recorded, ran.unwritten) {
        (Err(error), _) => report.unrecorded(LEDGER, error.failure()),
        (Ok(()), Some(failure)) => report.unrecorded(JOURNAL, failure),
        (Ok(()), None) => report,
    })
}

/// Puts right what the steps claimed. A look that fails leaves outcomes unknown: what was written is
/// still recorded and reported.
async fn look_again<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    holdings: &Holdings<S::Key, S::Object>,
    (plan, ran): (&mut Plan<S>, &mut Ran<S::Object>),
) -> Shown<S::Key> {
    let Some(doubts) = doubts(plan, ran) else { return Shown::default() };
    match observer.diff(&order.about(doubts.focus.clone()), holdings).await {
        Ok((_, left)) => doubts.put_right(plan, ran, &left),
        Err(error) => {
            let why = format!("written, but it could not be looked at again: {error}");
            for key in doubts.into_disturbed() {
                plan.found.unknown.push((key, why.clone()));
            }
            for at in ran.unverified.iter().cloned().flatten() {
                if ran.tally.is_applied(at) {
                    ran.tally.revise(at, Outcome::Unknown { why: why.clone() });
                }
            }
            Shown::default()
        }
    }
}

/// One pass: [`plan()`], then [`apply`]. The report tells what became of it, and `book` holds the
/// new ownership.
pub async fn pass<S: Source>(
    order: &Order<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    book: &mut Book<S>,
) -> Result<Report<S>, Error> {
    let order = &order.widened();
    let plan = plan(order, observer, book.holdings()).await?;
    apply(order, observer, writer, (book, plan)).await
}
