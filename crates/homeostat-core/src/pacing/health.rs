//! Distinguishes a loop that is stuck from one that has nothing to do.

use core::time::Duration;

use super::time::Time;

/// Watches the passes of one source from outside. Idle is healthy.
///
/// 1. A pass that runs for longer than its deadline is a stall.
/// 2. Ready work that waited for too long is a stall, also while passes come and go.
/// 3. A full pass that did not start within one and a half periods is a stall. A running pass is
///    judged by the moment it started, so that a slow one is not also late; after its end the full
///    pass has half a period to start.
/// 4. A paused loop owes only the end of the pass that still runs.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    bounds: Bounds,
    running: Option<Time>,
    ended: Time,
    full: Time,
    ready: Option<Time>,
    is_paused: bool,
}

/// How long things may take in a healthy loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The deadline of a pass.
    pub pass: Duration,
    /// The longest wait of ready work; longer than a pass, or each slow pass would be two stalls.
    pub ready: Duration,
    /// The period of the resync.
    pub resync: Duration,
}

/// What is stuck, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stall {
    /// A pass does not end.
    #[error("a pass has been running for {0:?}")]
    Pass(Duration),
    /// Ready work is not taken.
    #[error("work has been ready for {0:?}")]
    Ready(Duration),
    /// Full passes do not start.
    #[error("the last full pass started {0:?} ago")]
    Resync(Duration),
}

impl Health {
    /// A loop that begins now, and owes its first full pass.
    #[must_use]
    pub fn new(bounds: Bounds, now: Time) -> Self {
        Self { bounds, running: None, ended: now, full: now, ready: None, is_paused: false }
    }

    /// A focused pass starts.
    pub fn started(&mut self, now: Time) {
        self.running = Some(now);
    }

    /// A full pass starts.
    pub fn started_full(&mut self, now: Time) {
        self.started(now);
        self.full = now;
    }

    /// The pass has ended, well or not.
    pub fn ended(&mut self, now: Time) {
        self.ended = now;
        self.running = None;
    }

    /// Since when the oldest ready work waits; `None` if there is none.
    pub fn ready(&mut self, since: Option<Time>) {
        self.ready = since;
    }

    /// The loop was paused: it owes nothing until it is resumed.
    pub fn paused(&mut self) {
        self.is_paused = true;
    }

    /// The loop goes on, and what it owes counts from here.
    pub fn resumed(&mut self, now: Time) {
        self.is_paused = false;
        (self.full, self.ended) = (now, now);
        self.ready = self.ready.map(|_| now);
    }

    /// What is stuck, if anything is.
    #[must_use]
    pub fn stalled(&self, now: Time) -> Option<Stall> {
        let longer = |since: Option<Time>, bound: Duration| {
            since.map(|since| now.since(since)).filter(|length| *length > bound)
        };
        let pass = longer(self.running, self.bounds.pass).map(Stall::Pass);
        if self.is_paused {
            return pass;
        }
        let ready = || longer(self.ready, self.bounds.ready).map(Stall::Ready);
        pass.or_else(ready).or_else(|| self.resync_overdue(now).map(Stall::Resync))
    }

    fn resync_overdue(&self, now: Time) -> Option<Duration> {
        let half = self.bounds.resync / 2;
        let due = self.full.after(self.bounds.resync).after(half);
        let is_late = match self.running {
            Some(since) => since > due,
            None => now > due.max(self.ended.after(half)),
        };
        is_late.then(|| now.since(self.full))
    }
}
