//! Slows down the healing of a key that another program keeps undoing, and names who does it.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::due::{Due, Ticket};
use super::pauses::Pauses;
use super::time::Time;

/// Says when a key that another program removed or replaced is healed.
///
/// It must be given only losses of that very key: what goes with a link, an address, a nexthop or a
/// namespace is no fight, and counting it would turn a blip into an outage.
///
/// 1. A lost key is healed at once, until there were too many losses within a short time.
/// 2. From then on it is *contended*: each loss is healed after a pause, twice as long as the one
///    before, up to the longest. It is never given up. Losses within a pause do not stretch it.
/// 3. It is calm again, and forgotten, when after a heal it was not lost for as long as the last
///    pause, and at least for the time within which losses are counted.
/// 4. A key that was not lost lately has no state here.
#[derive(Clone, Debug)]
pub struct Contention<K> {
    threshold: Threshold,
    pauses: Pauses,
    lost: BTreeMap<K, Lost>,
    due: Due<K>,
}

/// How many losses within which time are a fight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// The loss that makes the key contended, counted from one.
    pub losses: u32,
    /// The time that they all lie within.
    pub within: Duration,
}

/// When a lost key is healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Heal {
    /// At once.
    Now,
    /// When [`Contention::take_due`] names it, which is then.
    At(Time),
}

/// A key that another program keeps undoing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub struct Contended<'a, K> {
    pub key: &'a K,
    /// The pause before the last heal or the next one.
    pub pause: Duration,
    /// Who did it last, as far as the target says.
    pub culprit: Option<&'a str>,
}

#[derive(Clone, Debug)]
struct Lost {
    /// The losses that still count; they are no longer needed once the key is contended.
    recent: Vec<Time>,
    culprit: Option<Arc<str>>,
    /// How many pauses there were; none before the key is contended.
    nth: u32,
    is_paused: bool,
    /// The end of the pause, or the moment to forget the key.
    ticket: Ticket,
}

impl<K: Ord + Clone> Contention<K> {
    /// Nothing was lost yet.
    #[must_use]
    pub fn new(threshold: Threshold, pauses: Pauses) -> Self {
        Self { threshold, pauses, lost: BTreeMap::new(), due: Due::new() }
    }

    /// Another program removed or replaced this very key.
    pub fn lost(&mut self, key: K, culprit: Option<Arc<str>>, now: Time) -> Heal {
        self.calm(&key, now);
        let ticket = (now, 0);
        let lost = self.lost.entry(key.clone()).or_insert_with(|| Lost::new(ticket));
        lost.culprit = culprit.or(lost.culprit.take());
        if lost.counts(self.threshold, now) {
            lost.nth = lost.nth.saturating_add(1);
            lost.is_paused = true;
            let end = now.after(self.pauses.nth(lost.nth));
            lost.relist(&mut self.due, key, end);
        } else if !lost.is_paused {
            lost.relist(&mut self.due, key, now.after(self.threshold.within));
        }
        if lost.is_paused { Heal::At(lost.ticket.0) } else { Heal::Now }
    }

    /// Whether no pass may heal the key yet, whatever the reason of the pass.
    #[must_use]
    pub fn holds(&self, key: &K, now: Time) -> bool {
        self.lost.get(key).is_some_and(|lost| lost.is_paused && lost.ticket.0 > now)
    }

    /// When [`take_due`](Self::take_due) has to be called: a pause ends, or a key is forgotten.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due.deadline()
    }

    /// The keys whose pause has ended and that are healed now. Forgets those that are calm.
    #[must_use = "keys that were taken are not named again"]
    pub fn take_due(&mut self, now: Time) -> Vec<K> {
        let mut taken = Vec::new();
        while let Some(key) = self.due.take(now) {
            match self.lost.get_mut(&key) {
                Some(lost) if lost.is_paused => {
                    lost.is_paused = false;
                    let calm = now.after(self.pauses.nth(lost.nth).max(self.threshold.within));
                    lost.ticket = self.due.list(key.clone(), calm);
                    taken.push(key);
                }
                _ => drop(self.lost.remove(&key)),
            }
        }
        taken
    }

    /// The key is no longer declared, or has a new desired state.
    pub fn forget(&mut self, key: &K) {
        self.due.unlist(self.lost.remove(key).map(|lost| lost.ticket));
    }

    /// The contended keys, in their order.
    pub fn report(&self) -> impl Iterator<Item = Contended<'_, K>> {
        self.lost.iter().filter_map(|(key, lost)| self.contended(key, lost))
    }

    /// What the report says of one key, if it is contended.
    #[must_use]
    pub fn of(&self, key: &K) -> Option<Contended<'_, K>> {
        let (key, lost) = self.lost.get_key_value(key)?;
        self.contended(key, lost)
    }

    fn contended<'a>(&self, key: &'a K, lost: &'a Lost) -> Option<Contended<'a, K>> {
        let (pause, culprit) = (self.pauses.nth(lost.nth), lost.culprit.as_deref());
        (lost.nth > 0).then_some(Contended { key, pause, culprit })
    }

    /// How many keys have state here: those that were lost lately, or are contended.
    #[must_use]
    pub fn tracked(&self) -> usize {
        self.lost.len()
    }

    // A driver that comes late must not find a fight where there was calm.
    fn calm(&mut self, key: &K, now: Time) {
        if self.lost.get(key).is_some_and(|lost| !lost.is_paused && lost.ticket.0 <= now) {
            self.forget(key);
        }
    }
}

impl Lost {
    fn new(ticket: Ticket) -> Self {
        Self { recent: Vec::new(), culprit: None, nth: 0, is_paused: false, ticket }
    }

    fn relist<K>(&mut self, due: &mut Due<K>, key: K, time: Time) {
        due.unlist(Some(self.ticket));
        self.ticket = due.list(key, time);
    }

    // Records a loss, and returns whether it begins a pause.
    fn counts(&mut self, threshold: Threshold, now: Time) -> bool {
        if self.nth > 0 {
            return !self.is_paused;
        }
        self.recent.retain(|loss| now.since(*loss) < threshold.within);
        self.recent.push(now);
        let is_fight = self.recent.len() >= threshold.losses as usize;
        if is_fight {
            self.recent = Vec::new();
        }
        is_fight
    }
}
