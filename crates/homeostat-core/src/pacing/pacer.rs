//! Paces the full passes of one source.

use core::time::Duration;

use super::policy::Policy;
use super::reasons::{Reason, Reasons};
use super::time::Time;

/// Says when the next full pass of one source starts.
///
/// The driver's loop: hand in wakeups as they come; call [`fire`](Self::fire); if it answers, run
/// the pass and call [`finished`](Self::finished); if not, sleep until
/// [`deadline`](Self::deadline) or the next wakeup.
///
/// 1. Hints are merged and wait as the [`Policy`] says; intervals count from start to start.
/// 2. A command waits for a running pass only. It absorbs the pending hints, and the window
///    begins again with its pass.
/// 3. A wakeup while a pass runs leaves one mark, served by another pass after it.
/// 4. Before [`synced`](Self::synced) only commands fire; the pass they start absorbs the hints.
/// 5. A clock that jumps back costs at most one more interval, and never shortens one.
/// 6. Nothing is flushed: dropping a pacer loses what is pending, as the next start looks at
///    everything anyway. [`pending`](Self::pending) tells what that would be.
#[derive(Clone, Debug)]
pub struct Pacer {
    policy: Policy,
    is_synced: bool,
    is_running: bool,
    fired: Option<Time>,
    pending: Option<Pending>,
}

/// A full pass starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a pass that fired has to run and to be reported as finished"]
pub struct Fired {
    /// All reasons that were merged into this pass.
    pub reasons: Reasons,
    /// How long the oldest of its wakeups waited.
    pub waited: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    reasons: Reasons,
    urgency: Urgency,
    first: Time,
    last: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Hint,
    Command,
}

