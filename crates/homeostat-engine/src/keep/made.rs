//! What a pass that could be made means for the next one.

use std::sync::Arc;

use homeostat_core::{
    Explain as _, Fails, Failure, Kind, Outcome, Plan, Report, Retry, SharedReport, Source,
    Step as _, WaitsOn,
};

use super::wakeup::Facts;

/// A pass that could be made, in what the loop needs of it.
pub(super) struct Made<S: Source> {
    pub(super) facts: Facts<S::Key>,
    /// The keys that are not as declared, and why.
    pub(super) open: Vec<(S::Key, OpenKey)>,
    /// How many steps were applied, and how many were not.
    pub(super) counted: (usize, usize),
    pub(super) is_recorded: bool,
    pub(super) holds_removals: bool,
    pub(super) told: SharedReport,
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

/// What was held back.
pub(super) struct Held<K> {
    /// Keys that have to wait.
    pub(super) keys: Vec<K>,
    /// Whether a guard holds the removals.
    pub(super) removals: bool,
}

impl<S: Source> Made<S> {
    /// A pass that only looked.
    pub(super) fn planned(plan: Plan<S>, holds_removals: bool) -> Self {
        let mut open: Vec<_> =
            plan.steps.iter().map(|step| (step.key(&plan.desired), Kind::Change.into())).collect();
        found(&plan, &mut |key, finding| open.push((key, finding)));
        let (facts, counted) = (Facts::default(), (0, 0));
        let told = Arc::new(plan);
        Made { facts, open, counted, is_recorded: true, holds_removals, told }
    }

    /// A pass that wrote.
    pub(super) fn applied(report: Report<S>, held: Held<S::Key>) -> Self {
        let mut facts = facts(&report);
        facts.held.extend(held.keys);
        let (plan, mut open) = (report.plan(), Vec::new());
        for (at, outcome) in report.tally().others() {
            let (Some(step), Some(finding)) = (plan.steps.get(at), open_key(outcome)) else {
                continue;
            };
            open.push((step.key(&plan.desired), finding));
        }
        found(plan, &mut |key, finding| open.push((key, finding)));
        Made {
            counted: (report.summary().total(), facts.failed.len() + facts.missed.len()),
            facts,
            open,
            is_recorded: report.is_recorded(),
            holds_removals: held.removals,
            told: Arc::new(report),
        }
    }
}

fn facts<S: Source>(report: &Report<S>) -> Facts<S::Key> {
    let mut facts = Facts::default();
    let plan = report.plan();
    for (at, outcome) in report.tally().others() {
        let Some(step) = plan.steps.get(at) else { continue };
        let key = step.key(&plan.desired);
        match outcome {
            Outcome::Failed(failure) => _ = facts.failed.insert(key, failure.retry),
            Outcome::Unkept(failure) => _ = facts.missed.insert(key, print(failure)),
            Outcome::Unknown { .. } => _ = facts.failed.insert(key, Retry::Soon),
            Outcome::Pending { .. } | Outcome::Waiting { .. } if S::FAILS == Fails::Lanes => {
                facts.waiting.insert(key);
            }
            _ => {}
        }
    }
    let refused = plan.refused.iter().map(|one| (one.key.clone(), one.failure.retry));
    facts.failed.extend(refused);
    facts
}

/// What a plan will not do.
fn found<S: Source>(plan: &Plan<S>, tell: &mut dyn FnMut(S::Key, OpenKey)) {
    plan.held.iter().for_each(|held| tell(held.step.key(&plan.desired), Kind::Held.into()));
    plan.refused.iter().for_each(|one| tell(one.key.clone(), Kind::Failed.into()));
    plan.pending.iter().for_each(|one| tell(one.key.clone(), OpenKey::waits(&one.on)));
    plan.found.conflicts.iter().for_each(|one| tell(one.key.clone(), Kind::Conflict.into()));
    plan.found.unknown.iter().for_each(|(key, _)| tell(key.clone(), Kind::Unknown.into()));
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

/// A digest of a failure's words, to tell whether it is the same again.
fn print(failure: &Failure) -> u64 {
    homeostat_core::Fingerprint::of_object(&failure.error)
}
