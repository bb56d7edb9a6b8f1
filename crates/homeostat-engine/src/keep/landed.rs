//! How the work ended that the target did by itself, after the passes that began it: told, counted, and tried
//! again after a pause where it failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{
    Action, Cause, Covers, Failure, Focus, Kind, Line, Retry, SharedReport, Source, TaskEnd,
    TaskResult,
};

use super::Keeper;
use super::event::EventKind;
use super::made::Made;
use super::status::OpenCounts;
use super::task_report::TaskReport;
use super::wakeup::Wakeup;

/// What the target has done, and no pass has shown yet.
pub(super) struct Landed {
    action: Action,
    cause: Cause,
    /// The target's name for the work.
    task: Option<String>,
}

impl<S: Source> Keeper<S> {
    /// Work has ended, or lanes came free: that is worth a look, unless it failed. Then the next try waits.
    pub(super) fn hear_news(&mut self, mut keys: BTreeSet<S::Key>) {
        let failed = self.note_landed();
        keys.retain(|key| !failed.contains(key));
        // Commands need not wait for that try.
        self.config.dispatch.free_reserved(&failed);
        if !keys.is_empty() {
            self.wake(Wakeup::Hint(keys.into_iter().collect()));
        }
    }

    /// Takes in how work ended; tells the keys for which it failed, or nobody knows.
    pub(super) fn note_landed(&mut self) -> BTreeSet<S::Key> {
        let (mut failed, mut report) = (BTreeMap::new(), TaskReport::default());
        for (key, result) in self.config.dispatch.take_results() {
            let TaskResult { task, change, end } = result;
            self.landed.remove(&key);
            match (end, change) {
                (TaskEnd::Failed(why), told) => {
                    let (action, text) = (told.map(|(action, _)| action), key.to_string());
                    let failure = Failure::new(why, Retry::Soon);
                    report.failed.push((action, text.clone(), failure.clone()));
                    self.tell(EventKind::StepFailed { action, key: text, failure });
                    failed.insert(key, Kind::Failed);
                }
                (TaskEnd::Unknown(why), told) => {
                    let (action, failure) =
                        (told.map(|told| told.0), Failure::new(why, Retry::Soon));
                    report.failed.push((action, key.to_string(), failure));
                    failed.insert(key, Kind::Unknown);
                }
                (TaskEnd::Succeeded, Some((action, cause))) => {
                    self.landed.insert(key, Landed { action, cause, task });
                }
                // One of an earlier life is in the journal; one that was given up is asked about.
                (TaskEnd::Succeeded, None) | (TaskEnd::GivenUp(_), _) => {}
            }
        }
        let keys = failed.keys().cloned().collect();
        self.note_failed(failed);
        if !report.failed.is_empty() {
            let covers = Covers::Keys(report.keys().cloned().collect());
            self.record(&covers, &(Arc::new(report) as SharedReport));
        }
        keys
    }

    fn note_failed(&mut self, failed: BTreeMap<S::Key, Kind>) {
        if failed.is_empty() {
            return;
        }
        let (now, counted) = (self.now(), failed.len() as u64);
        for key in failed.keys() {
            self.agenda.failed(key.clone(), now);
        }
        self.unsettled.extend(failed.into_iter().map(|(key, kind)| (key, kind.into())));
        let open = OpenCounts::of(self.unsettled.values().map(|open| open.kind));
        self.status.send_modify(|status| {
            (status.is_converged, status.open) = (false, open);
            status.counts.failed += counted;
        });
    }

    /// What was done is told after a look, unless that shows otherwise: then it is tried again, but not for ever
    /// at once. A look that could not see the key, or not all of it, says nothing against the target's word.
    pub(super) fn tell_shown(&mut self, focus: &Focus<S::Key>, made: &Made<S>) {
        let seen: Vec<_> = self.landed.extract_if(.., |key, _| focus.covers(key)).collect();
        let (mut report, now) = (TaskReport::default(), self.now());
        for (key, Landed { action, cause, task }) in seen {
            let is_shown = match self.unsettled.get(&key).map(|open| open.kind) {
                None => true,
                // Written anew, and nobody knows what became of that: it did not show.
                Some(Kind::Unknown) => !made.facts.failed.contains_key(&key),
                Some(_) => false,
            };
            if is_shown {
                self.tell(EventKind::StepApplied { action, key: key.to_string(), cause });
                let note = task.map(|task| format!("task {task}"));
                let line = Line { action, key: key.to_string(), before: None, after: None, note };
                report.applied.push((line, cause));
            } else {
                self.agenda.missed(key, now);
            }
        }
        let counted = report.applied.len() as u64;
        if counted > 0 {
            self.status.send_modify(|status| status.counts.applied += counted);
            // Only what was applied: how the key stands, the pass itself says.
            self.record(&Covers::Keys(BTreeSet::new()), &(Arc::new(report) as SharedReport));
        }
    }
}
