//! What a pass tells of itself, step by step, as events.

use homeostat_core::{Entry, Explain, Kind, Source};

use super::Keeper;
use super::event::What;

/// How many steps of one pass are told one by one.
const TOLD: usize = 1000;

impl<S: Source> Keeper<S> {
    /// Tells what became of a pass.
    pub(super) fn tell_steps(&self, told: &dyn Explain) {
        if !self.means.events.is_heard() {
            return;
        }
        let mut count = 0;
        for kind in [Kind::Applied, Kind::Failed, Kind::Conflict] {
            told.explain(kind, &mut |entry| {
                count += 1;
                if let Some(what) = what(entry).filter(|_| count <= TOLD) {
                    self.tell(what);
                }
            });
        }
        if count > TOLD {
            self.tell(What::More { steps: count - TOLD });
        }
    }
}

fn what(entry: Entry) -> Option<What> {
    match entry {
        Entry::Applied(line, cause) => {
            Some(What::StepApplied { action: line.action, key: line.key, cause })
        }
        Entry::Failed { action, key, failure } => Some(What::StepFailed { action, key, failure }),
        Entry::Conflict { key, owner, .. } => {
            Some(What::Conflict { key, owner: owner.to_string() })
        }
        _ => None,
    }
}
