//! The clocks that deadlines of terms are on.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A clock that only goes forward.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time since some moment that stays the same.
    fn now(&self) -> Duration;
}

/// The clock that counts from the boot. It goes on while the machine sleeps, as the leases of a store do, and cannot be
/// set.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootTime;

impl Clock for BootTime {
    fn now(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
    }
}

/// The clock of the runtime, for tests in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeTime(tokio::time::Instant);

impl RuntimeTime {
    /// Counts from now.
    #[must_use]
    pub fn new() -> Self {
        RuntimeTime(tokio::time::Instant::now())
    }
}

impl Default for RuntimeTime {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RuntimeTime {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
