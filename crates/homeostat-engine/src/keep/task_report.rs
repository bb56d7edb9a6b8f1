//! How tasks of the target ended after the pass that sent them, as a report of its own.

use homeostat_core::{Action, Cause, Entry, Explain, Failure, Kind, Line, Summary};

/// Tasks that have ended.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskReport {
    /// Done, and seen to be done.
    pub(super) applied: Vec<(Line, Cause)>,
    pub(super) failed: Vec<(Option<Action>, String, Failure)>,
}

impl TaskReport {
    /// The keys that it speaks of.
    pub(super) fn keys(&self) -> impl Iterator<Item = &String> {
        let applied = self.applied.iter().map(|(line, _)| &line.key);
        applied.chain(self.failed.iter().map(|(_, key, _)| key))
    }
}

impl Explain for TaskReport {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        match kind {
            Kind::Applied => {
                self.applied
                    .iter()
                    .for_each(|(line, cause)| tell(Entry::Applied(line.clone(), *cause)));
            }
            Kind::Failed => self.failed.iter().for_each(|(action, key, failure)| {
                let (key, failure) = (key.clone(), failure.clone());
                tell(Entry::Failed { action: *action, key, failure });
            }),
            _ => {}
        }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        self.applied.iter().for_each(|(line, _)| summary.count(line.action));
        summary
    }

    fn is_converged(&self) -> bool {
        self.failed.is_empty()
    }
}
