//! What a loop does next, and when. Pure: `now` is an argument.
//!
//! Start at [`Agenda::next`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::pacing::{
    Backoff, Contended, Contention, Convergence, Heal, KeyPacer, NotConverging, Pacer, Pauses,
    Reason, Reasons, Resync, Threshold, Time,
};
use homeostat_core::{Focus, Key, Retry};

use super::pace::Pace;

/// With more keys than this, one look at everything is cheaper than many at single keys.
const MOST_KEYS: usize = 4096;

/// Everything that starts a pass. It carries keys for the look and reasons for the log, never state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wakeup<K> {
    /// The loop has just begun.
    Start,
    /// The wish changed.
    Desired,
    /// The target said that these keys may have changed.
    Hint(Vec<K>),
    /// It is time to look at everything again, or hints were lost.
    Resync,
    /// The backoff of an earlier failure has elapsed.
    Retry,
    /// A person asked for it.
    Operator,
}

/// A pass that starts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn<K> {
    pub(crate) focus: Focus<K>,
    pub(crate) reasons: Reasons,
    pub(crate) waited: Duration,
}

/// What a pass found out that decides about the next one.
#[derive(Clone, Debug)]
pub(crate) struct Facts<K> {
    /// What could not be done.
    pub(crate) failed: BTreeMap<K, Retry>,
    /// What was done and does not show, with a print of it.
    pub(crate) missed: BTreeMap<K, u64>,
    /// Why the pass could not be made at all.
    pub(crate) broken: Option<Retry>,
}

impl<K> Default for Facts<K> {
    fn default() -> Self {
        Facts { failed: BTreeMap::new(), missed: BTreeMap::new(), broken: None }
    }
}

/// What a loop does next.
pub(crate) struct Agenda<K> {
    full: Pacer,
    keys: KeyPacer<K>,
    resync: Resync,
    /// Of the source as a whole.
    source: Backoff<()>,
    backoff: Backoff<K>,
    contention: Contention<K>,
    convergence: Convergence<K, u64>,
    pause: Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    None,
    Until(Time),
    ForGood,
}

impl<K: Key> Agenda<K> {
    pub(crate) fn new(pace: &Pace) -> Self {
        let seed = pace.seed;
        let fight = Threshold { losses: 5, within: Duration::from_secs(10) };
        Agenda {
            full: Pacer::new(pace.policy),
            keys: KeyPacer::new(pace.min_interval),
            resync: pace.resync.clone(),
            source: Backoff::new(Pauses::BACKOFF, seed),
            backoff: Backoff::new(Pauses::BACKOFF, seed.wrapping_add(1)),
            contention: Contention::new(fight, Pauses::CONTENTION),
            convergence: Convergence::new(Pauses::BACKOFF, seed.wrapping_add(2)),
            pause: Pause::None,
        }
    }

    /// Takes a wakeup.
    pub(crate) fn wake(&mut self, wakeup: Wakeup<K>, now: Time) {
        match wakeup {
            Wakeup::Hint(keys) => keys.into_iter().for_each(|key| self.hint(key, now)),
            Wakeup::Desired => {
                self.source.forget(&());
                self.backoff.retain(|_| false);
                self.convergence.retain(|_| false);
                self.full.on_command(Reason::Desired, now);
            }
            Wakeup::Start => self.full.on_command(Reason::Start, now),
            Wakeup::Resync => self.full.on_command(Reason::Resync, now),
            Wakeup::Retry => self.full.on_command(Reason::Retry, now),
            Wakeup::Operator => self.full.on_command(Reason::Operator, now),
        }
    }

    fn hint(&mut self, key: K, now: Time) {
        self.backoff.on_hint(&key, now);
        if self.full.is_synced() {
            self.keys.on_hint(key, now);
        } else {
            // The first full pass looks at it; if that fails, its retry does.
            self.full.on_hint(now);
        }
    }

    /// Somebody else removed or replaced this very key.
    pub(crate) fn lost(&mut self, key: K, culprit: Option<Arc<str>>, now: Time) -> Heal {
        self.contention.lost(key, culprit, now)
    }

    /// The pass that starts now, if one is due.
    pub(crate) fn next(&mut self, now: Time) -> Option<Turn<K>> {
        match self.pause {
            Pause::ForGood => return None,
            Pause::Until(end) if end > now => return None,
            Pause::Until(_) | Pause::None => self.pause = Pause::None,
        }
        if self.resync.is_due(now) {
            self.full.on_command(Reason::Resync, now);
        }
        if !self.source.take_due(now).is_empty() {
            self.full.on_command(Reason::Retry, now);
        }
        self.next_full(now).or_else(|| self.next_keys(now))
    }

    fn next_full(&mut self, now: Time) -> Option<Turn<K>> {
        let fired = self.full.fire(now)?;
        self.keys.absorb_all(now);
        self.resync.started(now);
        Some(Turn { focus: Focus::All, reasons: fired.reasons, waited: fired.waited })
    }

