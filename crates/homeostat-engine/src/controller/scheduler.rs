//! When a pass starts, and over which keys. Pure: `now` is an argument.
//!
//! Start at [`Scheduler::next`]: "when may a pass start?" is answered there, and [`Scheduler::record`] learns from the
//! pass that followed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use educe::Educe;
use homeostat_core::pacing::{
    Backoff, Contention, Convergence, KeyPacer, Pacer, Pauses, Reason, Reasons, Resync, Threshold,
    Time,
};
use homeostat_core::{Focus, Key, Retry, most_keys};

use super::pace::Pace;

/// Who undid a step, where the target does not say.
pub(super) const UNNAMED: &str = "an unknown program";

/// Everything that starts a pass. It carries keys for the look and reasons for the log, never state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wakeup<K> {
    /// A full pass that waits for nothing: the loop has begun, a person asked for it.
    Command(Reason),
    /// A full pass at the pace of such passes: the desired state changed, hints were lost.
    Paced(Reason),
    /// The target said that these keys may have changed, or a check has come to another result.
    Hint(Vec<K>),
}

impl<K> Wakeup<K> {
    /// The reason that goes to the log.
    #[must_use]
    pub(super) fn reason(&self) -> Reason {
        match self {
            Wakeup::Command(reason) | Wakeup::Paced(reason) => *reason,
            Wakeup::Hint(_) => Reason::Hint,
        }
    }

    /// The keys that it names; none for everything.
    #[must_use]
    pub(super) fn keys(&self) -> &[K] {
        match self {
            Wakeup::Hint(keys) => keys,
            _ => &[],
        }
    }
}

/// A pass that starts now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PassRequest<K> {
    pub(super) focus: Focus<K>,
    pub(super) reasons: Reasons,
    pub(super) waited: Duration,
}

impl<K> PassRequest<K> {
    /// How many keys it looks at; nothing for all.
    pub(super) fn key_count(&self) -> Option<usize> {
        match &self.focus {
            Focus::All => None,
            Focus::Keys(keys) => Some(keys.len()),
        }
    }
}

/// What a pass found out that decides about the next ones.
#[derive(Clone, Debug, Educe)]
#[educe(Default)]
pub(super) struct PassFeedback<K> {
    pub(super) failed: BTreeMap<K, Retry>,
    /// Written, and the target does not show it; with a fingerprint of the failure.
    pub(super) missed: BTreeMap<K, u64>,
    /// Written to, or tried to be.
    pub(super) written: BTreeSet<K>,
    /// Left alone in this pass; they are as before.
    pub(super) deferred: BTreeSet<K>,
    /// The target works on them, or will: whether that fails is not known yet.
    pub(super) waiting: BTreeSet<K>,
    /// When a pass that could not be made at all is worth another try.
    pub(super) broken: Option<Retry>,
}

/// Decides when a loop runs its next pass: gathers wakeups, retries, resyncs and pauses.
pub(super) struct Scheduler<K> {
    pub(super) full: Pacer,
    keys: KeyPacer<K>,
    resync: Resync,
    /// For passes that could not be made at all.
    source: Backoff<()>,
    subscription: ResubscribeBackoff,
    pub(super) backoff: Backoff<K>,
    /// Keys whose task failed after its pass: their pauses survive a new desired state that says the same of them.
    failed_tasks: BTreeSet<K>,
    pub(super) contention: Contention<K>,
    pub(super) convergence: Convergence<K, u64>,
    pause: Pause,
    /// Whether only a full pass may be next: none was made yet, the last pass broke, or the subscription is not the
    /// one of the last full pass.
    pub(super) needs_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    None,
    Until(Time),
    ForGood,
}

impl<K: Key> Scheduler<K> {
    pub(super) fn new(pace: &Pace) -> Self {
        let seed = pace.seed;
        let fight = Threshold { losses: 5, within: Duration::from_secs(10) };
        Scheduler {
            full: Pacer::new(pace.policy),
            keys: KeyPacer::new(pace.min_interval),
            resync: pace.resync.clone(),
            source: Backoff::new(Pauses::BACKOFF, seed),
            subscription: ResubscribeBackoff::new(Pauses::BACKOFF),
            backoff: Backoff::new(Pauses::BACKOFF, seed.wrapping_add(1)),
            failed_tasks: BTreeSet::new(),
            contention: Contention::new(fight, Pauses::CONTENTION),
            convergence: Convergence::new(Pauses::BACKOFF, seed.wrapping_add(2)),
            pause: Pause::None,
            needs_full: true,
        }
    }

