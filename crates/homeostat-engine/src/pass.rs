//! The single pass, as plain functions: values in, values out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use educe::Educe;
use homeostat_core::text::bounded;
use homeostat_core::{
    Failure, Finding, HeldBy, Holdings, Kind, Outcome, Owner, PassTrouble, Plan, Report, Snapshot,
    Source, Step, Taking,
};

use crate::config::{Config, PassInput};
use crate::error::Error;
use crate::ledger_page::{LedgerPage, PriorRecords};
use crate::observer::Observer;
use crate::run::{DetachedLane, LaneWait, StepResults, WriterHandle, run};
use crate::verify::{Shown, correct, disturbed, second_look};

/// Observes, diffs and plans. It has no writer, so it cannot write.
pub async fn plan<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    holdings: &Holdings<S::Key, S::Object>,
) -> Result<Plan<S>, Error> {
    plan_focus(&input.widened(), observer, holdings).await
}

/// The same, over the focus as it is.
pub(crate) async fn plan_focus<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    holdings: &Holdings<S::Key, S::Object>,
) -> Result<Plan<S>, Error> {
    let input = &observer.resolve(input, holdings).await?;
    let (moment, changes) = observer.diff(input, holdings).await?;
    let mut plan = Plan::new(input.source, Arc::clone(&input.desired), moment, changes)
        .since(holdings.last.clone());
    hold_for_broken_records(&mut plan, holdings);
    let Config { guards, missing, parks, .. } = input.config;
    if *parks {
        plan.discount_put_off();
    }
    guards.hold(missing, &mut plan, &input.focus);
    guards.hold_unaccepted(&mut plan);
    if *parks {
        plan.park();
    }
    plan.note_losses();
    guards.hold_losses(&mut plan);
    Ok(plan)
}

/// Holds back what may touch an object whose record cannot be read. Such a key has no step of its own: the diff bars it.
fn hold_for_broken_records<S: Source>(plan: &mut Plan<S>, holdings: &Holdings<S::Key, S::Object>) {
    let broken = &holdings.broken;
    if !broken.keys.is_empty() {
        let keys: BTreeSet<String> = broken.keys.keys().map(ToString::to_string).collect();
        plan.hold(HeldBy::Ledger, |_, step| {
            let taken = step.takes().iter().find(|taken| keys.contains(&taken.key))?;
            Some(format!(
                "it would take `{}` along, whose record in the ledger cannot be read",
                taken.key
            ))
        });
    }
    if let Some(first) = broken.unkeyed.first() {
        let more = match broken.unkeyed.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more like it)"),
        };
        let reason = format!(
            "{}{more}; what has no other record is neither removed nor taken over meanwhile",
            first.why
        );
        let error = Error::BadRecord { key: bounded(first.stored.clone()), reason };
        plan.hold_for_broken_record(error.failure(), &holdings.records);
    }
}

/// Applies a plan, verifies it and records what is ours now.
pub async fn apply<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    ledger_page: &mut LedgerPage<S>,
    plan: Plan<S>,
) -> Result<Report<S>, Error> {
    let (run, _) =
        PassRun::start(input, observer, &writer, ledger_page, plan, LaneWait::All).await?;
    run.conclude(input, observer, ledger_page).await
}

