//! What a loop does next, and when. Pure: `now` is an argument.
//!
//! Start at [`Agenda::next`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::pacing::{
    Backoff, Contended, Contention, Convergence, Heal, KeyPacer, NotConverging, Pacer, Pauses,
    Reason, Reasons, Resync, Threshold, Time,
};
use homeostat_core::{Focus, Key, Retry, most_keys};

use super::deaths::Deaths;
use super::losses::UNNAMED;
use super::pace::Pace;
use super::wakeup::{Facts, Turn, Wakeup};

/// What a loop does next.
pub(crate) struct Agenda<K> {
    full: Pacer,
    keys: KeyPacer<K>,
    resync: Resync,
    /// Of the source as a whole.
    source: Backoff<()>,
    subscription: Deaths,
    backoff: Backoff<K>,
    /// Keys whose task failed after its pass: their pauses survive a new desired state that says the same of them.
    failed_tasks: BTreeSet<K>,
    contention: Contention<K>,
    convergence: Convergence<K, u64>,
    pause: Pause,
    /// Whether only a full pass can see: none was made yet, the last pass broke, or the subscription
    /// is not the one of the last full pass.
    is_blind: bool,
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
            subscription: Deaths::new(Pauses::BACKOFF),
            backoff: Backoff::new(Pauses::BACKOFF, seed.wrapping_add(1)),
            failed_tasks: BTreeSet::new(),
            contention: Contention::new(fight, Pauses::CONTENTION),
            convergence: Convergence::new(Pauses::BACKOFF, seed.wrapping_add(2)),
            pause: Pause::None,
            is_blind: true,
        }
    }

    /// Takes a wakeup.
    pub(crate) fn wake(&mut self, wakeup: Wakeup<K>, now: Time) {
        match wakeup {
            Wakeup::Hint(keys) => keys.into_iter().for_each(|key| self.hint(key, now)),
            // Before the first full pass nothing but a command can start one.
            paced @ (Wakeup::Desired | Wakeup::Lost) if self.full.is_synced() => {
                self.full.on_paced(paced.reason(), now);
            }
            other => self.full.on_command(other.reason(), now),
        }
    }

    /// The loop has another desired state from here on, in which these keys are declared in another way:
    /// its reader and writer may be others, and what failed may work now. A failing key whose declaration
    /// is the same may depend on one that changed: it is tried once, and keeps its count. One whose task
    /// failed waits on, if `keeps_task` says so.
    pub(crate) fn rebound(
        &mut self,
        is_changed: impl Fn(&K) -> bool,
        keeps_task: impl Fn(&K) -> bool,
        now: Time,
    ) {
        self.is_blind = true;
        self.source.forget(&());
        self.failed_tasks.retain(keeps_task);
        let failed_tasks = &self.failed_tasks;
        self.backoff.retain(|key| !is_changed(key) || failed_tasks.contains(key));
        self.backoff.take_all(|key| !failed_tasks.contains(key), now);
        self.convergence.retain(|key| !is_changed(key));
        let contended = self.contended().map(|one| one.key).filter(|key| is_changed(key));
        let contended: Vec<K> = contended.cloned().collect();
        for key in &contended {
            self.contention.forget(key);
        }
    }

    fn hint(&mut self, key: K, now: Time) {
        if self.full.is_synced() {
            self.keys.on_hint(key, now);
        } else {
            // The first full pass looks at it; if that fails, its retry does.
            self.full.on_hint(now);
        }
    }

    /// The subscription has died: what changes is not told until another one stands.
    pub(crate) fn died(&mut self, now: Time) {
        self.is_blind = true;
        self.subscription.died(now);
    }

    /// A pass that has begun tries the key, if it failed before.
    pub(crate) fn tries(&mut self, key: &K, now: Time) {
        self.backoff.take(key, now);
    }

    /// What the target did for a key has failed, after the pass that began it.
    pub(crate) fn failed(&mut self, key: K, now: Time) {
        self.failed_tasks.insert(key.clone());
        self.backoff.failed(key, Retry::Soon, now);
    }

    /// What the target says to have done for a key does not show.
    pub(crate) fn missed(&mut self, key: K, now: Time) {
        self.convergence.missed(key, 0, now);
    }

    /// Somebody else removed or replaced this very key.
    pub(crate) fn lost(&mut self, key: K, culprit: Option<Arc<str>>, now: Time) -> Heal {
        self.contention.lost(key, culprit, now)
    }

    /// The pass that starts now, if one is due.
    pub(crate) fn next(&mut self, now: Time, declared: usize) -> Option<Turn<K>> {
        if self.is_paused() {
            return None;
        }
        if self.resync.is_due(now) {
            self.full.on_command(Reason::Resync, now);
        }
        if !self.source.take_due(now).is_empty() || self.subscription.is_due(now) {
            self.full.on_command(Reason::Retry, now);
        }
        let full = self.next_full(now);
        if full.is_some() || self.is_blind { full } else { self.next_keys(now, declared) }
    }

    fn next_full(&mut self, now: Time) -> Option<Turn<K>> {
        let fired = self.full.fire(now)?;
        self.keys.absorb_all(now);
        self.resync.started(now);
        self.subscription.reopened();
        let _ = self.take_retries(now);
        // While it was blind it may have missed anything.
        let missed = if self.is_blind { Reason::Resync.into() } else { Reasons::NONE };
        let reasons = fired.reasons | missed;
        Some(Turn { focus: Focus::All, reasons, waited: fired.waited })
    }

    fn next_keys(&mut self, now: Time, declared: usize) -> Option<Turn<K>> {
        let mut due: BTreeSet<K> = self.keys.take_due(now).into_iter().collect();
        let waited = self.keys.taken_since().map_or(Duration::ZERO, |since| now.since(since));
        let hinted = if due.is_empty() { Reasons::NONE } else { Reason::Hint.into() };
        let retried = self.take_retries(now);
        let is_retried = !retried.is_empty();
        due.extend(retried);
        if due.is_empty() {
            return None;
        }
        let reasons = if is_retried { hinted | Reason::Retry } else { hinted };
        if due.len() > most_keys(declared) {
            self.full.on_command(reasons | Reason::Resync, now);
            return self.next_full(now);
        }
        Some(Turn { focus: Focus::Keys(due), reasons, waited })
    }

    fn take_retries(&mut self, now: Time) -> BTreeSet<K> {
        let (failed, contended) = (self.backoff.take_due(now), self.contention.take_due(now));
        failed.into_iter().chain(contended).chain(self.convergence.take_due(now)).collect()
    }

    /// A pass over `focus` starts now because somebody asked for it.
    pub(crate) fn command(&mut self, focus: &Focus<K>, now: Time) {
        if *focus == Focus::All {
            self.full.on_command(Reason::Operator, now);
            let _ = self.next_full(now);
        }
    }

    /// When the next key that failed is tried again.
    pub(crate) fn next_retry(&self) -> Option<Time> {
        [self.backoff.deadline(), self.convergence.deadline()].into_iter().flatten().min()
    }

    /// Whether a key that failed was tried less often than this.
    pub(crate) fn has_tries_left(&self, tries: u32) -> bool {
        self.backoff.has_tries_left(tries)
    }

    /// Whether no key has to wait for anything, so that a pass need not ask key by key.
    pub(crate) fn leaves_none(&self) -> bool {
        let tracked =
            [self.backoff.tracked(), self.contention.tracked(), self.convergence.tracked()];
        tracked == [0; 3]
    }

    /// When [`next`](Self::next) has to be called again, if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.due().map(|(time, _)| time)
    }

    /// The same, and why.
    pub(crate) fn due(&self) -> Option<(Time, Reason)> {
        match self.pause {
            Pause::ForGood => return None,
            Pause::Until(end) => return Some((end, Reason::Operator)),
            Pause::None => {}
        }
        let retry = |time: Option<Time>| time.map(|time| (time, Reason::Retry));
        let full = [
            Some((self.resync.deadline(), Reason::Resync)),
            self.full.deadline().map(|time| (time, Reason::Hint)),
            retry(self.source.deadline()),
            retry(self.subscription.deadline()),
        ];
        let keys = [
            self.keys.deadline().map(|time| (time, Reason::Hint)),
            retry(self.backoff.deadline()),
            retry(self.contention.deadline()),
            retry(self.convergence.deadline()),
        ];
        let keys = keys.into_iter().flatten().filter(|_| !self.is_blind);
        full.into_iter().flatten().chain(keys).min_by_key(|(time, _)| *time)
    }

    /// Why a key is left alone in a pass with these reasons.
    pub(crate) fn leaves(&self, key: &K, reasons: Reasons, now: Time) -> Option<String> {
        if self.contention.holds(key, now) {
            let who = self.contended().find(|one| one.key == key).and_then(|one| one.culprit);
            let who = who.unwrap_or(UNNAMED);
            return Some(format!("{who} keeps undoing it; it is healed after a pause"));
        }
        if !self.convergence.may_try(key, reasons, now) {
            return Some("it was written again and again, and never showed".to_owned());
        }
        // A new desired state makes everything be looked at, but says nothing new of a failed task.
        let is_desired = reasons.contains(Reason::Desired) && !reasons.contains(Reason::Operator);
        let says_nothing = is_desired && self.failed_tasks.contains(key);
        let reasons = if says_nothing { Reason::Desired.into() } else { reasons };
        (!self.backoff.may_try(key, reasons, now))
            .then(|| "it failed, and is tried again after a pause".to_owned())
    }

    /// A pass has ended.
    pub(crate) fn ended(&mut self, turn: &Turn<K>, facts: Facts<K>, now: Time) {
        if turn.focus == Focus::All {
            self.full.finished(now);
        }
        match facts.broken {
            Some(retry) => {
                self.is_blind = true;
                self.source.failed((), at_least_soon(retry), now);
            }
            None => self.made(turn, facts, now),
        }
    }

    fn made(&mut self, turn: &Turn<K>, facts: Facts<K>, now: Time) {
        let Facts { failed, missed, held, waiting, written, .. } = facts;
        let stands = |key: &K| held.contains(key) || waiting.contains(key);
        let fails = |key: &K| failed.contains_key(key) || stands(key);
        let misses = |key: &K| missed.contains_key(key) || stands(key);
        match &turn.focus {
            Focus::All => {
                self.full.synced(now);
                self.is_blind = false;
                self.source.forget(&());
                self.backoff.retain(fails);
                self.convergence.retain(misses);
            }
            Focus::Keys(keys) => {
                keys.iter().filter(|key| !fails(key)).for_each(|key| self.backoff.forget(key));
                keys.iter().filter(|key| !misses(key)).for_each(|key| self.convergence.forget(key));
                if turn.reasons.contains(Reason::Hint) {
                    self.keys.spare(|key| written.contains(key), now);
                }
            }
        }
        for (key, retry) in failed {
            self.backoff.failed(key, retry, now);
        }
        self.failed_tasks.retain(|key| self.backoff.streak(key) > 0);
        for (key, print) in missed {
            self.convergence.missed(key, print, now);
        }
    }

    /// Holds passes off.
    pub(crate) fn pause(&mut self, until: Option<Time>) {
        self.pause = until.map_or(Pause::ForGood, Pause::Until);
    }

    /// Goes on.
    pub(crate) fn resume(&mut self) {
        self.pause = Pause::None;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause != Pause::None
    }

    /// Whether a pause that was for some time is over.
    pub(crate) fn is_pause_over(&self, now: Time) -> bool {
        matches!(self.pause, Pause::Until(end) if end <= now)
    }

    /// Whether a full pass has seen everything once.
    pub(crate) fn is_synced(&self) -> bool {
        self.full.is_synced()
    }

    /// Whether only a full pass can see.
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind
    }

    pub(crate) fn contended(&self) -> impl Iterator<Item = Contended<'_, K>> {
        self.contention.report()
    }

    pub(crate) fn not_converging(&self) -> impl Iterator<Item = NotConverging<'_, K, u64>> {
        self.convergence.report()
    }
}

