//! What a pass tells of itself, step by step, as events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use homeostat_core::pacing::Time;
use homeostat_core::{Entry, Explain, Fingerprint, Focus, Key, Kind, Source};

use super::Keeper;
use super::event::EventKind;

/// How many steps of one pass are told one by one.
const MOST_STEPS: usize = 1000;

/// How many failures and conflicts of one pass are told one by one.
const MOST_FAILURES: usize = 100;

/// What keeps failing in the same way is told again after this time.
const REPEATED: Duration = Duration::from_hours(1);

/// The failures and conflicts that were told and still last. A failure that is tried again and ends in the
/// same way is no news.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Digests of what was told, by digests of the keys: there may be a million.
    last: HashMap<u64, u64>,
    /// When all of it is told again.
    again: Option<Time>,
}

impl Told {
    /// Whether this is news. A failure or a conflict is none from here on.
    fn is_news(&mut self, what: &EventKind) -> bool {
        let (key, text) = match what {
            EventKind::StepFailed { key, failure, .. } => {
                (key, Fingerprint::of_text(&failure.error))
            }
            EventKind::Conflict { key, owner } => (key, Fingerprint::of_text(owner)),
            _ => return true,
        };
        self.last.insert(Fingerprint::of_text(key), text) != Some(text)
    }

    /// Everything is news again from time to time.
    fn expire(&mut self, now: Time) {
        if self.again.is_none_or(|again| again <= now) {
            self.last.clear();
            self.again = Some(now.after(REPEATED));
        }
    }

    /// A pass over `focus` has ended, and only this is not as declared. What has come right in between is
    /// news if it fails again.
    pub(super) fn keep<K: Key, V>(&mut self, focus: &Focus<K>, unsettled: &BTreeMap<K, V>) {
        if self.last.is_empty() {
            return;
        }
        match focus {
            Focus::All => {
                let still: HashSet<u64> = unsettled.keys().map(Fingerprint::of_text).collect();
                self.last.retain(|key, _| still.contains(key));
            }
            Focus::Keys(keys) => {
                for key in keys.iter().filter(|key| !unsettled.contains_key(key)) {
                    self.last.remove(&Fingerprint::of_text(key));
                }
            }
        }
    }
}

impl<S: Source> Keeper<S> {
    /// Tells what became of a pass. What is not told one by one is counted.
    pub(super) fn tell_steps(&mut self, told: &dyn Explain) {
        if !self.means.events.is_heard() {
            return;
        }
        self.told.expire(self.now());
        let (mut steps, mut failures, mut untold) = (0, 0, 0);
        for kind in [Kind::Applied, Kind::Failed, Kind::Conflict] {
            told.explain(kind, &mut |entry| {
                let Some(what) = what(entry).filter(|what| self.told.is_news(what)) else { return };
                steps += 1;
                failures += usize::from(!matches!(what, EventKind::StepApplied { .. }));
                if steps <= MOST_STEPS && failures <= MOST_FAILURES {
                    self.tell(what);
                } else {
                    untold += 1;
                }
            });
        }
        if untold > 0 {
            self.tell(EventKind::More { steps: untold });
        }
    }
}

fn what(entry: Entry) -> Option<EventKind> {
    match entry {
        Entry::Applied(line, cause) => {
            Some(EventKind::StepApplied { action: line.action, key: line.key, cause })
        }
        Entry::Failed { action, key, failure } => {
            Some(EventKind::StepFailed { action, key, failure })
        }
        Entry::Conflict { key, owner, .. } => {
            Some(EventKind::Conflict { key, owner: owner.to_string() })
        }
        _ => None,
    }
}
