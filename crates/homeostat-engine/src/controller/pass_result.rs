//! The result of a pass, in what the loop needs of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_core::pacing::Time;
use homeostat_core::{
    Explain as _, Fails, Failure, Finding, Fingerprint, Plan, Report, Retry, SharedReport, Source,
    Step as _,
};

use super::open::{OpenKey, OpenReasons};
use super::scheduler::PassFeedback;

/// A pass that could be made.
pub(super) struct PassResult<S: Source> {
    pub(super) feedback: PassFeedback<S::Key>,
    /// The keys that the pass left not as declared.
    pub(super) open: Vec<(S::Key, OpenKey)>,
    pub(super) applied: usize,
    /// Why its outcomes could not be recorded, or why records cannot be read of which it is not known which keys they
    /// are about.
    pub(super) unrecorded: Option<Failure>,
    pub(super) report: SharedReport,
}

impl<S: Source> PassResult<S> {
    /// A pass that only planned.
    pub(super) fn planned(plan: Plan<S>, reasons: &mut OpenReasons, now: Time) -> Self {
        let steps = plan.steps.iter();
        let mut open: Vec<_> =
            steps.map(|step| (step.key(&plan.desired), reasons.drifted(now))).collect();
        open.extend(open_in(&plan, reasons, now));
        let unrecorded = plan.broken_record().cloned();
        let (feedback, report) = (PassFeedback::default(), Arc::new(plan));
        PassResult { feedback, open, applied: 0, unrecorded, report }
    }

    /// `deferred` are keys that the scheduler left alone.
    pub(super) fn applied(
        report: Report<S>,
        deferred: BTreeSet<S::Key>,
        reasons: &mut OpenReasons,
        now: Time,
    ) -> Self {
        let mut feedback = PassFeedback { deferred, ..PassFeedback::default() };
        let mut open = Vec::new();
        for (key, finding) in report.step_findings() {
            let Some(open_key) = reasons.open(&finding, now) else { continue };
            open.push((key.clone(), open_key));
            match finding {
                Finding::Failed { failure, .. } => _ = feedback.failed.insert(key, failure.retry),
                Finding::NotShown { failure, .. } => {
                    feedback.missed.insert(key, Fingerprint::of_object(&failure.error));
                }
                Finding::Unknown { .. } => _ = feedback.failed.insert(key, Retry::Soon),
                Finding::Pending { .. } if S::FAILS == Fails::Lanes => {
                    feedback.waiting.insert(key);
                }
                _ => {}
            }
        }
        for (key, finding) in &report.plan().findings {
            if let Finding::Failed { failure, .. } = finding {
                feedback.failed.insert(key.clone(), failure.retry);
            }
        }
        open.extend(open_in(report.plan(), reasons, now));
        PassResult {
            applied: report.summary().total(),
            feedback,
            open,
            unrecorded: report.unrecorded_failure().or(report.plan().broken_record()).cloned(),
            report: Arc::new(report),
        }
    }
}

/// The keys that a plan leaves open without a step.
fn open_in<S: Source>(
    plan: &Plan<S>,
    reasons: &mut OpenReasons,
    now: Time,
) -> impl Iterator<Item = (S::Key, OpenKey)> {
    let findings = plan.findings.iter();
    findings.filter_map(move |(key, finding)| Some((key.clone(), reasons.open(finding, now)?)))
}
