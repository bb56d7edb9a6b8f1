//! When everything is looked at again, whatever the hints said.

use core::time::Duration;

use super::pauses::Jitter;
use super::time::Time;

/// The timer of full passes. It cannot be switched off, only lengthened.
///
/// 1. A full pass is due one period after the *start* of the last one, whatever that one's reason
///    was and however it ended.
/// 2. Each period is up to a tenth shorter or longer, at random by the seed, so that many loops do
///    not stay in step.
#[derive(Clone, Debug)]
pub struct Resync {
    period: Duration,
    jitter: Jitter,
    due: Time,
}

/// A period that would be a hot loop, or as good as none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the resync period of {period:?} is not between {:?} and {:?}",
    Resync::SHORTEST,
    Resync::LONGEST
)]
#[non_exhaustive]
pub struct PeriodRefused {
    /// What was asked for.
    pub period: Duration,
}

impl Resync {
    /// The least period.
    pub const SHORTEST: Duration = Duration::from_millis(100);
    /// The longest period: a whole day.
    pub const LONGEST: Duration = Duration::from_hours(24);

    /// The timer of a loop that has not looked at anything yet: it is due at once.
    pub fn new(period: Duration, seed: u64) -> Result<Self, PeriodRefused> {
        if !(Self::SHORTEST..=Self::LONGEST).contains(&period) {
            return Err(PeriodRefused { period });
        }
        Ok(Self::nearest(period, seed))
    }

    /// The same with the nearest period that is let through.
    #[must_use]
    pub fn nearest(period: Duration, seed: u64) -> Self {
        let period = period.clamp(Self::SHORTEST, Self::LONGEST);
        Self { period, jitter: Jitter::new(seed), due: Time::EPOCH }
    }

    /// A full pass starts now, for whatever reason.
    pub fn started(&mut self, now: Time) {
        let spread = self.jitter.share(self.period / 5);
        self.due = now.after(self.period * 9 / 10).after(spread);
    }

    /// When the next full pass is due. There always is one.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.due
    }

    /// Whether a full pass is due.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.due <= now
    }

    /// The period before it is spread.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }
}
