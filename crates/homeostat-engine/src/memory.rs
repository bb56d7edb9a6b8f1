//! A ledger in memory, for callers without a state directory and for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::ledger::{Edit, Ledger, Page, Pages, Place};

/// Forgets everything with the process.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    pages: Mutex<BTreeMap<Place, Stored>>,
}

#[derive(Debug, Default)]
struct Stored {
    records: BTreeMap<String, String>,
    wish: Option<Vec<u8>>,
}

impl MemoryLedger {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<Place, Stored>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages for MemoryLedger {
    fn page(&self, place: &Place) -> Result<Page, Error> {
        let pages = self.pages();
        let Some(stored) = pages.get(place) else { return Ok(Page::default()) };
        let records = stored.records.iter().map(|(k, r)| (k.clone(), r.clone())).collect();
        Ok(Page { records, wish: stored.wish.clone(), void: Vec::new() })
    }

    fn places(&self, owner: &str) -> Result<Vec<Place>, Error> {
        let pages = self.pages();
        let filled = pages
            .iter()
            .filter(|(place, stored)| place.owner == owner && !stored.records.is_empty());
        Ok(filled.map(|(place, _)| place.clone()).collect())
    }
}

impl Ledger for MemoryLedger {
    fn write(&self, place: &Place, edits: &[Edit]) -> Result<(), Error> {
        let mut pages = self.pages();
        let stored = pages.entry(place.clone()).or_default();
        for edit in edits {
            match edit {
                Edit::Put { key, record } => {
                    stored.records.insert(key.clone(), record.clone());
                }
                Edit::Drop { key } => {
                    stored.records.remove(key);
                }
                Edit::Wish(wish) => stored.wish = Some(wish.clone()),
            }
        }
        Ok(())
    }
}
