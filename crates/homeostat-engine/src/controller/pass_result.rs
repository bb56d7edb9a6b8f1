//! The result of a pass, in what the loop needs of it.

use std::sync::Arc;

use homeostat_core::{
    Explain as _, Fails, Finding, Fingerprint, Kind, Plan, Report, Retry, SharedReport, Source,
    Step as _,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenKey {
    pub(super) kind: Kind,
    /// Whether it waits for something that ends by itself.
    pub(super) ends_by_itself: bool,
    /// Who changed it, where the target says so.
    pub(super) by: Option<Arc<str>>,
}

impl OpenKey {
    /// Nothing if the key is as declared.
    fn of<O: Clone>(finding: &Finding<O>) -> Option<Self> {
        let ends_by_itself = matches!(finding, Finding::Pending { on } if on.ends_by_itself());
        finding.is_open().then(|| OpenKey { ends_by_itself, ..finding.kind().into() })
    }
}

impl From<Kind> for OpenKey {
    fn from(kind: Kind) -> Self {
        OpenKey { kind, ends_by_itself: false, by: None }
    }
}

impl<S: Source> PassResult<S> {
    /// A pass that only planned.
    pub(super) fn planned(plan: Plan<S>, holds_removals: bool) -> Self {
        let mut open: Vec<_> =
            plan.steps.iter().map(|step| (step.key(&plan.desired), Kind::Change.into())).collect();
        open.extend(open_in(&plan));
        let (feedback, report) = (PassFeedback::default(), Arc::new(plan));
        let (applied, failed, is_recorded) = (0, 0, true);
        PassResult { feedback, open, applied, failed, is_recorded, holds_removals, report }
    }

    /// `deferred` are keys that the scheduler left alone.
    pub(super) fn applied(report: Report<S>, deferred: Vec<S::Key>, holds_removals: bool) -> Self {
        let (mut feedback, mut open) = (PassFeedback::default(), Vec::new());
        feedback.held.extend(deferred);
        for (key, finding) in report.step_findings() {
            let Some(open_key) = OpenKey::of(&finding) else { continue };
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
        open.extend(open_in(report.plan()));
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

/// The keys that a plan leaves open without a step.
fn open_in<S: Source>(plan: &Plan<S>) -> impl Iterator<Item = (S::Key, OpenKey)> {
    plan.findings.iter().filter_map(|(key, finding)| Some((key.clone(), OpenKey::of(finding)?)))
}
