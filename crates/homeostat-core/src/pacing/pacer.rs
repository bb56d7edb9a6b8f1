//! Paces the full passes of one source.

use core::time::Duration;

use super::policy::Policy;
use super::reasons::Reasons;
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
/// 5. Nothing is flushed: dropping a pacer loses what is pending, as the next start looks at
///    everything anyway.
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
#[non_exhaustive]
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
    /// A pacer before its first full pass: it waits for a command, usually [`Reason::Start`](super::Reason::Start).
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self { policy, is_synced: false, is_running: false, fired: None, pending: None }
    }

    /// Takes a wakeup that may be merged and may wait: a hint, a new desired state, lost hints.
    pub fn on_paced(&mut self, reasons: impl Into<Reasons>, now: Time) {
        self.merge(reasons.into(), Urgency::Hint, now);
    }

    /// Takes a command, whatever its reason: say, an input that was held back and is accepted.
    pub fn on_command(&mut self, reasons: impl Into<Reasons>, now: Time) {
        self.merge(reasons.into(), Urgency::Command, now);
    }

    /// When [`fire`](Self::fire) has to be called; `None` until the next wakeup or end of a pass.
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
        if self.deadline()? > now {
            return None;
        }
        let pending = self.pending.take()?;
        self.is_running = true;
        self.fired = Some(now);
        Some(Fired { reasons: pending.reasons, waited: now.since(pending.first) })
    }

    /// The pass has ended, well or not. What was marked while it ran may fire again.
    pub fn finished(&mut self) {
        self.is_running = false;
    }

    /// A full pass has seen everything: from here on hints fire. Without it, a first pass that
    /// failed is followed by commands only (its retry), not by every hint.
    pub fn synced(&mut self) {
        self.is_synced = true;
    }

    /// Whether a full pass has seen everything once.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    fn merge(&mut self, reasons: Reasons, urgency: Urgency, now: Time) {
        let pending =
            self.pending.get_or_insert(Pending { reasons, urgency, first: now, last: now });
        pending.reasons = pending.reasons | reasons;
        pending.urgency = pending.urgency.max(urgency);
        pending.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::Reason;

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
        pacer.synced();
        pacer
    }

    #[test]
    fn a_hint_during_the_first_pass_is_served_after_it() {
        let mut pacer = Pacer::new(Policy::refractory(ms(100)));
        pacer.on_command(Reason::Start, at(0));
        assert!(pacer.fire(at(0)).is_some());
        pacer.on_paced(Reason::Hint, at(30));
        pacer.finished();
        pacer.synced();
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
        pacer.on_paced(Reason::Hint, at(0));
        assert!(pacer.fire(at(0)).is_some());
        pacer.finished();
        pacer.on_paced(Reason::Hint, at(50));
        pacer.on_paced(Reason::Hint, at(200));
        assert!(pacer.fire(at(200)).is_some());
        pacer.finished();
        pacer.on_paced(Reason::Hint, at(200));
        assert_eq!(pacer.fire(at(200)), None, "the tick of the first window is used up");
        assert_eq!(pacer.deadline(), Some(at(400)));
    }

    #[test]
    fn an_end_that_is_recorded_twice_is_harmless() {
        let mut pacer = synced(window());
        pacer.finished();
        pacer.on_paced(Reason::Hint, at(1));
        let fired = Fired { reasons: Reason::Hint.into(), waited: ms(4) };
        assert_eq!(pacer.fire(at(5)), Some(fired));
        pacer.finished();
        pacer.finished();
        assert_eq!((pacer.deadline(), pacer.fire(at(7))), (None, None));
    }

    #[test]
    fn the_end_of_time_is_no_panic() {
        let last = Time::from_epoch(Duration::MAX);
        let mut pacer = synced(Policy::refractory(Duration::MAX));
        pacer.on_paced(Reason::Hint, at(0));
        assert!(pacer.fire(at(0)).is_some());
        pacer.finished();
        pacer.on_paced(Reason::Hint, last);
        assert!(pacer.fire(last).is_some());
    }
}
