//! A store that notes which keys were listed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_store::{
    Committed, Entry, Error, Keys, Lease, LeaseId, MemoryStore, Renewal, Revision, Snapshot,
    Status, Store, Transaction, Watching,
};

pub(crate) struct Counted {
    store: MemoryStore,
    listed: Mutex<Vec<Keys>>,
}

impl Counted {
    pub(crate) fn new(store: MemoryStore) -> Self {
        Counted { store, listed: Mutex::default() }
    }

    /// The lists of more than one key since the last call.
    pub(crate) fn take(&self) -> Vec<Keys> {
        std::mem::take(&mut self.listed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Store for Counted {
    fn list(&self, keys: Keys) -> Later<'_, Result<Snapshot<String, Entry>, Error>> {
        if let Keys::Below(_) = &keys {
            self.listed.lock().unwrap_or_else(PoisonError::into_inner).push(keys.clone());
        }
        self.store.list(keys)
    }

    fn watch(&self, keys: Keys, after: Revision) -> Later<'_, Result<Watching, Error>> {
        self.store.watch(keys, after)
    }

    fn commit(&self, transaction: Transaction) -> Later<'_, Result<Committed, Error>> {
        self.store.commit(transaction)
    }

    fn grant(&self, time_to_live: Duration) -> Later<'_, Result<Lease, Error>> {
        self.store.grant(time_to_live)
    }

    fn renew(&self, lease: LeaseId) -> Later<'_, Result<Renewal, Error>> {
        self.store.renew(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Later<'_, Result<(), Error>> {
        self.store.revoke(lease)
    }

    fn status(&self) -> Later<'_, Result<Status, Error>> {
        self.store.status()
    }
}