    pub(super) fn wake(&mut self, wakeup: Wakeup<K>, now: Time) {
        match wakeup {
            Wakeup::Hint(keys) if self.full.is_synced() => {
                for key in keys {
                    self.keys.on_hint(key, now);
                }
            }
            // The first full pass looks at it; if that fails, its retry does.
            Wakeup::Hint(_) => self.full.on_paced(Reason::Hint, now),
            Wakeup::Paced(reason) if self.full.is_synced() => self.full.on_paced(reason, now),
            // Before the first full pass nothing but a command can start one.
            Wakeup::Paced(reason) | Wakeup::Command(reason) => self.full.on_command(reason, now),
        }
    }

    /// The loop changed over to another desired state. Keys whose declaration changed start their retries again. A
    /// failing key whose declaration is the same may depend on one that changed: it is tried once, and keeps its
    /// count. A key whose task failed waits on, if `keeps_task` says so.
    pub(super) fn desired_changed(
        &mut self,
        is_changed: impl Fn(&K) -> bool,
        keeps_task: impl Fn(&K) -> bool,
        now: Time,
    ) {
        self.needs_full = true;
        self.source.forget(&());
        self.failed_tasks.retain(keeps_task);
        let failed_tasks = &self.failed_tasks;
        self.backoff.retain(|key| !is_changed(key) || failed_tasks.contains(key));
        self.backoff.take_all(|key| !failed_tasks.contains(key), now);
        self.convergence.retain(|key| !is_changed(key));
        let contended = self.contention.report().map(|one| one.key).filter(|key| is_changed(key));
        let contended: Vec<K> = contended.cloned().collect();
        for key in &contended {
            self.contention.forget(key);
        }
    }

    /// Until another subscription is open, changes come without hints.
    pub(super) fn subscription_lost(&mut self, now: Time) {
        self.needs_full = true;
        self.subscription.died(now);
    }

    /// The task of a key failed after the pass that sent it.
    pub(super) fn task_failed(&mut self, key: K, now: Time) {
        self.failed_tasks.insert(key.clone());
        self.backoff.failed(key, Retry::Soon, now);
    }

    /// The pass that starts now, if one is due.
    pub(super) fn next(&mut self, now: Time, declared: usize) -> Option<PassRequest<K>> {
        if self.is_paused() {
            return None;
        }
        if self.resync.is_due(now) {
            self.full.on_command(Reason::Resync, now);
        }
        if !self.source.take_due(now).is_empty()
            || self.subscription.due.is_some_and(|due| due <= now)
        {
            self.full.on_command(Reason::Retry, now);
        }
        let full = self.next_full(now);
        if full.is_some() || self.needs_full { full } else { self.next_keys(now, declared) }
    }

    fn next_full(&mut self, now: Time) -> Option<PassRequest<K>> {
        let fired = self.full.fire(now)?;
        self.keys.absorb_all(now);
        self.resync.started(now);
        self.subscription.due = None;
        let _ = self.take_retries(now);
        // Hints may have been missed.
        let missed = if self.needs_full { Reason::Resync.into() } else { Reasons::NONE };
        let reasons = fired.reasons | missed;
        Some(PassRequest { focus: Focus::All, reasons, waited: fired.waited })
    }

    fn next_keys(&mut self, now: Time, declared: usize) -> Option<PassRequest<K>> {
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
        Some(PassRequest { focus: Focus::Keys(due), reasons, waited })
    }

    fn take_retries(&mut self, now: Time) -> BTreeSet<K> {
        let (failed, contended) = (self.backoff.take_due(now), self.contention.take_due(now));
        failed.into_iter().chain(contended).chain(self.convergence.take_due(now)).collect()
    }

