//! Breaks the loop of a step that succeeds and never reads back as declared.

use std::collections::BTreeMap;

use super::backoff::Backoff;
use super::pauses::Pauses;
use super::reasons::Reasons;
use super::time::Time;
use crate::outcome::Retry;

/// Says when a key is tried again whose step was applied and did not read back as declared.
///
/// `P` is a print of the step and of what it left, by which passes are compared.
///
/// 1. The first misses are tried again at once. After [`LIMIT`](Self::LIMIT) passes in a row with
///    the same print the key is *not converging*: it is reported.
/// 2. From then on the pauses of a [`Backoff`] lie between its tries, with all laws of that one.
///    Only a resync, an operator and a new desired state (which *forgets* the key) come before them.
/// 3. Another print begins the count anew, but a key that misses each time in another way is
///    slowed down all the same.
/// 4. A key that reads back as declared has no state here.
#[derive(Clone, Debug)]
pub struct Convergence<K, P> {
    missing: BTreeMap<K, Missing<P>>,
    tries: Backoff<K>,
}

#[derive(Clone, Debug)]
struct Missing<P> {
    print: P,
    /// How many passes in a row.
    passes: u32,
}

impl<K: Ord + Clone, P: PartialEq> Convergence<K, P> {
    /// After this many passes in a row the key counts as not converging.
    pub const LIMIT: u32 = 3;

    /// Nothing was missed yet.
    #[must_use]
    pub fn new(pauses: Pauses, seed: u64) -> Self {
        Self { missing: BTreeMap::new(), tries: Backoff::new(pauses, seed) }
    }

    /// A pass applied the key's step, and the key does not read back as declared.
    pub fn missed(&mut self, key: K, print: P, now: Time) {
        let before = self.missing.remove(&key).filter(|missing| missing.print == print);
        let passes = before.map_or(0, |missing| missing.passes).saturating_add(1);
        let retry = if passes >= Self::LIMIT { Retry::Soon } else { Retry::Now };
        self.missing.insert(key.clone(), Missing { print, passes });
        self.tries.failed(key, retry, now);
    }

    /// The key reads back as declared, is gone, or has a new desired state.
    pub fn forget(&mut self, key: &K) {
        self.missing.remove(key);
        self.tries.forget(key);
    }

    /// Forgets all keys but these; a full pass knows which still miss.
    pub fn retain(&mut self, mut still_misses: impl FnMut(&K) -> bool) {
        self.missing.retain(|key, _| still_misses(key));
        self.tries.retain(|key| self.missing.contains_key(key));
    }

    /// When [`take_due`](Self::take_due) has to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.tries.deadline()
    }

    /// The keys that are tried now; each try ends in [`missed`](Self::missed) or
    /// [`forget`](Self::forget).
    #[must_use = "keys that were taken are not named again for long"]
    pub fn take_due(&mut self, now: Time) -> Vec<K> {
        self.tries.take_due(now)
    }

    /// Whether a pass with these reasons may try the key, as in [`Backoff::may_try`].
    #[must_use]
    pub fn may_try(&self, key: &K, reasons: Reasons, now: Time) -> bool {
        self.tries.may_try(key, reasons, now)
    }

    /// The keys that do not converge, in their order.
    pub fn report(&self) -> impl Iterator<Item = &K> {
        let stuck = self.missing.iter().filter(|(_, missing)| missing.passes >= Self::LIMIT);
        stuck.map(|(key, _)| key)
    }

    /// How many keys have state here: those whose last step did not read back.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.missing.len()
    }
}
