//! Spaces the tries of what fails, key by key; `Backoff<()>` does it for a whole source.

use core::time::Duration;
use std::collections::BTreeMap;

use super::due::{Due, Ticket};
use super::pauses::{Jitter, Pauses};
use super::reasons::{Reason, Reasons};
use super::time::Time;
use crate::outcome::Retry;

/// Says when a key that failed is tried again, as its [`Retry`] asks.
///
/// 1. `Soon`: after a pause that doubles with each failure. A failure counts only if the pause
///    before it had elapsed, so neither hints nor other passes inflate a backoff or put it off.
/// 2. `Now`: at once, but from the fourth in a row on as `Soon`.
/// 3. `OnChange`: when a pass [takes](Self::take) it along, at a resync. `Never`: not at all. A new desired state
///    *forgets* the key.
/// 4. A key that was taken and got no answer is due again after the longest pause.
/// 5. Keys come out in the order in which they became due; a key that does not fail has no state.
#[derive(Clone, Debug)]
pub struct Backoff<K> {
    pauses: Pauses,
    jitter: Jitter,
    failing: BTreeMap<K, Failing>,
    due: Due<K>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    retry: Retry,
    /// Whether it is being tried.
    is_taken: bool,
    /// How many failures counted.
    streak: u32,
    /// How many tries in a row asked for another one at once.
    at_once: u8,
    /// The end of the pause that the last counted failure began.
    until: Time,
    ticket: Option<Ticket>,
}

const AT_ONCE: u8 = 3;

impl<K: Ord + Clone> Backoff<K> {
    /// Nothing fails yet. Each pause is cut by up to a quarter, at random by the seed, so that keys
    /// that failed together do not all stay together. They end on a grid of an eighth of the pause, so
    /// that any number of keys come back at few moments.
    #[must_use]
    pub fn new(pauses: Pauses, seed: u64) -> Self {
        Self { pauses, jitter: Jitter::new(seed), failing: BTreeMap::new(), due: Due::new() }
    }

    /// A try of the key has failed; `now` is the end of the try.
    pub fn failed(&mut self, key: K, retry: Retry, now: Time) {
        let failing = self.failing.entry(key.clone()).or_insert(Failing::NONE);
        failing.is_taken = false;
        failing.at_once = if retry == Retry::Now { failing.at_once.saturating_add(1) } else { 0 };
        failing.retry = if failing.at_once > AT_ONCE { Retry::Soon } else { retry };
        if failing.retry == Retry::Soon && failing.until <= now {
            failing.streak = failing.streak.saturating_add(1);
            let pause = self.pauses.nth(failing.streak);
            failing.until = on_grid(now, pause, self.jitter.share(pause / 4));
        }
        let due = match failing.retry {
            Retry::Now => Some(now),
            Retry::Soon => Some(failing.until),
            Retry::OnChange | Retry::Never => None,
        };
        self.due.unlist(failing.ticket.take());
        failing.ticket = due.map(|due| self.due.list(key, due));
    }

    /// The key is as declared, is gone, or has a new desired state.
    pub fn forget(&mut self, key: &K) {
        self.due.unlist(self.failing.remove(key).and_then(|failing| failing.ticket));
    }

    /// Forgets all keys but these; a full pass knows which still fail.
    pub fn retain(&mut self, mut still_fails: impl FnMut(&K) -> bool) {
        let healthy = self.failing.extract_if(.., |key, _| !still_fails(key));
        healthy.for_each(|(_, failing)| self.due.unlist(failing.ticket));
    }

    /// When [`take_due`](Self::take_due) has to be called; `None` if no key waits for a moment.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due.deadline()
    }

    /// The keys that are tried now; each try ends in [`failed`](Self::failed) or
    /// [`forget`](Self::forget).
    #[must_use = "keys that were taken are not named again for long"]
    pub fn take_due(&mut self, now: Time) -> Vec<K> {
        let mut taken = Vec::new();
        while let Some(key) = self.due.take(now) {
            self.take(&key, now);
            taken.push(key);
        }
        taken
    }

    /// A pass that already runs tries the key, too: it looks at something that the key depends on.
    /// Ends as a try of [`take_due`](Self::take_due) does.
    pub fn take(&mut self, key: &K, now: Time) {
        let failing = self.failing.get_mut(key).filter(|failing| failing.retry != Retry::Never);
        let Some(failing) = failing else { return };
        failing.is_taken = true;
        self.due.unlist(failing.ticket.take());
        failing.ticket = Some(self.due.list(key.clone(), now.after(self.pauses.longest())));
    }

    /// The same for every key that fails and is chosen.
    pub fn take_all(&mut self, is_chosen: impl Fn(&K) -> bool, now: Time) {
        let keys: Vec<K> = self.failing.keys().filter(|key| is_chosen(key)).cloned().collect();
        for key in &keys {
            self.take(key, now);
        }
    }

    /// Whether a pass with these reasons may try the key. A start, a resync and an operator reach
    /// all keys but those that wait for a new desired state.
    #[must_use]
    pub fn may_try(&self, key: &K, reasons: Reasons, now: Time) -> bool {
        let Some(failing) = self.failing.get(key) else { return true };
        let is_due = failing.ticket.is_some_and(|(time, _)| time <= now);
        let reaches_all = [Reason::Start, Reason::Resync, Reason::Operator];
        is_due
            || failing.is_taken
            || failing.retry != Retry::Never && reaches_all.iter().any(|r| reasons.contains(*r))
    }

    /// Whether a key that is tried again after a pause has failed less often than this.
    #[must_use]
    pub fn has_tries_left(&self, tries: u32) -> bool {
        let retried = self.failing.values().filter(|failing| failing.retry == Retry::Soon);
        retried.map(|failing| failing.streak).any(|streak| streak < tries)
    }

    /// When the key is tried next, where that is a moment and not a change.
    #[must_use]
    pub fn next_try(&self, key: &K) -> Option<Time> {
        self.failing.get(key)?.ticket.map(|(time, _)| time)
    }

    /// How many failures of the key counted.
    #[must_use]
    pub fn streak(&self, key: &K) -> u32 {
        self.failing.get(key).map_or(0, |failing| failing.streak)
    }

    /// How many keys have state here: those that fail.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.failing.len()
    }
}

impl Failing {
    const NONE: Self = Self {
        retry: Retry::Soon,
        is_taken: false,
        streak: 0,
        at_once: 0,
        until: Time::EPOCH,
        ticket: None,
    };
}

/// The end of a pause that begins now and is cut by this much, moved to the next moment of a grid, but not
/// behind the end of the whole pause.
fn on_grid(now: Time, pause: Duration, cut: Duration) -> Time {
    let grid = (pause / 8).as_nanos().max(1);
    let end = now.after(pause.saturating_sub(cut)).since_epoch().as_nanos();
    let end = end.div_ceil(grid).saturating_mul(grid);
    let latest = now.after(pause).since_epoch().as_nanos();
    let end = if end > latest { end.saturating_sub(grid) } else { end };
    Time::from_epoch(Duration::from_nanos(u64::try_from(end).unwrap_or(u64::MAX)))
}
