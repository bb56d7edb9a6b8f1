//! The right to write to one key.

use std::sync::{Arc, Weak};

use homeostat_core::Key;

use super::Shared;

/// A lane: as long as it is held, nobody else writes to the key. It is freed when it is dropped, also by a
/// panic. If something was sent to the key whose end is not written down by then, because the answer was
/// lost, or time ran out, a loop first asks the target about it.
pub struct Held<K: Key> {
    key: K,
    shared: Weak<Shared<K>>,
    is_given_back: bool,
}

impl<K: Key> Held<K> {
    pub(super) fn new(key: K, shared: &Arc<Shared<K>>) -> Self {
        Held { key, shared: Arc::downgrade(shared), is_given_back: false }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Frees the lane without giving it to the next one: whoever gives out lanes goes on to do so.
    pub(super) fn give_back(mut self) {
        self.is_given_back = true;
        if let Some(shared) = self.shared.upgrade() {
            shared.state().lanes.end(&self.key);
        }
    }
}

impl<K: Key> Drop for Held<K> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade().filter(|_| !self.is_given_back) {
            shared.free(&self.key);
        }
    }
}
