//! A moment on the driver's clock, as a distance from an epoch that only the driver knows.

use core::time::Duration;

/// A moment on the driver's clock, which never goes back; the arithmetic saturates instead of panicking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Duration);

impl Time {
    /// The driver's epoch.
    pub const EPOCH: Self = Self(Duration::ZERO);

    /// The moment that lies `distance` after the driver's epoch.
    #[must_use]
    pub const fn from_epoch(distance: Duration) -> Self {
        Self(distance)
    }

    /// How far this moment lies after the driver's epoch.
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        self.0
    }

    /// The moment `wait` later, or the last one there is.
    #[must_use]
    pub const fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