/// One pass: [`plan()`], then [`apply`]. The report holds the outcomes, and `ledger_page` the new ownership.
pub async fn pass<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    writer: &S::Writer,
    ledger_page: &mut LedgerPage<S>,
) -> Result<Report<S>, Error> {
    let input = &input.widened();
    let plan = plan_focus(input, observer, ledger_page.holdings()).await?;
    apply(input, observer, writer, ledger_page, plan).await
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
        input: &PassInput<'_, S>,
        observer: &mut Observer<S>,
        writer: &W,
        ledger_page: &mut LedgerPage<S>,
        mut plan: Plan<S>,
        wait: LaneWait,
    ) -> Result<(Self, Vec<DetachedLane<'a, S>>), Error> {
        // A report says what became of the steps.
        plan.findings.retain(|(_, finding)| finding.kind() != Kind::Irreversible);
        let recorded = record_taken(input, observer, ledger_page, &mut plan).await;
        let claimed = plan.claimed();
        let snapshots = observer.snapshots(&claimed).await.unwrap_or_else(|failure| {
            let why = format!("the present object could not be recorded: {}", failure.error);
            plan.hold(HeldBy::Ledger, |plan, step| {
                claimed.contains(&step.key(&plan.desired)).then(|| why.clone())
            });
            BTreeMap::new()
        });
        let mut prior = ledger_page.begin(&mut plan, input.ownership, snapshots).await?;
        let (results, mut detached) = run(&mut plan, writer, input.config, wait).await;
        input.config.dispatch.end_pass(&input.focus);
        strike_kept(input, observer, ledger_page, &recorded).await;
        for lane in &mut detached {
            lane.prior.extend(prior.remove_entry(&lane.key));
        }
        Ok((PassRun { plan, results, prior }, detached))
    }

    /// Verifies what the steps did, and records what is ours now.
    pub(crate) async fn conclude(
        mut self,
        input: &PassInput<'_, S>,
        observer: &mut Observer<S>,
        ledger_page: &mut LedgerPage<S>,
    ) -> Result<Report<S>, Error> {
        ledger_page.absorb(&self.plan, &self.results.tally, std::mem::take(&mut self.prior))?;
        let shown = self.look_again(input, observer, ledger_page.holdings()).await;
        ledger_page.learn(shown)?;
        let PassRun { plan, results: StepResults { tally, unwritten, .. }, .. } = self;
        ledger_page.forget(&plan, &tally);
        ledger_page.advance(&plan, &tally, &input.focus);
        let recorded = ledger_page.close().await;
        let report = Report::new(plan, tally);
        Ok(match (recorded, unwritten) {
            (Err(error), _) => report.unrecorded(PassTrouble::Ledger, error.failure()),
            (Ok(()), Some(failure)) => report.unrecorded(PassTrouble::Journal, failure),
            (Ok(()), None) => report,
        })
    }

    /// Corrects what the steps claimed. A look that fails leaves outcomes unknown: what was written is still recorded
    /// and reported.
    async fn look_again(
        &mut self,
        input: &PassInput<'_, S>,
        observer: &mut Observer<S>,
        holdings: &Holdings<S::Key, S::Object>,
    ) -> Shown<S::Key> {
        let PassRun { plan, results, .. } = self;
        let disturbed = disturbed(plan, &results.tally);
        let Some(focus) = second_look(plan, results, &disturbed, &input.focus) else {
            return Shown::default();
        };
        // What was written is looked for, whatever the declaration would come to by now.
        let again = PassInput { desired: Arc::clone(&plan.desired), ..input.about(focus) };
        match observer.diff(&again, holdings).await {
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

/// Records what the steps may take from other owners, and what they name of our own, durably, before they do, and returns
/// it. A step whose losses cannot be recorded is held.
async fn record_taken<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    ledger_page: &LedgerPage<S>,
    plan: &mut Plan<S>,
) -> Recorded<S> {
    let Some(undo) = &input.config.undo else { return Recorded::default() };
    let taken = plan.steps.iter().flat_map(Step::takes);
    let foreign = taken.filter(|taken| !matches!(taken.owner, Owner::Ours | Owner::Kernel));
    let foreign: BTreeSet<S::Key> = foreign.filter_map(|taken| taken.key.parse().ok()).collect();
    let mut own = BTreeMap::new();
    for step in &plan.steps {
        step.records(&plan.desired, &mut |key, taking| _ = own.insert(key, taking));
    }
    let snapshots = async {
        let along = observer.snapshots_along(&foreign).await?;
        let taking = own;
        let own = observer.snapshots(&taking.keys().cloned().collect()).await?;
        let texts = |snapshots: &BTreeMap<S::Key, Snapshot>,
                     is: Taking|
         -> Vec<(String, Snapshot)> {
            let here = snapshots.iter();
            let here = here.filter(|(key, _)| taking.get(*key).copied().unwrap_or_default() == is);
            here.map(|(key, snapshot)| (key.to_string(), snapshot.clone())).collect()
        };
        let of = ledger_page.ledger_key();
        undo.record(of, &texts(&along, Taking::Along), Taking::Along)?;
        for is in Taking::ALL {
            undo.record(of, &texts(&own, is), is)?;
        }
        Ok::<_, Failure>(Recorded { along: along.into_keys().collect(), own })
    };
    snapshots.await.unwrap_or_else(|failure| {
        let why =
            format!("the objects that are deleted along could not be recorded: {}", failure.error);
        plan.hold(HeldBy::Ledger, |plan, step| {
            let mut is_recorded = !step.takes().is_empty();
            step.records(&plan.desired, &mut |_, _| is_recorded = true);
            is_recorded.then(|| why.clone())
        });
        Recorded::default()
    })
}

/// What a pass has put on the undo list.
#[derive(Educe)]
#[educe(Default)]
struct Recorded<S: Source> {
    /// Of other owners.
    along: BTreeSet<S::Key>,
    /// Of ours, as it was before the steps.
    own: BTreeMap<S::Key, Snapshot>,
}

/// Takes what is still there off the undo list. Where that cannot be seen, or not be written, the list stays too long,
/// which is harmless unless an owner deletes such an object later.
async fn strike_kept<S: Source>(
    input: &PassInput<'_, S>,
    observer: &mut Observer<S>,
    ledger_page: &LedgerPage<S>,
    recorded: &Recorded<S>,
) {
    let Some(undo) = &input.config.undo else { return };
    let Recorded { along, own } = recorded;
    let keys = along.iter().chain(own.keys()).cloned().collect();
    if let Ok(now) = observer.snapshots(&keys).await {
        // Ours may have been made again under its key.
        let is_kept = |key: &S::Key, now: &Snapshot| own.get(key).is_none_or(|then| then == now);
        let kept = now.iter().filter(|(key, now)| is_kept(key, now));
        let kept: Vec<String> = kept.map(|(key, _)| key.to_string()).collect();
        if !kept.is_empty() {
            let _ = undo.strike(ledger_page.ledger_key(), &kept);
        }
    }
}