/// A source that cannot be looked at is looked at again, whatever it says: only a new desired state could
/// change a step that is malformed, but a look has no desired state.
fn at_least_soon(retry: Retry) -> Retry {
    match retry {
        Retry::Now => Retry::Now,
        Retry::Soon | Retry::OnChange | Retry::Never => Retry::Soon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_epoch(Duration::from_millis(ms))
    }

    /// An agenda after a first full pass in which `a` failed.
    fn failing(retry: Retry) -> Agenda<String> {
        let resync = Resync::nearest(Duration::from_secs(30), 1);
        let pace = Pace {
            policy: homeostat_core::pacing::Policy::default(),
            min_interval: Duration::from_millis(100),
            resync,
            deadline: Duration::from_mins(1),
            mode: super::super::pace::Mode::Heal,
            hints: crate::session::Hints::Subscribe,
            seed: 1,
        };
        let mut agenda = Agenda::new(&pace);
        agenda.wake(Wakeup::Start, at(0));
        let turn = agenda.next(at(0), 1).unwrap();
        let failed = [("a".to_owned(), retry)].into();
        agenda.ended(&turn, Facts { failed, ..Facts::default() }, at(0));
        agenda
    }

    #[test]
    fn while_it_is_blind_only_a_full_pass_can_be_next() {
        let mut agenda = failing(Retry::Soon);
        agenda.wake(Wakeup::Hint(vec!["b".to_owned()]), at(1));
        agenda.is_blind = true;
        assert_eq!(agenda.next(at(200), 1), None, "neither the retry nor the hint");
        assert!(agenda.deadline() > Some(at(20_000)), "and it does not spin for them");
        agenda.wake(Wakeup::Operator, at(200));
        let turn = agenda.next(at(200), 1).unwrap();
        assert!(turn.focus == Focus::All && turn.reasons.contains(Reason::Resync));
    }

    #[test]
    fn what_waits_for_a_change_is_tried_with_what_it_depends_on() {
        let mut agenda = failing(Retry::OnChange);
        let key = "a".to_owned();
        assert!(agenda.leaves(&key, Reason::Hint.into(), at(10)).is_some());
        agenda.tries(&key, at(10));
        assert_eq!(agenda.leaves(&key, Reason::Hint.into(), at(10)), None);
    }
}
