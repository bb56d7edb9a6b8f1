//! Work that the target does by itself: followed to its end, while its lane stays taken.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use homeostat_core::outcome::Later;
use homeostat_core::{Action, Cause, Key, TaskEnd};
use serde_json::{Value, json};

use super::Operations;
use super::held::Held;
use super::shared::Shared;
use crate::journal::{End, StepId};

/// A step that the target accepted.
pub(crate) struct Flight<K: Key> {
    pub(crate) held: Held<K>,
    pub(crate) id: StepId,
    pub(crate) task: String,
    /// What it does, and why; nothing, for one of an earlier life.
    pub(crate) told: Option<(Action, Cause)>,
}

/// How the work of a step ended, for the loop that began it.
pub(crate) struct Landing {
    pub(crate) told: Option<(Action, Cause)>,
    pub(crate) ended: TaskEnd,
}

impl<K: Key> Operations<K> {
    /// Follows a task to its end. The lane is freed then, and the key is in the news.
    pub(crate) fn follow(&self, flight: Flight<K>, end: Later<'static, TaskEnd>) {
        let key = flight.held.key().clone();
        self.shared.state().in_flight.insert(key, flight.task.clone());
        let shared = Arc::downgrade(&self.shared);
        self.shared.aside(async move {
            let ended = AssertUnwindSafe(end).catch_unwind().await;
            let panicked = |_| TaskEnd::Unknown("waiting for it panicked".to_owned());
            let ended = ended.unwrap_or_else(panicked);
            if let Some(shared) = shared.upgrade() {
                shared.land(flight, ended).await;
            }
        });
    }

    /// How work ended since this was asked last.
    pub(crate) fn take_landed(&self) -> BTreeMap<K, Landing> {
        std::mem::take(&mut self.shared.state().landed)
    }

    /// Puts those of the keys into the news whose task has ended by now.
    pub(crate) fn remind<'a>(&self, keys: impl Iterator<Item = &'a K>) {
        let mut state = self.shared.state();
        for key in keys {
            if !state.in_flight.contains_key(key) {
                state.news.insert(key.clone());
            }
        }
        drop(state);
        self.shared.moved.notify_waiters();
    }

    /// Writes down how a step ended.
    pub(crate) async fn end(&self, id: StepId, ended: TaskEnd) {
        self.shared.end(id, ended, Value::Null).await;
    }
}

impl<K: Key> Shared<K> {
    async fn land(self: Arc<Self>, flight: Flight<K>, ended: TaskEnd) {
        let Flight { held, id, task, told } = flight;
        self.end(id, ended.clone(), json!({ "task": task })).await;
        let key = held.key().clone();
        let mut state = self.state();
        state.in_flight.remove(&key);
        state.landed(&key, Landing { told, ended });
        drop(state);
        // Frees the lane, and tells.
        drop(held);
    }

    /// A journal that cannot be written leaves the step open: the next opening finds it again, and until
    /// then nothing is sent to the key.
    async fn end(&self, id: StepId, ended: TaskEnd, answer: Value) {
        let end = match ended {
            TaskEnd::Succeeded => End::Succeeded { answer },
            TaskEnd::Failed(why) => End::Failed { why },
            TaskEnd::Unknown(why) => End::Unknown { why },
            // It may still run: its lane is in doubt from here on.
            TaskEnd::GivenUp(_) => return,
        };
        let _ = self.journal.end(id, end).await;
    }
}
