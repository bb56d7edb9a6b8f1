//! Keys to look at again later: writes that the target accepted, and writes that it put off.
//!
//! Both sides of an adapted API share it. The writer notes a follow-up; the reader hints at its key when it is due,
//! and reports the key as *unknown* until accepted work is over, so that nothing is sent twice. It is kept in memory
//! only: after a crash the look at the target decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use educe::Educe;
use homeostat_engine::Failure;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first pause before accepted work is asked for, or a write is tried again that was put off; each later one is
/// twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why a key is looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FollowUp {
    /// The target works on it, under this name.
    Task(String),
    /// The target accepted it, and asked to be left alone for a while.
    Recheck,
    /// Nothing was written; the target asked to come back.
    Retry,
}

/// One entry: when it is due, how often it was asked for, and whether a hint went out.
struct Noted {
    follow_up: FollowUp,
    due: Instant,
    asked: u32,
    is_hinted: bool,
}

/// The follow-ups of one adapted API.
#[derive(Educe)]
#[educe(Default)]
pub(super) struct FollowUps<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

#[derive(Educe)]
#[educe(Default)]
struct State<K> {
    noted: BTreeMap<K, Noted>,
    /// Tasks that failed, until a write of their key can answer with it.
    failed: BTreeMap<K, Failure>,
    /// Keys that were written since they were last looked at.
    written: BTreeSet<K>,
    /// How often in a row the target put a key off.
    put_off: BTreeMap<K, u32>,
    /// Keys that the target refuses until there is an object under another key.
    waiting: BTreeMap<K, BTreeSet<K>>,
}

impl<K: Ord + Clone> FollowUps<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a follow-up. A task is asked for soon, whatever `after` says; a write that is put off again and again is
    /// tried less and less often.
    pub(super) fn note(&self, key: K, follow_up: FollowUp, after: Duration) {
        let after = match follow_up {
            FollowUp::Task(_) => FIRST_PAUSE,
            FollowUp::Recheck => after,
            FollowUp::Retry => {
                let mut state = self.state();
                let count = state.put_off.entry(key.clone()).or_default();
                let pause = pause(*count);
                *count = count.saturating_add(1);
                after.max(pause)
            }
        };
        let noted = Noted { follow_up, due: Instant::now() + after, asked: 0, is_hinted: false };
        self.state().noted.insert(key, noted);
        self.changed.notify_one();
    }

    /// The work that the target has accepted for keys in question and that may still go on. Follow-ups
    /// that are over by now are forgotten.
    pub(super) fn accepted(&self, covers: impl Fn(&K) -> bool) -> Vec<(K, FollowUp)> {
        let now = Instant::now();
        let mut state = self.state();
        state.noted.retain(|key, noted| {
            matches!(noted.follow_up, FollowUp::Task(_)) || noted.due > now || !covers(key)
        });
        let going_on = state.noted.iter().filter(|(key, noted)| {
            covers(key) && matches!(noted.follow_up, FollowUp::Task(_) | FollowUp::Recheck)
        });
        going_on.map(|(key, noted)| (key.clone(), noted.follow_up.clone())).collect()
    }

    /// The task of a key goes on: it is asked for again after a pause that grows.
    pub(super) fn goes_on(&self, key: &K) {
        if let Some(noted) = self.state().noted.get_mut(key) {
            (noted.due, noted.is_hinted) = (Instant::now() + pause(noted.asked), false);
            noted.asked += 1;
        }
        self.changed.notify_one();
    }

    /// The task of a key is over.
    pub(super) fn over(&self, key: &K, failure: Option<Failure>) {
        let mut state = self.state();
        state.noted.remove(key);
        state.failed.extend(failure.map(|failure| (key.clone(), failure)));
    }

    /// Why the last task of a key failed. It is returned once: the next write of the key answers with it.
    pub(super) fn take_failure(&self, key: &K) -> Option<Failure> {
        self.state().failed.remove(key)
    }

    /// A key was written: it is not put off any more, and what waits for it may work now.
    pub(super) fn written(&self, key: &K) {
        self.state().put_off.remove(key);
        for waiting in self.take_waiting(key) {
            self.note_due(waiting);
        }
    }

    /// The target refuses a key until there is an object under `need`.
    pub(super) fn waits_on(&self, key: K, need: K) {
        self.state().waiting.entry(need).or_default().insert(key);
    }

    /// The keys that the target refuses until there is an object under this one: it may be there now.
    pub(super) fn take_waiting(&self, need: &K) -> BTreeSet<K> {
        self.state().waiting.remove(need).unwrap_or_default()
    }

    fn note_due(&self, key: K) {
        let (follow_up, due) = (FollowUp::Retry, Instant::now());
        self.state().noted.insert(key, Noted { follow_up, due, asked: 0, is_hinted: false });
        self.changed.notify_one();
    }

    /// Keys were written, or still have to be looked at: what is remembered of them is out of date.
    pub(super) fn wrote(&self, keys: impl IntoIterator<Item = K>) {
        self.state().written.extend(keys);
    }

    /// The keys that were written since they were last looked at.
    pub(super) fn take_written(&self) -> BTreeSet<K> {
        std::mem::take(&mut self.state().written)
    }

    /// Waits until follow-ups are due, and names their keys. Dropping the future loses nothing.
    pub(super) async fn due(&self) -> Vec<K> {
        loop {
            let (due, next) = self.take_due(Instant::now());
            if !due.is_empty() {
                return due;
            }
            tokio::select! {
                () = until(next) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    fn take_due(&self, now: Instant) -> (Vec<K>, Option<Instant>) {
        let mut state = self.state();
        let mut due = Vec::new();
        let mut next = None;
        for (key, noted) in state.noted.iter_mut().filter(|(_, noted)| !noted.is_hinted) {
            if noted.due <= now {
                noted.is_hinted = true;
                due.push(key.clone());
            } else {
                next = Some(next.map_or(noted.due, |next: Instant| next.min(noted.due)));
            }
        }
        (due, next)
    }
}

/// The pause before the next try, after so many.
fn pause(tries: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << tries.min(16)).min(LONGEST_PAUSE)
}

/// An idle timer never ends.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
