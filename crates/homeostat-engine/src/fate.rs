//! What all steps of one key together mean for its record.

use std::collections::BTreeMap;

use homeostat_core::{Action, Outcome, Plan, Record, Source, Step, Tally};

/// The records that stood before the steps of a key announced their intent.
pub(crate) type Prior<S> = BTreeMap<<S as Source>::Key, Option<Record<<S as Source>::Object>>>;

/// What became of one key.
pub(crate) enum Fate<O> {
    /// Something was written: the object is ours, whatever became of later steps.
    Written {
        /// What the target keeps in place of it.
        settled: Option<O>,
    },
    /// Nobody knows whether anything was written.
    Open,
    /// It was removed and not made again.
    Removed,
    /// Nothing was written.
    Untouched,
}

/// The fates of the keys that announced an intent.
pub(crate) fn fates<'a, S: Source>(
    plan: &'a Plan<S>,
    tally: &'a Tally<S::Object>,
    prior: &Prior<S>,
) -> BTreeMap<S::Key, Fate<S::Object>> {
    let mut fates: BTreeMap<S::Key, Fate<S::Object>> = BTreeMap::new();
    if prior.is_empty() {
        return fates;
    }
    for (at, step) in plan.steps.iter().enumerate() {
        let key = step.key(&plan.desired);
        if prior.contains_key(&key) {
            let former = fates.remove(&key).unwrap_or(Fate::Untouched);
            fates.insert(key, former.then(step.action(), answer(tally, at)));
        }
    }
    fates
}

fn answer<O: Clone>(tally: &Tally<O>, at: usize) -> Option<Outcome<O>> {
    let applied = tally.is_applied(at).then_some(Outcome::Applied { now: None });
    applied.or_else(|| tally.other(at).cloned())
}

impl<O> Fate<O> {
    fn then(self, action: Action, outcome: Option<Outcome<O>>) -> Self {
        match outcome {
            Some(Outcome::Applied { .. } | Outcome::Settled { .. }) if action == Action::Delete => {
                Fate::Removed
            }
            Some(Outcome::Applied { .. }) => Fate::Written { settled: None },
            Some(Outcome::Settled { held }) => Fate::Written { settled: Some(held) },
            Some(Outcome::Unknown { .. } | Outcome::Waiting { .. }) | None => self.or_open(),
            Some(_) => self.unsettled(),
        }
    }

    fn or_open(self) -> Self {
        match self.unsettled() {
            Fate::Untouched | Fate::Removed => Fate::Open,
            known => known,
        }
    }

    /// What is half written is nothing that a target settled for.
    fn unsettled(self) -> Self {
        match self {
            Fate::Written { .. } => Fate::Written { settled: None },
            other => other,
        }
    }
}
