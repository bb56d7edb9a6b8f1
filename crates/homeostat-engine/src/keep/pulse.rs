//! The clock of a loop, and whether the loop is stuck; seen from outside, also while a pass blocks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homeostat_core::pacing::{Bounds, Health, Stall, Time};
use tokio::time::Instant;

use super::pace::Pace;

/// Shared by a loop and its handles.
pub(crate) struct Pulse {
    epoch: Instant,
    health: Mutex<Health>,
}

impl Pulse {
    pub(super) fn new(pace: &Pace, epoch: Instant) -> Self {
        let bounds = Bounds {
            pass: pace.deadline,
            ready: pace.deadline + pace.deadline / 2,
            resync: pace.resync.period(),
        };
        Pulse { epoch, health: Mutex::new(Health::new(bounds, Time::EPOCH)) }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_epoch(self.epoch.elapsed())
    }

    pub(super) fn at(&self, time: Time) -> Instant {
        self.epoch + time.since_epoch()
    }

    /// A pass that has panicked leaves the numbers as they are.
    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is due next, or waits already. A moment that lies ahead is no work yet, and becomes so if
    /// nobody comes for it.
    pub(super) fn ready(&self, due: Option<Time>) {
        self.health().ready(due);
    }

    pub(super) fn stalled(&self) -> Option<Stall> {
        self.health().stalled(self.now())
    }
}
