//! How the work ended that the target did by itself, after the passes that began it: told, counted, and tried
//! again after a pause where it failed.

use std::collections::{BTreeMap, BTreeSet};

use homeostat_core::{Failure, Focus, Kind, Retry, Source, TaskEnd};

use super::Keeper;
use super::event::What;
use super::made::Made;
use super::status::Counted;
use super::wakeup::Wakeup;
use crate::config::Fence;
use crate::operations::Landing;

impl<S: Source> Keeper<S> {
    /// Work has ended, or lanes came free: that is worth a look, unless it failed. Then the next try waits.
    pub(super) fn hear_news(&mut self, mut keys: BTreeSet<S::Key>) {
        let failed = self.note_landed();
        keys.retain(|key| !failed.contains(key));
        if let Fence::Kept(operations) = &self.bound.config.fence {
            // Commands need not wait for that try.
            operations.let_go(|key| failed.contains(key));
        }
        if !keys.is_empty() {
            self.wake(Wakeup::Hint(keys.into_iter().collect()));
        }
    }

    /// Takes in how work ended; tells the keys for which it failed, or nobody knows.
    pub(super) fn note_landed(&mut self) -> BTreeSet<S::Key> {
        let Fence::Kept(operations) = &self.bound.config.fence else { return BTreeSet::new() };
        let mut failed = BTreeMap::new();
        for (key, Landing { told, ended }) in operations.take_landed() {
            self.landed.remove(&key);
            match (ended, told) {
                (TaskEnd::Failed(why), told) => {
                    let (action, text) = (told.map(|(action, _)| action), key.to_string());
                    let failure = Failure::new(why, Retry::Soon);
                    self.tell(What::StepFailed { action, key: text, failure });
                    failed.insert(key, Kind::Failed);
                }
                (TaskEnd::Unknown(_), _) => _ = failed.insert(key, Kind::Unknown),
                (TaskEnd::Succeeded, Some(told)) => _ = self.landed.insert(key, told),
                // One of an earlier life is in the journal; one that was given up is asked about.
                (TaskEnd::Succeeded, None) | (TaskEnd::GivenUp(_), _) => {}
            }
        }
        let keys = failed.keys().cloned().collect();
        self.note_failed(failed);
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
        self.unsettled.extend(failed);
        let open = Counted::of(self.unsettled.values());
        self.status.send_modify(|status| {
            (status.is_converged, status.open) = (false, open);
            status.counts.failed += counted;
        });
    }

    /// What was done is told after a look, unless that shows otherwise: then it is tried again, but not for ever
    /// at once. A look that could not see the key, or not all of it, says nothing against the target's word.
    pub(super) fn tell_shown(&mut self, focus: &Focus<S::Key>, made: &Made<S>) {
        let seen: Vec<_> = self.landed.extract_if(.., |key, _| focus.covers(key)).collect();
        let (mut counted, now) = (0, self.now());
        for (key, (action, cause)) in seen {
            let is_shown = match self.unsettled.get(&key) {
                None => true,
                // Written anew, and nobody knows what became of that: it did not show.
                Some(Kind::Unknown) => !made.facts.failed.contains_key(&key),
                Some(_) => false,
            };
            if is_shown {
                self.tell(What::StepApplied { action, key: key.to_string(), cause });
                counted += 1;
            } else {
                self.agenda.missed(key, now);
            }
        }
        if counted > 0 {
            self.status.send_modify(|status| status.counts.applied += counted);
        }
    }
}
