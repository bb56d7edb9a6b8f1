//! Paces focused passes key by key: a key that was just taken waits, the others do not.

use core::hash::Hash;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use super::time::Time;

/// How many passes in one interval may look without a write and open no window.
const MOST_SPARED: u8 = 10;

/// Says which keys the next focused pass looks at.
///
/// 1. A key is never taken twice within `min_interval`; hints within that window are merged and
///    the key is due at its end. The window counts from the moment the key was taken.
/// 2. A full pass absorbs all pending keys when it *starts*, and opens or restarts no window:
///    windows count focused passes only, full ones have a [`Pacer`](super::Pacer) of their own.
/// 3. A key that is neither pending nor in its window has no state here.
/// 4. Keys come out in the order in which they became due, never in that of a hash.
/// 5. A key that was looked at and [not written](Self::spare) does not wait. Only ten passes in one
///    interval are so spared, so that no storm of hints about nothing runs hot.
#[derive(Clone, Debug)]
pub struct KeyPacer<K> {
    min_interval: Duration,
    places: HashMap<K, Place>,
    /// The keys that had no window when they were hinted, and since when the first is due.
    ready: Vec<K>,
    ready_since: Time,
    /// One window per pass. All are equally long, so they close in the order of their opening.
    windows: VecDeque<Window<K>>,
    /// When the oldest hint came about what was taken last.
    taken_since: Option<Time>,
    /// How many passes were spared, and since when they are counted.
    spared: u8,
    spared_since: Time,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Due, and listed in `ready`.
    Ready,
    /// Taken, and inside its window.
    Taken,
    /// Hinted again inside its window, first at this time.
    Pending(Time),
}

#[derive(Clone, Debug)]
struct Window<K> {
    until: Time,
    keys: Vec<K>,
}

impl<K: Eq + Hash + Clone> KeyPacer<K> {
    /// A pacer without any key; with an interval of zero no key ever waits.
    #[must_use]
    pub fn new(min_interval: Duration) -> Self {
        Self {
            min_interval,
            places: HashMap::new(),
            ready: Vec::new(),
            ready_since: Time::EPOCH,
            windows: VecDeque::new(),
            taken_since: None,
            spared: 0,
            spared_since: Time::EPOCH,
        }
    }

    /// Takes a hint about one key.
    pub fn on_hint(&mut self, key: K, now: Time) {
        match self.places.get_mut(&key) {
            Some(Place::Ready | Place::Pending(_)) => {}
            Some(place @ Place::Taken) => *place = Place::Pending(now),
            None => self.make_ready(key, now),
        }
    }

    /// When [`take_due`](Self::take_due) has to be called; `None` if nothing is left to do.
    ///
    /// The end of a window counts also if none of its keys is pending: they get forgotten then.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.ready.is_empty() {
            return self.windows.front().map(|window| window.until);
        }
        Some(self.ready_since)
    }

    /// The keys of the pass that starts now: those whose window ended, then those that had none.
    /// May be empty.
    #[must_use = "keys that were taken are not named again"]
    pub fn take_due(&mut self, now: Time) -> Vec<K> {
        self.taken_since = (!self.ready.is_empty()).then_some(self.ready_since);
        let mut due = self.close(now);
        due.extend(core::mem::take(&mut self.ready));
        self.open(&due, now);
        self.shrink();
        due
    }

    /// When the oldest hint came about the keys that were taken last, if any were.
    #[must_use]
    pub fn taken_since(&self) -> Option<Time> {
        self.taken_since
    }

    /// The pass over the keys that were taken last, some at least, has ended: those that it did not
    /// write leave their window.
    pub fn spare(&mut self, is_written: impl Fn(&K) -> bool, now: Time) {
        if now.since(self.spared_since) >= self.min_interval {
            (self.spared, self.spared_since) = (0, now);
        }
        let Some(window) = self.windows.back_mut().filter(|_| self.spared < MOST_SPARED) else {
            return;
        };
        self.spared += 1;
        let spared: Vec<K> = window.keys.extract_if(.., |key| !is_written(key)).collect();
        for key in spared {
            if let Some(Place::Pending(since)) = self.places.remove(&key) {
                self.make_ready(key, since);
            }
        }
    }

    /// Forgets what is pending, because a full pass starts now and will see it.
    ///
    /// Hints that come while that pass runs are pending again.
    pub fn absorb_all(&mut self, now: Time) {
        self.ready = Vec::new();
        self.places
            .retain(|_, place| !matches!(core::mem::replace(place, Place::Taken), Place::Ready));
        self.close(now);
        self.shrink();
    }

    /// How many keys have state here: pending or in their window.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.places.len()
    }

    fn make_ready(&mut self, key: K, since: Time) {
        let is_first = self.ready.is_empty();
        self.ready_since = if is_first { since } else { self.ready_since.min(since) };
        self.places.insert(key.clone(), Place::Ready);
        self.ready.push(key);
    }

    // Ends the windows that are over, and returns the pending keys of them.
    fn close(&mut self, now: Time) -> Vec<K> {
        let mut due = Vec::new();
        while let Some(window) = self.windows.pop_front_if(|window| window.until <= now) {
            for key in window.keys {
                if let Some(Place::Pending(since)) = self.places.remove(&key) {
                    self.taken_since = self.taken_since.into_iter().chain([since]).min();
                    due.push(key);
                }
            }
        }
        due
    }

    fn open(&mut self, keys: &[K], now: Time) {
        if self.min_interval.is_zero() {
            self.places.clear();
        } else if !keys.is_empty() {
            self.places.extend(keys.iter().map(|key| (key.clone(), Place::Taken)));
            let until = now.after(self.min_interval);
            self.windows.push_back(Window { until, keys: keys.to_vec() });
        }
    }

    // A burst must not hold its memory for ever.
    fn shrink(&mut self) {
        if self.places.len() < self.places.capacity() / 4 {
            self.places.shrink_to(2 * self.places.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_epoch(Duration::from_millis(ms))
    }

    #[test]
    fn a_burst_does_not_hold_its_memory() {
        let mut pacer = KeyPacer::new(Duration::from_millis(100));
        for key in 0..100_000 {
            pacer.on_hint(key, at(0));
        }
        assert_eq!(pacer.take_due(at(0)).len(), 100_000);
        assert!(pacer.take_due(at(100)).is_empty());
        assert!(pacer.places.capacity() < 100, "{}", pacer.places.capacity());
        assert_eq!((pacer.ready.capacity(), pacer.windows.len()), (0, 0));
    }
}
