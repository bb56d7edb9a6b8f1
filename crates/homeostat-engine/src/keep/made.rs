//! What a pass that could be made means for the next one.

use std::sync::Arc;

use homeostat_core::{
    Action, Explain, Failure, Kind, Outcome, Plan, Report, Retry, Source, Step as _,
};

use super::agenda::Facts;

/// A pass that could be made.
pub(super) enum Made<S: Source> {
    Planned(Plan<S>),
    Applied(Report<S>),
}

impl<S: Source> Made<S> {
    fn plan(&self) -> &Plan<S> {
        match self {
            Made::Planned(plan) => plan,
            Made::Applied(report) => report.plan(),
        }
    }

    pub(super) fn is_recorded(&self) -> bool {
        match self {
            Made::Planned(_) => true,
            Made::Applied(report) => report.is_recorded(),
        }
    }

    pub(super) fn holds_removals(&self) -> bool {
        self.plan().held.iter().any(|held| held.step.action() == Action::Delete)
    }

    pub(super) fn explain(self) -> Arc<dyn Explain + Send + Sync> {
        match self {
            Made::Planned(plan) => Arc::new(plan),
            Made::Applied(report) => Arc::new(report),
        }
    }

    pub(super) fn facts(&self) -> Facts<S::Key> {
        let mut facts = Facts::default();
        let Made::Applied(report) = self else { return facts };
        let plan = report.plan();
        for (at, outcome) in report.tally().others() {
            let Some(step) = plan.steps.get(at) else { continue };
            let key = step.key(&plan.wish);
            match outcome {
                Outcome::Failed(failure) => _ = facts.failed.insert(key, failure.retry),
                Outcome::Unkept(failure) => _ = facts.missed.insert(key, print(failure)),
                Outcome::Unknown { .. } => _ = facts.failed.insert(key, Retry::Soon),
                _ => {}
            }
        }
        let refused = plan.refused.iter().map(|one| (one.key.clone(), one.failure.retry));
        facts.failed.extend(refused);
        facts
    }

    /// The keys that are not as declared, and why.
    pub(super) fn open(&self, tell: &mut dyn FnMut(S::Key, Kind)) {
        let plan = self.plan();
        let key = |step: &S::Step| step.key(&plan.wish);
        match self {
            Made::Planned(_) => plan.steps.iter().for_each(|step| tell(key(step), Kind::Change)),
            Made::Applied(report) => {
                for (at, outcome) in report.tally().others() {
                    let (Some(step), Some(kind)) = (plan.steps.get(at), kind(outcome)) else {
                        continue;
                    };
                    tell(key(step), kind);
                }
            }
        }
        plan.held.iter().for_each(|held| tell(key(&held.step), Kind::Held));
        plan.refused.iter().for_each(|one| tell(one.key.clone(), Kind::Failed));
        plan.pending.iter().for_each(|one| tell(one.key.clone(), Kind::Pending));
        plan.found.conflicts.iter().for_each(|one| tell(one.key.clone(), Kind::Conflict));
        plan.found.unknown.iter().for_each(|(key, _)| tell(key.clone(), Kind::Unknown));
    }
}

/// Which list of a report an outcome belongs to; nothing for good ones.
fn kind<O>(outcome: &Outcome<O>) -> Option<Kind> {
    match outcome {
        Outcome::Applied { .. } | Outcome::Settled { .. } => None,
        Outcome::Conflict { .. } => Some(Kind::Conflict),
        Outcome::Failed(_) | Outcome::Unkept(_) => Some(Kind::Failed),
        Outcome::Unknown { .. } => Some(Kind::Unknown),
        Outcome::Pending { .. } | Outcome::Waiting { .. } => Some(Kind::Pending),
    }
}

/// A digest of a failure's words, to tell whether it is the same again.
fn print(failure: &Failure) -> u64 {
    homeostat_core::Fingerprint::of_object(&failure.error)
}
