//! What the writer of a source did, as far as its reader needs it to know an echo.
//!
//! Quirk `our-port-on-what-goes-along` (Linux 6.18): deleting a primary address sends a DELADDR with
//! our port for each secondary one that went with it, so the port alone makes no echo.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use homeostat_netlink::Port;

use crate::key::AddressKey;
use crate::muffler::Muffler;

/// Shared by the reader and the writer of one source.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    ports: BTreeSet<Port>,
    deleted: BTreeSet<AddressKey>,
    /// Of the reader that was opened last. An open socket would keep its namespace alive.
    muffler: Weak<Muffler>,
}

impl Sent {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of the writer.
    pub(crate) fn from(&self, port: Port) {
        self.notes().ports.insert(port);
    }

    /// What is done is heard through this.
    pub(crate) fn is_heard_through(&self, muffler: &Arc<Muffler>) {
        self.notes().muffler = Arc::downgrade(muffler);
    }

    /// A connection of the writer is about to make many routes. Hands out the muffler if it has kept
    /// nothing out before: it is told so again if the kernel makes none of them.
    pub(crate) fn makes_many(&self, port: Port) -> Option<Arc<Muffler>> {
        let muffler = self.notes().muffler.upgrade()?;
        let had_kept = muffler.put_on(port);
        (!had_kept).then_some(muffler)
    }

    /// An address is about to be deleted.
    pub(crate) fn deletes(&self, key: AddressKey) {
        self.notes().deleted.insert(key);
    }

    /// Whether an event comes from a request of ours, itself or by what the kernel took along.
    pub(crate) fn is_ours(&self, port: Port) -> bool {
        self.notes().ports.contains(&port)
    }

    /// Whether the end of an address is what we asked for.
    pub(crate) fn is_deleted(&self, key: &AddressKey) -> bool {
        self.notes().deleted.remove(key)
    }

    /// Every echo was heard: events are queued before the answer to their request is.
    pub(crate) fn is_heard(&self) {
        self.notes().deleted.clear();
    }
}
