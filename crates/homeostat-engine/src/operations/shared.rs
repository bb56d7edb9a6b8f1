//! Lanes, news and what is in doubt, behind one lock; nobody waits while it is held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_core::{Job, Key, Lanes, Limits, Start, Ticket};
use tokio::sync::{Notify, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::Awaits;
use super::flight::Landing;
use super::held::Held;
use super::recovery::Question;
use crate::journal::{Journal, Repeat, Subject};

/// Somebody who waits for a lane.
type Waiter<K> = oneshot::Sender<Held<K>>;

/// What all clones of operations share.
pub(super) struct Shared<K: Key> {
    pub(super) journal: Arc<Journal>,
    pub(super) source: String,
    pub(super) scope: String,
    pub(super) state: Mutex<State<K>>,
    /// Somebody should look at the news, or at what is in flight.
    pub(super) moved: Notify,
    /// What goes on beside the passes. It ends with the value: what is in flight then is found in the
    /// journal.
    pub(super) aside: Mutex<JoinSet<()>>,
}

/// Whose turn it is, and what is known of everybody.
pub(super) struct State<K: Key> {
    pub(super) lanes: Lanes<K, String, Waiter<K>>,
    /// Lanes that came free for a pass which has not come yet.
    pub(super) granted: BTreeMap<K, Held<K>>,
    /// Lanes of keys whose last answer was lost: taken until somebody has asked what became of it.
    pub(super) doubtful: BTreeMap<K, Held<K>>,
    /// What the target was asked about some of them.
    pub(super) questions: BTreeMap<K, Question>,
    /// The tasks that the target works on.
    pub(super) in_flight: BTreeMap<K, String>,
    /// How some of them ended, for the loop to learn from.
    pub(super) landed: BTreeMap<K, Landing>,
    pub(super) news: BTreeSet<K>,
    /// Whether a pass of a loop has begun to look: what comes into the news from then on, it does not know.
    pub(super) is_looking: bool,
    /// Whether lanes are kept for passes that have not come yet.
    pub(super) awaits: Awaits,
    /// Keys that a pass asks for at this moment.
    pub(super) asked: BTreeSet<K>,
}

/// A place in the queue of a key, given up when it is dropped before its turn came.
pub(super) struct InLine<'a, K: Key> {
    pub(super) shared: &'a Arc<Shared<K>>,
    pub(super) key: &'a K,
    pub(super) ticket: Ticket,
}

impl<K: Key> Drop for InLine<'_, K> {
    fn drop(&mut self) {
        let is_withdrawn = self.shared.state().lanes.withdraw(self.key, self.ticket);
        if is_withdrawn {
            // What stood behind it may be for a node with room.
            self.shared.pump();
        }
    }
}

impl<K: Key> State<K> {
    /// Work has ended: that is news, and a loop learns from how.
    pub(super) fn landed(&mut self, key: &K, landing: Landing) {
        if self.awaits != Awaits::Nobody {
            self.landed.insert(key.clone(), landing);
        }
        self.news.insert(key.clone());
    }

    pub(super) fn why_not(&self, key: &K) -> String {
        match self.in_flight.get(key) {
            Some(task) => format!("task {task}"),
            None if self.doubtful.contains_key(key) => "what became of an earlier step".to_owned(),
            None if self.lanes.node_of(key).is_some() => "what is under way for it".to_owned(),
            None => "a free place on its node".to_owned(),
        }
    }
}

impl<K: Key> Shared<K> {
    pub(super) fn new(
        journal: Arc<Journal>,
        (source, scope): (&str, &str),
        limits: Limits,
    ) -> Self {
        let state = State {
            lanes: Lanes::new(limits),
            granted: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            questions: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            landed: BTreeMap::new(),
            news: BTreeSet::new(),
            is_looking: false,
            awaits: Awaits::Nobody,
            asked: BTreeSet::new(),
        };
        Shared {
            journal,
            source: source.to_owned(),
            scope: scope.to_owned(),
            state: Mutex::new(state),
            moved: Notify::new(),
            aside: Mutex::new(JoinSet::new()),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subject(&self, key: &K) -> Subject {
        let Shared { source, scope, .. } = self;
        Subject { source: source.clone(), scope: scope.clone(), key: key.to_string() }
    }

    /// Does something beside the passes.
    pub(super) fn aside(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are only counted.
        while aside.try_join_next().is_some() {}
        aside.spawn(work)
    }

    /// Whether a key was sent something and nobody knows what became of it: the target may work on it.
    fn is_in_doubt(&self, key: &K) -> bool {
        let open = self.journal.open_step(&self.subject(key));
        open.is_some_and(|open| open.intent.repeat == Repeat::Hurts)
    }

    /// Frees a lane, or keeps it until a pass has asked what became of its last step. Where no pass will
    /// come, whoever enters next asks.
    pub(super) fn free(self: &Arc<Self>, key: &K) {
        let is_in_doubt = self.is_in_doubt(key);
        let mut state = self.state();
        if is_in_doubt && state.awaits == Awaits::Passes {
            state.doubtful.insert(key.clone(), Held::new(key.clone(), self));
            state.news.insert(key.clone());
            drop(state);
            self.moved.notify_waiters();
        } else {
            state.lanes.end(key);
            drop(state);
            self.pump();
        }
    }

    /// Gives out lanes as long as some are free and wanted.
    pub(super) fn pump(self: &Arc<Self>) {
        while let Some(Start { key, job, .. }) = self.start() {
            let held = Held::new(key.clone(), self);
            match job {
                Job::Pass => {
                    let mut state = self.state();
                    state.news.insert(key.clone());
                    if state.awaits == Awaits::Passes || state.asked.contains(&key) {
                        state.granted.insert(key, held);
                    } else {
                        drop(state);
                        held.give_back();
                    }
                }
                // Whoever stopped waiting hands it back.
                Job::Command(waiter) => {
                    if let Err(held) = waiter.send(held.for_command()) {
                        held.give_back();
                    }
                }
            }
        }
        self.moved.notify_waiters();
    }

    fn start(&self) -> Option<Start<K, String, Waiter<K>>> {
        self.state().lanes.start()
    }
}