    fn next_keys(&mut self, now: Time) -> Option<Turn<K>> {
        let since = self.keys.deadline().map_or(Duration::ZERO, |since| now.since(since));
        let mut due: BTreeSet<K> = self.keys.take_due(now).into_iter().collect();
        let mut reasons = Reasons::NONE;
        if !due.is_empty() {
            reasons = reasons | Reason::Hint;
        }
        let retried = [
            self.backoff.take_due(now),
            self.contention.take_due(now),
            self.convergence.take_due(now),
        ];
        if retried.iter().any(|keys| !keys.is_empty()) {
            reasons = reasons | Reason::Retry;
        }
        due.extend(retried.into_iter().flatten());
        if due.is_empty() {
            return None;
        }
        if due.len() > MOST_KEYS {
            self.full.on_command(reasons, now);
            return self.next_full(now);
        }
        Some(Turn { focus: Focus::Keys(due), reasons, waited: since })
    }

    /// A pass over `focus` starts now because somebody asked for it.
    pub(crate) fn command(&mut self, focus: &Focus<K>, now: Time) {
        if *focus == Focus::All {
            self.full.on_command(Reason::Operator, now);
            let _ = self.next_full(now);
        }
    }

    /// When [`next`](Self::next) has to be called again, if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Time> {
        match self.pause {
            Pause::ForGood => return None,
            Pause::Until(end) => return Some(end),
            Pause::None => {}
        }
        let others = [
            self.full.deadline(),
            self.keys.deadline(),
            self.source.deadline(),
            self.backoff.deadline(),
            self.contention.deadline(),
            self.convergence.deadline(),
        ];
        others.into_iter().flatten().chain([self.resync.deadline()]).min()
    }

    /// Why a key is left alone in a pass with these reasons.
    pub(crate) fn leaves(&self, key: &K, reasons: Reasons, now: Time) -> Option<String> {
        if self.contention.holds(key, now) {
            let who = self.contended().find(|one| one.key == key).and_then(|one| one.culprit);
            let who = who.map_or("somebody", |who| who);
            return Some(format!("{who} keeps undoing it; it is healed after a pause"));
        }
        if !self.convergence.may_try(key, reasons, now) {
            return Some("it was written again and again, and never showed".to_owned());
        }
        (!self.backoff.may_try(key, reasons, now))
            .then(|| "it failed, and is tried again after a pause".to_owned())
    }

    /// A pass has ended.
    pub(crate) fn ended(&mut self, turn: &Turn<K>, facts: Facts<K>, now: Time) {
        if turn.focus == Focus::All {
            self.full.finished(now);
        }
        match facts.broken {
            Some(retry) => self.source.failed((), at_least_soon(retry), now),
            None => self.made(turn, facts, now),
        }
    }

    fn made(&mut self, turn: &Turn<K>, facts: Facts<K>, now: Time) {
        let Facts { failed, missed, .. } = facts;
        match &turn.focus {
            Focus::All => {
                self.full.synced(now);
                self.source.forget(&());
                self.backoff.retain(|key| failed.contains_key(key));
                self.convergence.retain(|key| missed.contains_key(key));
            }
            Focus::Keys(keys) => {
                keys.iter().filter(|key| !failed.contains_key(key)).for_each(|key| {
                    self.backoff.forget(key);
                });
                keys.iter().filter(|key| !missed.contains_key(key)).for_each(|key| {
                    self.convergence.forget(key);
                });
            }
        }
        for (key, retry) in failed {
            self.backoff.failed(key, retry, now);
        }
        for (key, print) in missed {
            self.convergence.missed(key, print, now);
        }
    }

    /// Holds passes off.
    pub(crate) fn pause(&mut self, until: Option<Time>) {
        self.pause = until.map_or(Pause::ForGood, Pause::Until);
    }

    /// Goes on, with a look at everything.
    pub(crate) fn resume(&mut self, now: Time) {
        self.pause = Pause::None;
        self.wake(Wakeup::Operator, now);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause != Pause::None
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.full.is_synced()
    }

    /// How often the source as a whole failed in a row.
    pub(crate) fn streak(&self) -> u32 {
        self.source.streak(&())
    }

    pub(crate) fn contended(&self) -> impl Iterator<Item = Contended<'_, K>> {
        self.contention.report()
    }

    pub(crate) fn not_converging(&self) -> impl Iterator<Item = NotConverging<'_, K, u64>> {
        self.convergence.report()
    }
}

/// A source that cannot be looked at is looked at again, whatever it says: only a new wish could
/// change a step that is malformed, but a look has no wish.
fn at_least_soon(retry: Retry) -> Retry {
    match retry {
        Retry::Now => Retry::Now,
        Retry::Soon | Retry::OnChange | Retry::Never => Retry::Soon,
    }
}
