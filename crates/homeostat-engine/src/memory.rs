//! A ledger in memory, for callers without a state directory and for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::ledger::{Edit, Ledger, LedgerKey, Page, Pages};

/// Forgets everything with the process.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    pages: Mutex<BTreeMap<Title, Stored>>,
}

/// Owner, source and scope: a place without its identity, since a scope that is made again finds
/// the records of the former one void.
type Title = (String, String, String);

fn title(place: &LedgerKey) -> Title {
    (place.owner.clone(), place.source.clone(), place.scope.clone())
}

/// Each entry beside the identity under which it was written.
#[derive(Debug, Default)]
struct Stored {
    records: BTreeMap<String, (String, String)>,
    desired: Option<(String, Vec<u8>)>,
}

impl MemoryLedger {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<Title, Stored>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages for MemoryLedger {
    fn page(&self, place: &LedgerKey) -> Result<Page, Error> {
        let pages = self.pages();
        let Some(stored) = pages.get(&title(place)) else { return Ok(Page::default()) };
        let mut page = Page::default();
        for (key, (identity, record)) in &stored.records {
            if *identity == place.identity {
                page.records.push((key.clone(), record.clone()));
            } else {
                page.void.push(key.clone());
            }
        }
        let desired = stored.desired.as_ref().filter(|(identity, _)| *identity == place.identity);
        page.desired = desired.map(|(_, desired)| desired.clone());
        Ok(page)
    }

    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error> {
        let pages = self.pages();
        let mut places: Vec<LedgerKey> = Vec::new();
        for ((_, source, scope), stored) in pages.iter().filter(|((whose, ..), _)| whose == owner) {
            let recorded = stored.records.values().map(|(identity, _)| identity);
            let applied = stored.desired.iter().filter(|(_, desired)| !desired.is_empty());
            let identities = recorded.chain(applied.map(|(identity, _)| identity));
            places.extend(identities.map(|identity| LedgerKey {
                owner: owner.to_owned(),
                source: source.clone(),
                scope: scope.clone(),
                identity: identity.clone(),
            }));
        }
        places.sort();
        places.dedup();
        Ok(places)
    }
}

impl Ledger for MemoryLedger {
    fn write(&self, place: &LedgerKey, edits: &[Edit]) -> Result<(), Error> {
        let mut pages = self.pages();
        let stored = pages.entry(title(place)).or_default();
        let identity = || place.identity.clone();
        for edit in edits {
            match edit {
                Edit::Put { key, record } => {
                    stored.records.insert(key.clone(), (identity(), record.clone()));
                }
                Edit::Drop { key } => {
                    stored.records.remove(key);
                }
                Edit::DesiredState(desired) => stored.desired = Some((identity(), desired.clone())),
            }
        }
        Ok(())
    }
}
