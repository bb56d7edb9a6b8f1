//! What keeps writes that must not be sent twice from being so. Loop, passes and runs of steps call it here, whatever
//! their source; one without such writes has none of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use homeostat_core::{Focus, Key, LaneConsumer, TaskResult, Tasks};

use crate::operations::Operations;

/// What keeps writes that must not be sent twice from being so.
#[derive(Clone, Debug, Default)]
pub enum DispatchGuard<K: Key> {
    /// Nothing: such writes are refused.
    #[default]
    Absent,
    /// Nothing, and the caller says that a second dispatch after a crash would do no harm.
    Volatile,
    /// Lanes and a journal.
    Operations(Operations<K>),
}

impl<K: Key> DispatchGuard<K> {
    pub(crate) fn operations(&self) -> Option<&Operations<K>> {
        match self {
            DispatchGuard::Operations(operations) => Some(operations),
            DispatchGuard::Absent | DispatchGuard::Volatile => None,
        }
    }

    /// A loop begins, is paused, goes on, or ends.
    pub(crate) fn set_consumer(&self, consumer: LaneConsumer) {
        if let Some(operations) = self.operations() {
            operations.set_consumer(consumer);
        }
    }

    /// The loop goes on with another guard, and with another writer. What is in doubt keeps its places, unless it is
    /// somebody else's from here on.
    pub(crate) fn replaced_by(&self, next: &Self) {
        match (self.operations(), next.operations()) {
            (Some(former), Some(next)) if former.is(next) => former.detach(),
            _ => self.set_consumer(LaneConsumer::None),
        }
    }

    /// Waits for keys that a pass should look at again: a task of theirs ended, or their lane came free. Cancel-safe.
    pub(crate) async fn dirty_keys(&self) -> BTreeSet<K> {
        match self.operations() {
            Some(operations) => operations.dirty_keys().await,
            None => std::future::pending().await,
        }
    }

    /// How tasks ended since this was asked last.
    pub(crate) fn take_results(&self) -> BTreeMap<K, TaskResult> {
        self.operations().map(Operations::take_results).unwrap_or_default()
    }

    /// Whether the target works on something, may do so, or has ended something that no loop knows of yet.
    pub(crate) fn has_tasks(&self) -> bool {
        self.operations().is_some_and(Operations::has_tasks)
    }

    /// Frees the lanes of keys that no pass will come for soon.
    pub(crate) fn free_reserved(&self, keys: &BTreeSet<K>) {
        if let Some(operations) = self.operations() {
            operations.free_reserved(keys);
        }
    }

    /// Queues keys again whose task finished before the pass that sent it was concluded.
    pub(crate) fn requeue_finished<'a>(&self, keys: impl Iterator<Item = &'a K>) {
        if let Some(operations) = self.operations() {
            operations.requeue_finished(keys);
        }
    }

    /// A pass begins to look at these keys. What ends from here on, its steps do not know of.
    pub(crate) fn look(&self, focus: &Focus<K>) {
        if let Some(operations) = self.operations() {
            operations.look(focus);
        }
    }

    /// A pass begins to write. Tells the keys that it must not write to: what became of an earlier write is not known.
    pub(crate) async fn begin_pass(&self, tasks: Option<Arc<dyn Tasks>>) -> BTreeSet<K> {
        match self.operations() {
            Some(operations) => operations.begin_pass(tasks).await,
            None => BTreeSet::new(),
        }
    }

    /// Waits until it is known what became of the writes to these keys, or nobody can be asked.
    pub(crate) async fn answered(&self, keys: &BTreeSet<K>) {
        if let Some(operations) = self.operations() {
            operations.answered(keys).await;
        }
    }

    /// A pass over these keys has written what it could.
    pub(crate) fn end_pass(&self, focus: &Focus<K>) {
        if let Some(operations) = self.operations() {
            operations.end_pass(focus);
        }
    }
}
