//! What was in flight when the last process ended: adopted, closed, or known to be unknown.

use std::collections::BTreeSet;

use homeostat_core::{Begun, Dispatch, Failure, Key, Recovery, Source, TaskEnd, Writer};

use super::Operations;
use super::flight::Flight;
use super::held::Held;
use crate::journal::{Intent, OpenStep, Repeat};

impl<K: Key> Operations<K> {
    /// Asks the target about every step of this source that has no end and is not followed. Tells their
    /// keys: what was planned for them does not know of the answer, so they are left alone until they are
    /// looked at again. What the target cannot tell now stays open.
    pub(crate) async fn recover<S: Source<Key = K>>(&self, writer: &S::Writer) -> BTreeSet<K> {
        let mut keys = BTreeSet::new();
        for open in self.journal().open_steps() {
            let Some(key) = self.key_of(&open).filter(|key| !self.is_followed(key)) else {
                continue;
            };
            if open.intent.repeat == Repeat::Harmless {
                // What this pass has seen tells whether it is needed again.
                self.end(open.id, TaskEnd::Unknown("nobody heard the answer".to_owned())).await;
                continue;
            }
            if self.recover_one::<S>(writer, (key.clone(), &open)).await.is_ok() {
                self.shared.state().news.insert(key.clone());
            }
            keys.insert(key);
        }
        self.shared.moved.notify_waiters();
        keys
    }

    /// The lane of a key that the target works on, whatever the limits say. If somebody else of this process
    /// has taken it meanwhile, they know the step: it is not lost at all.
    fn held_anyhow(&self, key: K, node: &String) -> Option<Held<K>> {
        let mut state = self.shared.state();
        let kept = state.doubtful.remove(&key);
        if kept.is_none() && !state.lanes.occupy(&key, node) {
            return None;
        }
        drop(state);
        Some(kept.unwrap_or_else(|| Held::new(key, &self.shared)))
    }

    /// Whether somebody of this process knows how the key's step goes on.
    fn is_followed(&self, key: &K) -> bool {
        let state = self.shared.state();
        let is_doubtful = state.doubtful.contains_key(key);
        state.in_flight.contains_key(key) || state.lanes.is_running(key) && !is_doubtful
    }

    /// The key of a step of ours.
    fn key_of(&self, open: &OpenStep) -> Option<K> {
        let subject = &open.intent.subject;
        let is_ours =
            (&subject.source, &subject.scope) == (&self.shared.source, &self.shared.scope);
        K::from_str(&subject.key).ok().filter(|_| is_ours)
    }

    async fn recover_one<S: Source<Key = K>>(
        &self,
        writer: &S::Writer,
        (key, open): (K, &OpenStep),
    ) -> Result<(), Failure> {
        let (task, node) = match writer.recover(begun(open)).await? {
            Recovery::Ended(ended) => {
                self.end(open.id, ended).await;
                let kept = self.shared.state().doubtful.remove(&key);
                drop(kept);
                return Ok(());
            }
            Recovery::Running { task, node } => (task, node),
        };
        if open.task.is_none() {
            let written = self.journal().dispatched(open.id, &task).await;
            written.map_err(|error| Failure::from_error(&error, homeostat_core::Retry::Soon))?;
        }
        let Some(held) = self.held_anyhow(key, &node) else { return Ok(()) };
        let end = writer.follow(&task);
        self.follow(Flight { held, id: open.id, task }, end);
        Ok(())
    }
}

fn begun(open: &OpenStep) -> Begun {
    let Intent { subject, kind, parameters, precondition, .. } = open.intent.clone();
    let dispatch = Dispatch { kind, parameters, precondition };
    Begun { key: subject.key, dispatch, task: open.task.clone(), since: open.since.0 }
}