    /// A pass over `focus` starts now because an operator asked for it.
    pub(super) fn commanded(&mut self, focus: &Focus<K>, now: Time) {
        if *focus == Focus::All {
            self.full.on_command(Reason::Operator, now);
            let _ = self.next_full(now);
        }
    }

    /// When the next key that failed, or a pass that could not be made, is tried again.
    pub(super) fn next_retry(&self) -> Option<Time> {
        let retries =
            [self.source.deadline(), self.backoff.deadline(), self.convergence.deadline()];
        retries.into_iter().flatten().min()
    }

    /// Whether no key has to wait, so that a pass need not ask key by key.
    pub(super) fn defers_none(&self) -> bool {
        let tracked =
            [self.backoff.tracked(), self.contention.tracked(), self.convergence.tracked()];
        tracked == [0; 3]
    }

    /// When [`next`](Self::next) has to be called again, if nothing else happens, and why.
    pub(super) fn due(&self) -> Option<(Time, Reason)> {
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
            retry(self.subscription.due),
        ];
        let keys = [
            self.keys.deadline().map(|time| (time, Reason::Hint)),
            retry(self.backoff.deadline()),
            retry(self.contention.deadline()),
            retry(self.convergence.deadline()),
        ];
        let keys = keys.into_iter().flatten().filter(|_| !self.needs_full);
        full.into_iter().flatten().chain(keys).min_by_key(|(time, _)| *time)
    }

    /// Why a pass with these reasons must leave a key alone; nothing if it may write it.
    pub(super) fn defers(&self, key: &K, reasons: Reasons, now: Time) -> Option<String> {
        if self.contention.holds(key, now) {
            let who = self.contention.of(key).and_then(|one| one.culprit).unwrap_or(UNNAMED);
            return Some(format!("{who} keeps undoing it; it is healed after a pause"));
        }
        if !self.convergence.may_try(key, reasons, now) {
            return Some("it was written again and again, and never showed".to_owned());
        }
        // A new desired state starts a full look, but is no reason to try a failed task again.
        let is_desired = reasons.contains(Reason::Desired) && !reasons.contains(Reason::Operator);
        let is_no_reason = is_desired && self.failed_tasks.contains(key);
        let reasons = if is_no_reason { Reason::Desired.into() } else { reasons };
        (!self.backoff.may_try(key, reasons, now))
            .then(|| "it failed, and is tried again after a pause".to_owned())
    }

    /// Learns from a pass that has ended.
    pub(super) fn record(
        &mut self,
        request: &PassRequest<K>,
        feedback: &PassFeedback<K>,
        now: Time,
    ) {
        if request.focus == Focus::All {
            self.full.finished();
        }
        let PassFeedback { failed, missed, deferred, waiting, written, broken } = feedback;
        if let Some(retry) = broken {
            self.needs_full = true;
            // A source that cannot be looked at is looked at again, whatever it says: only a new desired state could
            // change a step that is malformed, but a look has no desired state.
            let retry = if *retry == Retry::Now { Retry::Now } else { Retry::Soon };
            self.source.failed((), retry, now);
            return;
        }
        let stands = |key: &K| deferred.contains(key) || waiting.contains(key);
        let fails = |key: &K| failed.contains_key(key) || stands(key);
        let misses = |key: &K| missed.contains_key(key) || stands(key);
        match &request.focus {
            Focus::All => {
                self.full.synced();
                self.needs_full = false;
                self.source.forget(&());
                self.backoff.retain(fails);
                self.convergence.retain(misses);
            }
            Focus::Keys(keys) => {
                keys.iter().filter(|key| !fails(key)).for_each(|key| self.backoff.forget(key));
                keys.iter().filter(|key| !misses(key)).for_each(|key| self.convergence.forget(key));
                if request.reasons.contains(Reason::Hint) {
                    self.keys.spare(|key| written.contains(key), now);
                }
            }
        }
        for (key, retry) in failed {
            self.backoff.failed(key.clone(), *retry, now);
        }
        self.failed_tasks.retain(|key| self.backoff.streak(key) > 0);
        for (key, print) in missed {
            self.convergence.missed(key.clone(), *print, now);
        }
    }

    pub(super) fn pause(&mut self, until: Option<Time>) {
        self.pause = until.map_or(Pause::ForGood, Pause::Until);
    }

    pub(super) fn resume(&mut self) {
        self.pause = Pause::None;
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pause != Pause::None
    }

    /// Whether a pause that was for some time is over.
    pub(super) fn is_pause_over(&self, now: Time) -> bool {
        matches!(self.pause, Pause::Until(end) if end <= now)
    }
}

