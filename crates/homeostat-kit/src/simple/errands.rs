//! What has to be looked at again at some moment: work that the target accepted, and writes that it
//! put off.
//!
//! It is shared by the two sides of an adapted API. The writer notes an errand; the reader hints at
//! its key when it is due, and until accepted work is over it says that the key is *unknown*, so that
//! nothing is sent twice. It is kept in memory only: after a crash the look at the target decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homeostat_engine::Failure;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The first pause before accepted work is asked for; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why a key is looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// The target works on it, under this name.
    Task(String),
    /// The target accepted it, and asked to be left alone for a while.
    Recheck,
    /// Nothing was written; the target asked to come back.
    Retry,
}

/// One entry: when it is due, how often it was asked for, and whether a hint went out.
struct Noted {
    errand: Errand,
    due: Instant,
    asked: u32,
    is_hinted: bool,
}

/// The errands of one adapted API.
pub(super) struct Errands<K> {
    noted: Mutex<Board<K>>,
    changed: Notify,
}

struct Board<K> {
    errands: BTreeMap<K, Noted>,
    /// Tasks that failed, until a write of their key can answer with it.
    failed: BTreeMap<K, Failure>,
    /// Keys that were written since they were last looked at.
    written: BTreeSet<K>,
}

impl<K> Default for Errands<K> {
    fn default() -> Self {
        let board =
            Board { errands: BTreeMap::new(), failed: BTreeMap::new(), written: BTreeSet::new() };
        Errands { noted: Mutex::new(board), changed: Notify::new() }
    }
}

impl<K: Ord + Clone> Errands<K> {
    fn board(&self) -> MutexGuard<'_, Board<K>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an errand; a task is asked for soon, whatever `after` says.
    pub(super) fn note(&self, key: K, errand: Errand, after: Duration) {
        let after = if matches!(errand, Errand::Task(_)) { FIRST_PAUSE } else { after };
        let noted = Noted { errand, due: Instant::now() + after, asked: 0, is_hinted: false };
        self.board().errands.insert(key, noted);
        self.changed.notify_one();
    }

    /// The work that the target has accepted for keys in question and that may still go on. Errands
    /// that are over by now are forgotten.
    pub(super) fn accepted(&self, covers: impl Fn(&K) -> bool) -> Vec<(K, Errand)> {
        let now = Instant::now();
        let mut board = self.board();
        board.errands.retain(|key, noted| {
            matches!(noted.errand, Errand::Task(_)) || noted.due > now || !covers(key)
        });
        let going_on = board.errands.iter().filter(|(key, noted)| {
            covers(key) && matches!(noted.errand, Errand::Task(_) | Errand::Recheck)
        });
        going_on.map(|(key, noted)| (key.clone(), noted.errand.clone())).collect()
    }

    /// The task of a key goes on: it is asked for again after a pause that grows.
    pub(super) fn goes_on(&self, key: &K) {
        if let Some(noted) = self.board().errands.get_mut(key) {
            let pause = FIRST_PAUSE.saturating_mul(1 << noted.asked.min(16)).min(LONGEST_PAUSE);
            (noted.due, noted.is_hinted) = (Instant::now() + pause, false);
            noted.asked += 1;
        }
        self.changed.notify_one();
    }

    /// The task of a key is over.
    pub(super) fn over(&self, key: &K, failure: Option<Failure>) {
        let mut board = self.board();
        board.errands.remove(key);
        board.failed.extend(failure.map(|failure| (key.clone(), failure)));
    }

    /// Why the last task of a key failed, told once: the write that it was for answers with it.
    pub(super) fn take_failure(&self, key: &K) -> Option<Failure> {
        self.board().failed.remove(key)
    }

    /// Keys were written, or still have to be looked at: what is remembered of them is no longer so.
    pub(super) fn wrote(&self, keys: impl IntoIterator<Item = K>) {
        self.board().written.extend(keys);
    }

    /// The keys that were written since they were last looked at.
    pub(super) fn take_written(&self) -> BTreeSet<K> {
        std::mem::take(&mut self.board().written)
    }

    /// Waits until errands are due, and names their keys. Dropping the future loses nothing.
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
        let mut board = self.board();
        let mut due = Vec::new();
        let mut next = None;
        for (key, noted) in board.errands.iter_mut().filter(|(_, noted)| !noted.is_hinted) {
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

/// An idle timer never ends.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
