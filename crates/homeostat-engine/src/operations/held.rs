//! The right to write to one key.

use std::sync::{Arc, Weak};

use homeostat_core::Key;

use super::shared::Shared;

/// A lane: as long as it is held, nobody else writes to the key. It is freed when it is dropped, also by a
/// panic. If something was sent to the key whose end is not written down by then, because the answer was
/// lost, or time ran out, a loop first asks the target about it.
pub struct Held<K: Key> {
    key: K,
    shared: Weak<Shared<K>>,
    holder: Holder,
}

/// Who holds a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// The engine, which looks at what it has done.
    Engine,
    /// Somebody beside it, who may have done anything.
    Command,
    /// Nobody any more.
    Nobody,
}

impl<K: Key> Held<K> {
    pub(super) fn new(key: K, shared: &Arc<Shared<K>>) -> Self {
        Held { key, shared: Arc::downgrade(shared), holder: Holder::Engine }
    }

    /// The lane, for a command.
    pub(super) fn for_command(mut self) -> Self {
        self.holder = Holder::Command;
        self
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Frees the lane without giving it to the next one: whoever gives out lanes goes on to do so.
    pub(super) fn give_back(mut self) {
        self.holder = Holder::Nobody;
        if let Some(shared) = self.shared.upgrade() {
            shared.state().lanes.end(&self.key);
        }
    }
}

impl<K: Key> Drop for Held<K> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        match self.holder {
            Holder::Engine => shared.free(&self.key),
            Holder::Command => {
                shared.state().news.insert(self.key.clone());
                shared.free(&self.key);
            }
            Holder::Nobody => {}
        }
    }
}
