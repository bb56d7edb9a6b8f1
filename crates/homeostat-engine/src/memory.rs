//! A ledger in memory, for callers without a state directory and for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::ledger::{Edit, Ledger, LedgerKey, Page, Pages};

/// Forgets everything with the process.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    pages: Mutex<BTreeMap<LedgerKey, Stored>>,
}

#[derive(Debug, Default)]
struct Stored {
    records: BTreeMap<String, String>,
    desired: Option<Vec<u8>>,
}

impl MemoryLedger {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<LedgerKey, Stored>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether both are one scope of this name or former ones of it: what the former ones recorded is void.
fn is_same_name(one: &LedgerKey, other: &LedgerKey) -> bool {
    (&one.owner, &one.source, &one.scope) == (&other.owner, &other.source, &other.scope)
}

impl Pages for MemoryLedger {
    fn page(&self, at: &LedgerKey) -> Result<Page, Error> {
        let mut page = Page::default();
        for (key, stored) in self.pages().iter().filter(|(key, _)| is_same_name(key, at)) {
            if key == at {
                page.records = stored.records.clone().into_iter().collect();
                page.desired.clone_from(&stored.desired);
            } else {
                page.void.extend(stored.records.keys().cloned());
            }
        }
        Ok(page)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        let pages = self.pages();
        let used = pages.iter().filter(|(key, stored)| {
            let is_applied = stored.desired.as_ref().is_some_and(|desired| !desired.is_empty());
            key.owner == owner && (is_applied || !stored.records.is_empty())
        });
        Ok(used.map(|(key, _)| key.clone()).collect())
    }
}

impl Ledger for MemoryLedger {
    fn write(&self, at: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        let mut pages = self.pages();
        for edit in edits {
            for (_, former) in pages.iter_mut().filter(|(key, _)| is_same_name(key, at)) {
                match edit {
                    Edit::Put { key, .. } | Edit::Drop { key } => _ = former.records.remove(key),
                    Edit::DesiredState(_) => former.desired = None,
                }
            }
            let stored = pages.entry(at.clone()).or_default();
            match edit {
                Edit::Put { key, record } => {
                    stored.records.insert(key.clone(), record.clone());
                }
                Edit::Drop { .. } => {}
                Edit::DesiredState(desired) => stored.desired = Some(desired.clone()),
            }
        }
        Ok(())
    }
}
