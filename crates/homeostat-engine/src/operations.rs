//! Writes that must neither overlap nor be sent twice: whose turn it is, what is in flight, and the
//! journal behind both.
//!
//! It is a value that the caller owns and shares: a loop over a source and commands that somebody gives
//! beside it pass through the same [`Operations`], and so never meet on a key. A pass takes the lanes that
//! are free and leaves the others: when one comes free, [`Operations::news`] names its key, and the next
//! pass looks at it again before anything is sent. Work that the target does by itself keeps its lane until
//! it ends; no pass waits for it.

mod flight;
mod held;
mod recovery;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{Focus, Key, Limits};
use tokio::sync::oneshot;

pub(crate) use self::flight::{Flight, Landing};
pub use self::held::Held;
use self::shared::{InLine, Shared};
use crate::journal::{Journal, Subject};

/// The lanes of one source in one scope, with the journal. Clones are the same one.
pub struct Operations<K: Key> {
    shared: Arc<Shared<K>>,
}

impl<K: Key> Clone for Operations<K> {
    fn clone(&self) -> Self {
        Operations { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Key> std::fmt::Debug for Operations<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// Whether passes come by themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// A loop hears the news, and comes.
    Passes,
    /// A loop hears the news, but it is paused or only looks: a lane that is kept for it would keep commands
    /// out for good.
    Hearer,
    /// It is gone, or never was.
    Nobody,
}

impl<K: Key> Operations<K> {
    /// The operations of a source in a scope.
    #[must_use]
    pub fn new(journal: Arc<Journal>, (source, scope): (&str, &str), limits: Limits) -> Self {
        Operations { shared: Arc::new(Shared::new(journal, (source, scope), limits)) }
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.shared.journal
    }

    /// Sets other limits, for what begins from here on.
    pub fn limit(&self, limits: Limits) {
        self.shared.state().lanes.limit(limits);
        self.shared.pump();
    }

    /// A key, as the journal has it.
    pub fn subject(&self, key: &K) -> Subject {
        self.shared.subject(key)
    }

    /// Waits for a key's lane, in the order of arrival. Whoever stops waiting gives up their place.
    pub async fn enter(&self, key: &K, node: &str) -> Held<K> {
        loop {
            let (grant, granted) = oneshot::channel();
            let ticket = self.shared.state().lanes.submit(key, node.to_owned(), grant);
            let _place = InLine { shared: &self.shared, key, ticket };
            self.shared.pump();
            // Nobody drops a waiter without having called it; should that happen, the wait begins anew.
            if let Ok(held) = granted.await {
                return held;
            }
        }
    }

    /// How many keys have something running or waiting; the others leave no trace.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.shared.state().lanes.len()
    }

    /// A look at these keys begins: it will see what is in the news of them.
    pub(crate) fn looks_at(&self, focus: &Focus<K>) {
        let mut state = self.shared.state();
        state.news.retain(|key| !focus.covers(key));
        state.is_looking = true;
    }

    /// A pass asks for a key's lane, and does not wait. If it is not free, the key will be in the news. One
    /// that has come into the news since the look of a loop is left alone: what was planned for it does not
    /// know.
    pub(crate) fn turn(&self, key: &K, node: String) -> Result<Held<K>, String> {
        let mut state = self.shared.state();
        if state.is_looking && state.news.contains(key) {
            return Err("another look: it moved after this one".to_owned());
        }
        if state.lanes.node_of(key) != Some(&node) {
            // It has moved since its lane was granted: the place is not where it is needed.
            let elsewhere = state.granted.remove(key);
            drop(state);
            drop(elsewhere);
            state = self.shared.state();
        }
        if !state.granted.contains_key(key) {
            state.asked.insert(key.clone());
            state.lanes.mark(key, node);
            drop(state);
            self.shared.pump();
            state = self.shared.state();
            state.asked.remove(key);
        }
        let held = state.granted.remove(key).ok_or_else(|| state.why_not(key))?;
        state.news.remove(key);
        Ok(held)
    }

    /// Lanes that a pass over these keys was granted and did not need are free again.
    pub(crate) fn let_go(&self, unneeded: impl Fn(&K) -> bool) {
        let mut state = self.shared.state();
        let granted = std::mem::take(&mut state.granted).into_iter();
        let (freed, kept): (BTreeMap<_, _>, _) = granted.partition(|(key, _)| unneeded(key));
        (state.granted, state.is_looking) = (kept, false);
        drop(state);
        drop(freed);
    }

    /// Keeps lanes for passes that will come, or for nobody.
    pub(crate) fn set_awaits(&self, awaits: Awaits) {
        self.shared.state().awaits = awaits;
        match awaits {
            Awaits::Passes => self.take_doubts(),
            Awaits::Hearer | Awaits::Nobody => {
                if awaits == Awaits::Nobody {
                    drop(self.take_landed());
                }
                self.leave_doubts();
                self.let_go(|_| true);
            }
        }
    }

    /// Whether both are the same one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Keys that are worth another look: their work ended, or their lane came free. Cancel-safe.
    pub async fn news(&self) -> BTreeSet<K> {
        loop {
            let moved = self.shared.moved.notified();
            let news = std::mem::take(&mut self.shared.state().news);
            if !news.is_empty() {
                return news;
            }
            moved.await;
        }
    }

    /// The tasks that the target works on, by key.
    #[must_use]
    pub fn in_flight(&self) -> BTreeMap<K, String> {
        self.shared.state().in_flight.clone()
    }

    /// Waits until the target works on nothing of ours.
    pub async fn landed(&self) {
        loop {
            let moved = self.shared.moved.notified();
            if self.shared.state().in_flight.is_empty() {
                return;
            }
            moved.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Millis;

    #[tokio::test]
    async fn a_key_that_has_moved_gets_a_place_on_the_node_where_it_is() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path(), Arc::new(|| Millis(0))).unwrap().0;
        let limits = Limits { total: 9, per_node: 1 };
        let operations = Operations::new(Arc::new(journal), ("source", "scope"), limits);
        operations.set_awaits(Awaits::Passes);
        let turn = |key: &str, node: &str| operations.turn(&key.to_owned(), node.to_owned());
        let (first, other) = (turn("a", "one").unwrap(), turn("b", "two").unwrap());
        assert!(turn("c", "one").is_err(), "a is at work there");
        drop(first);
        // The place of `a` is kept for `c`, which has gone.
        assert!(turn("c", "two").is_err(), "b is at work there");
        let fourth = turn("d", "one").unwrap();
        drop(other);
        assert!(turn("c", "two").is_ok());
        drop(fourth);
        assert_eq!(operations.busy(), 0);
    }
}
