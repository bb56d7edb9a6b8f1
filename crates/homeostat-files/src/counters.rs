//! What happened to a set and its program, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counters of one set. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Reloads of the program.
    pub reloads: Count,
    /// Commands to a running program that took the place of a reload.
    pub runtime_changes: Count,
    /// Changes without a reload that the program did not take: it was reloaded.
    pub refused_changes: Count,
    /// Sets that a check refused.
    pub refused_checks: Count,
    /// Processes that were replaced and still serve connections, at the last look at everything.
    pub old_processes: Count,
    /// Whole days until the first certificate of the set ends, at the last look; of none, nothing is known.
    pub certificate_days: LastValue,
}

/// The counters of all sets, by name. They outlive what is bound to a document. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct CountersBySet(Arc<Mutex<BTreeMap<String, Counters>>>);

impl CountersBySet {
    /// Those of one set.
    #[must_use]
    pub fn of(&self, set: &str) -> Counters {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.entry(set.to_owned()).or_default().clone()
    }

    /// Those of all sets that were ever bound.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A number that threads share, if there is one.
#[derive(Clone, Debug, Default)]
pub struct LastValue(Arc<Mutex<Option<u64>>>);

impl LastValue {
    #[must_use]
    pub fn get(&self) -> Option<u64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, value: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

/// A number that threads share.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }
}
