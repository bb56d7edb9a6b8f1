//! A ledger of references: for each shape that is ours, a record in the service's store. It stands beside the
//! declarations, so that any machine finds it, and a user can see it, and delete it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use homeostat_engine::{Edit, Error, Ledger, LedgerKey, Page, Pages};
use serde_json::json;

use crate::client::{Client, Reply};

/// The references to the shapes of one owner.
pub struct ShapeRefs {
    client: Client,
    /// The desired state that was applied last. It distinguishes drift from edits, and says nothing of ownership: each
    /// process begins without one.
    desired: Mutex<Option<Vec<u8>>>,
}

impl ShapeRefs {
    /// The references in the store of a service.
    #[must_use]
    pub fn new(client: Client) -> Self {
        ShapeRefs { client, desired: Mutex::default() }
    }
}

/// The references in a reply, or why there are none.
fn refs(reply: std::io::Result<Reply>) -> Result<BTreeMap<String, String>, String> {
    let reply = reply.map_err(|error| error.to_string())?;
    match (reply.status, serde_json::from_value(reply.body.clone())) {
        (200, Ok(refs)) => Ok(refs),
        _ => Err(reply.failure().to_string()),
    }
}

impl Pages for ShapeRefs {
    fn page(&self, _: &LedgerKey) -> Result<Page, Error> {
        let refs = refs(self.client.blocking("GET", "/refs", &json!(null)));
        let records = refs.map_err(|why| Error::ReadLedger(why.into()))?.into_iter().collect();
        let desired = self.desired.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Page::new(records, desired))
    }

    fn places(&self, _: &str) -> Result<Vec<LedgerKey>, Error> {
        Ok(Vec::new())
    }
}

impl Ledger for ShapeRefs {
    /// One request, so that the service makes all changes or none.
    fn write(&self, _: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        let mut changes = BTreeMap::new();
        for edit in edits {
            match edit {
                Edit::Put { key, record } => _ = changes.insert(key, Some(record)),
                Edit::Drop { key } => _ = changes.insert(key, None),
                Edit::DesiredState(desired) => {
                    let mut last = self.desired.lock().unwrap_or_else(PoisonError::into_inner);
                    *last = Some(desired.clone());
                }
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let written = refs(self.client.blocking("POST", "/refs", &json!(changes)));
        written.map(drop).map_err(|why| Error::WriteLedger(why.into()))
    }
}