impl Pacer {
    /// A pacer before its first full pass: it waits for a command, usually [`Reason::Start`].
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, is_synced: false, is_running: false, fired: None, pending: None }
    }

    /// Takes a wakeup, as a hint or as a command by [`Reasons::may_wait`].
    pub fn on_wakeup(&mut self, reasons: impl Into<Reasons>, now: Time) {
        let reasons = reasons.into();
        let urgency = if reasons.may_wait() { Urgency::Hint } else { Urgency::Command };
        self.merge(reasons, urgency, now);
    }

    /// Takes a hint: it may be merged and may wait.
    pub fn on_hint(&mut self, now: Time) {
        self.merge(Reason::Hint.into(), Urgency::Hint, now);
    }

    /// Takes a wakeup that may wait as a hint does: a new desired state, or lost hints.
    pub fn on_paced(&mut self, reasons: impl Into<Reasons>, now: Time) {
        self.merge(reasons.into(), Urgency::Hint, now);
    }

    /// Takes a command, whatever its reason: say, an input that was held back and is accepted.
    pub fn on_command(&mut self, reasons: impl Into<Reasons>, now: Time) {
        self.merge(reasons.into(), Urgency::Command, now);
    }

    /// When [`fire`](Self::fire) has to be called; `None` until the next wakeup or end of a pass.
    ///
    /// Ask after a call that was told `now`, since those make good for a clock that jumped back.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let pending = self.pending.filter(|_| !self.is_running)?;
        match pending.urgency {
            Urgency::Command => Some(pending.first),
            Urgency::Hint if !self.is_synced => None,
            Urgency::Hint => Some(self.policy.due(pending.first, pending.last, self.fired)),
        }
    }

    /// Starts a pass if one is due, with all that was pending.
    pub fn fire(&mut self, now: Time) -> Option<Fired> {
        self.rewind(now);
        if self.deadline()? > now {
            return None;
        }
        let pending = self.pending.take()?;
        self.is_running = true;
        self.fired = Some(now);
        Some(Fired { reasons: pending.reasons, waited: now.since(pending.first) })
    }

    /// The pass has ended, well or not. What was marked while it ran may fire again.
    pub fn finished(&mut self, now: Time) {
        self.rewind(now);
        self.is_running = false;
    }

    /// A full pass has seen everything: from here on hints fire. Without it, a first pass that
    /// failed is followed by commands only (its retry), not by every hint.
    pub fn synced(&mut self, now: Time) {
        self.rewind(now);
        self.is_synced = true;
    }

    /// Whether a full pass has seen everything once.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// The merged reasons of what waits for a pass.
    #[must_use]
    pub fn pending(&self) -> Option<Reasons> {
        self.pending.map(|pending| pending.reasons)
    }

    fn merge(&mut self, reasons: Reasons, urgency: Urgency, now: Time) {
        self.rewind(now);
        let pending =
            self.pending.get_or_insert(Pending { reasons, urgency, first: now, last: now });
        pending.reasons = pending.reasons | reasons;
        pending.urgency = pending.urgency.max(urgency);
        pending.last = now;
    }

    // Moments that lie ahead are left from before the clock jumped back. Taken as they are, they
    // would hold back a pass for as long as the jump was; forgotten, they would end the window.
    fn rewind(&mut self, now: Time) {
        self.fired = self.fired.map(|fired| fired.min(now));
        if let Some(pending) = &mut self.pending {
            pending.first = pending.first.min(now);
            pending.last = pending.last.min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(time: u64) -> Time {
        Time::from_epoch(ms(time))
    }

    fn window() -> Policy {
        Policy::refractory(ms(200))
    }

    fn synced(policy: Policy) -> Pacer {
        let mut pacer = Pacer::new(policy);
        pacer.synced(Time::EPOCH);
        pacer
    }

    #[test]
    fn a_hint_during_the_first_pass_is_served_after_it() {
        let mut pacer = Pacer::new(Policy::refractory(ms(100)));
        pacer.on_wakeup(Reason::Start, at(0));
        assert!(pacer.fire(at(0)).is_some());
        pacer.on_hint(at(30));
        pacer.finished(at(50));
        pacer.synced(at(50));
        assert_eq!(
            pacer.deadline(),
            Some(at(100)),
            "the pass may have looked there before the hint"
        );
    }

    #[test]
    fn a_wakeup_that_comes_with_the_deadline_does_not_fire_twice() {
        // With a timer object beside the state, its stale tick fired again right after the wakeup.
        let mut pacer = synced(window());
        pacer.on_hint(at(0));
        assert!(pacer.fire(at(0)).is_some());
        pacer.finished(at(0));
        pacer.on_hint(at(50));
        pacer.on_hint(at(200));
        assert!(pacer.fire(at(200)).is_some());
        pacer.finished(at(200));
        pacer.on_hint(at(200));
        assert_eq!(pacer.fire(at(200)), None, "the tick of the first window is used up");
        assert_eq!(pacer.deadline(), Some(at(400)));
    }

    #[test]
    fn what_is_pending_is_told_and_lost_with_the_pacer() {
        let mut pacer = synced(window());
        pacer.on_hint(at(0));
        assert!(pacer.fire(at(0)).is_some());
        pacer.finished(at(0));
        pacer.on_wakeup(Reason::Desired, at(20));
        assert_eq!(pacer.pending(), Some(Reason::Desired.into()), "so that a stop can log it");
        let mut next = Pacer::new(window());
        assert_eq!((next.pending(), next.deadline(), next.fire(at(900))), (None, None, None));
    }

    #[test]
    fn an_end_that_is_told_twice_is_harmless() {
        let mut pacer = synced(window());
        pacer.finished(at(0));
        pacer.on_hint(at(1));
        let fired = Fired { reasons: Reason::Hint.into(), waited: ms(4) };
        assert_eq!(pacer.fire(at(5)), Some(fired));
        pacer.finished(at(6));
        pacer.finished(at(6));
        assert_eq!((pacer.deadline(), pacer.fire(at(7))), (None, None));
    }

    #[test]
    fn a_clock_that_jumps_back_neither_ends_the_window_nor_stretches_it_for_long() {
        let mut pacer = synced(window());
        pacer.on_hint(at(1_000_000));
        assert!(pacer.fire(at(1_000_000)).is_some());
        pacer.finished(at(1_000_000));
        pacer.on_hint(at(5_000));
        assert_eq!(pacer.fire(at(5_000)), None, "not at once");
        assert_eq!(
            pacer.deadline(),
            Some(at(5_200)),
            "a whole interval, not the length of the jump"
        );
        let mut pacer = synced(Policy::quiet(ms(100), ms(300)).unwrap());
        pacer.on_hint(at(1_000_000));
        assert_eq!((pacer.fire(at(7_000)), pacer.deadline()), (None, Some(at(7_100))));
        pacer.on_hint(at(7_050));
        assert_eq!(pacer.deadline(), Some(at(7_150)));
        let mut pacer = synced(window());
        pacer.on_command(Reason::Operator, at(1_000_000));
        assert!(pacer.fire(at(0)).is_some(), "a command does not wait for the clock");
    }

    #[test]
    fn the_end_of_time_is_no_panic() {
        let last = Time::from_epoch(Duration::MAX);
        let mut pacer = synced(Policy::refractory(Duration::MAX));
        pacer.on_hint(at(0));
        assert!(pacer.fire(at(0)).is_some());
        pacer.finished(last);
        pacer.on_hint(last);
        assert!(pacer.fire(last).is_some());
    }
}
