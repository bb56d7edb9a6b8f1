//! A part of a store as a source of desired states.

use std::sync::Arc;

use homeostat_core::Failure;
use homeostat_kit::store::{Revision, Snapshot, Store as ListWatch};

use crate::store::{Entry, Keys, Store, Watching};

/// Everything of a store below a prefix, for the [`Reflector`](homeostat_kit::store::Reflector) of the kit.
#[derive(Clone)]
pub struct Prefix {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Prefix {
    /// All keys that begin with `prefix`.
    pub fn new(store: Arc<dyn Store>, prefix: impl Into<String>) -> Self {
        Prefix { store, prefix: prefix.into() }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn keys(&self) -> Keys {
        Keys::Below(self.prefix.clone())
    }
}

impl ListWatch for Prefix {
    type Key = String;
    type Value = Entry;

    async fn list(&self) -> Result<Snapshot<String, Entry>, Failure> {
        Ok(self.store.list(self.keys()).await?)
    }

    async fn watch(&self, after: Revision) -> Result<Watching, Failure> {
        Ok(self.store.watch(self.keys(), after).await?)
    }
}
