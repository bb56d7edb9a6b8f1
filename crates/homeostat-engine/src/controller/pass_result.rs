//! The result of a pass, in what the loop needs of it.

use std::sync::Arc;

use homeostat_core::{
    Explain as _, Fails, Failure, Kind, Outcome, Plan, Report, Retry, SharedReport, Source,
    Step as _, WaitsOn,
};

use super::scheduler::PassFeedback;

/// A pass that could be made.
pub(super) struct PassResult<S: Source> {
    pub(super) feedback: PassFeedback<S::Key>,
    /// The keys that the pass left not as declared.
    pub(super) open: Vec<(S::Key, OpenKey)>,
    pub(super) applied: usize,
    /// Steps that failed, or do not show.
    pub(super) failed: usize,
    pub(super) is_recorded: bool,
    pub(super) holds_removals: bool,
    pub(super) report: SharedReport,
}

/// Why a key is not as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenKey {
    pub(super) kind: Kind,
    /// Whether it waits for something that ends by itself.
    pub(super) ends_by_itself: bool,
}

impl OpenKey {
    fn waits(on: &WaitsOn) -> Self {
        OpenKey { kind: Kind::Pending, ends_by_itself: on.ends_by_itself() }
    }
}

impl From<Kind> for OpenKey {
    fn from(kind: Kind) -> Self {
        OpenKey { kind, ends_by_itself: false }
    }
}

impl<S: Source> PassResult<S> {
    /// A pass that only planned.
    pub(super) fn planned(plan: Plan<S>, holds_removals: bool) -> Self {
        let mut open: Vec<_> =
            plan.steps.iter().map(|step| (step.key(&plan.desired), Kind::Change.into())).collect();
        open_in_plan(&plan, &mut |key, finding| open.push((key, finding)));
        let (feedback, report) = (PassFeedback::default(), Arc::new(plan));
        let (applied, failed, is_recorded) = (0, 0, true);
        PassResult { feedback, open, applied, failed, is_recorded, holds_removals, report }
    }

    /// `deferred` are keys that the scheduler left alone.
    pub(super) fn applied(report: Report<S>, deferred: Vec<S::Key>, holds_removals: bool) -> Self {
        let mut feedback = feedback(&report);
        feedback.held.extend(deferred);
        let (plan, mut open) = (report.plan(), Vec::new());
        for (at, outcome) in report.tally().others() {
            let (Some(step), Some(finding)) = (plan.steps.get(at), open_key(outcome)) else {
                continue;
            };
            open.push((step.key(&plan.desired), finding));
        }
        open_in_plan(plan, &mut |key, finding| open.push((key, finding)));
        PassResult {
            applied: report.summary().total(),
            failed: feedback.failed.len() + feedback.missed.len(),
            feedback,
            open,
            is_recorded: report.is_recorded(),
            holds_removals,
            report: Arc::new(report),
        }
    }
}

fn feedback<S: Source>(report: &Report<S>) -> PassFeedback<S::Key> {
    let mut feedback = PassFeedback::default();
    let plan = report.plan();
    for (at, outcome) in report.tally().others() {
        let Some(step) = plan.steps.get(at) else { continue };
        let key = step.key(&plan.desired);
        match outcome {
            Outcome::Failed(failure) => _ = feedback.failed.insert(key, failure.retry),
            Outcome::Unkept(failure) => _ = feedback.missed.insert(key, fingerprint(failure)),
            Outcome::Unknown { .. } => _ = feedback.failed.insert(key, Retry::Soon),
            Outcome::Pending { .. } | Outcome::Waiting { .. } if S::FAILS == Fails::Lanes => {
                feedback.waiting.insert(key);
            }
            _ => {}
        }
    }
    let refused = plan.refused.iter().map(|one| (one.key.clone(), one.failure.retry));
    feedback.failed.extend(refused);
    feedback
}

/// The keys that a plan leaves open.
fn open_in_plan<S: Source>(plan: &Plan<S>, put: &mut dyn FnMut(S::Key, OpenKey)) {
    plan.held.iter().for_each(|held| put(held.step.key(&plan.desired), Kind::Held.into()));
    plan.refused.iter().for_each(|one| put(one.key.clone(), Kind::Failed.into()));
    plan.pending.iter().for_each(|one| put(one.key.clone(), OpenKey::waits(&one.on)));
    plan.found.conflicts.iter().for_each(|one| put(one.key.clone(), Kind::Conflict.into()));
    plan.found.unknown.iter().for_each(|(key, _)| put(key.clone(), Kind::Unknown.into()));
}

/// Which list of a report an outcome belongs to; nothing for good ones.
fn open_key<O>(outcome: &Outcome<O>) -> Option<OpenKey> {
    match outcome {
        Outcome::Applied { .. } | Outcome::Settled { .. } => None,
        Outcome::Conflict { .. } => Some(Kind::Conflict.into()),
        Outcome::Failed(_) | Outcome::Unkept(_) => Some(Kind::Failed.into()),
        Outcome::Unknown { .. } => Some(Kind::Unknown.into()),
        Outcome::Pending { on } => Some(OpenKey::waits(on)),
        Outcome::Waiting { .. } => Some(OpenKey { kind: Kind::Pending, ends_by_itself: true }),
    }
}

/// Tells whether a failure is the same again.
fn fingerprint(failure: &Failure) -> u64 {
    homeostat_core::Fingerprint::of_object(&failure.error)
}