/// When a subscription that died is opened again.
///
/// 1. After its first death at once, after each further one after a longer pause.
/// 2. A subscription that lived for as long as the longest pause starts the count again.
#[derive(Clone, Debug)]
pub(super) struct ResubscribeBackoff {
    pauses: Pauses,
    count: u32,
    last: Time,
    /// When another one is opened, if one is needed.
    due: Option<Time>,
}

impl ResubscribeBackoff {
    pub(super) fn new(pauses: Pauses) -> Self {
        ResubscribeBackoff { pauses, count: 0, last: Time::EPOCH, due: None }
    }

    /// The subscription has died.
    pub(super) fn died(&mut self, now: Time) {
        if now.since(self.last) > self.pauses.longest() * 2 {
            self.count = 0;
        }
        self.due = Some(match self.count {
            0 => now,
            before => now.after(self.pauses.nth(before)),
        });
        (self.count, self.last) = (self.count.saturating_add(1), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_epoch(Duration::from_millis(ms))
    }

    /// A scheduler after a first full pass in which `a` failed.
    fn failing(retry: Retry) -> Scheduler<String> {
        let resync = Resync::nearest(Duration::from_secs(30), 1);
        let pace = Pace {
            policy: homeostat_core::pacing::Policy::default(),
            min_interval: Duration::from_millis(100),
            resync,
            deadline: Duration::from_mins(1),
            mode: crate::controller::pace::Mode::Heal,
            hints: crate::session::Hints::Subscribe,
            seed: 1,
        };
        let mut scheduler = Scheduler::new(&pace);
        scheduler.wake(Wakeup::Command(Reason::Start), at(0));
        let request = scheduler.next(at(0), 1).unwrap();
        let failed = [("a".to_owned(), retry)].into();
        scheduler.record(&request, &PassFeedback { failed, ..PassFeedback::default() }, at(0));
        scheduler
    }

    #[test]
    fn while_it_needs_full_only_a_full_pass_can_be_next() {
        let mut scheduler = failing(Retry::Soon);
        scheduler.wake(Wakeup::Hint(vec!["b".to_owned()]), at(1));
        scheduler.needs_full = true;
        assert_eq!(scheduler.next(at(200), 1), None, "neither the retry nor the hint");
        assert!(scheduler.due().unwrap().0 > at(20_000), "and it does not spin for them");
        scheduler.wake(Wakeup::Command(Reason::Operator), at(200));
        let request = scheduler.next(at(200), 1).unwrap();
        assert!(request.focus == Focus::All && request.reasons.contains(Reason::Resync));
    }

    #[test]
    fn what_waits_for_a_change_is_tried_with_what_it_depends_on() {
        let mut scheduler = failing(Retry::OnChange);
        let key = "a".to_owned();
        assert!(scheduler.defers(&key, Reason::Hint.into(), at(10)).is_some());
        scheduler.backoff.take(&key, at(10));
        assert_eq!(scheduler.defers(&key, Reason::Hint.into(), at(10)), None);
    }

    #[test]
    fn the_first_death_costs_nothing_and_the_next_ones_more_and_more() {
        let second = Duration::from_secs(1);
        let mut backoff = ResubscribeBackoff::new(Pauses::new(second, 4 * second));
        let mut now = at(100_000);
        let mut waits = Vec::new();
        for _ in 0..6 {
            backoff.died(now);
            let due = backoff.due.take().unwrap();
            waits.push(due.since(now).as_secs());
            now = due;
        }
        assert_eq!(waits, [0, 1, 2, 4, 4, 4]);
        backoff.died(at(1_000_000));
        assert_eq!(backoff.due, Some(at(1_000_000)), "it lived for long");
    }
}
