//! How long wakeups are gathered before a pass. Every policy has an upper bound on the wait.

use core::time::Duration;

use super::time::Time;

/// How hints are paced. The variants are built by [`Policy::refractory`] and [`Policy::quiet`],
/// which let through only what has a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The first hint fires at once; later ones fire together at the end of its window, which
    /// counts from the start of a pass and is never extended.
    #[non_exhaustive]
    Refractory {
        /// The least time between the starts of two passes.
        min_interval: Duration,
    },
    /// Hints fire together after a pause without any, or after the longest wait.
    #[non_exhaustive]
    Quiet {
        /// The pause that ends the gathering.
        quiet: Duration,
        /// The longest time that the first of the hints waits.
        max_wait: Duration,
    },
}

impl Policy {
    /// The upper bound of `max_wait`; without it, a huge one would hide changes for ever.
    pub const LONGEST_WAIT: Duration = Duration::from_hours(1);

    /// Leading edge, then at most one pass per `min_interval`.
    #[must_use]
    pub const fn refractory(min_interval: Duration) -> Self {
        Self::Refractory { min_interval }
    }

    /// Trailing edge with a bound. Refuses a `max_wait` below `quiet` or above [`Policy::LONGEST_WAIT`].
    pub fn quiet(quiet: Duration, max_wait: Duration) -> Result<Self, PolicyError> {
        if max_wait < quiet {
            return Err(PolicyError::WaitBelowQuiet { quiet, max_wait });
        }
        if max_wait > Self::LONGEST_WAIT {
            return Err(PolicyError::WaitTooLong { max_wait });
        }
        Ok(Self::Quiet { quiet, max_wait })
    }

    /// When hints that came first and last at these moments may fire, if the last pass began at
    /// `fired`.
    pub(super) fn due(self, first: Time, last: Time, fired: Option<Time>) -> Time {
        match self {
            Self::Refractory { min_interval } => {
                fired.map_or(first, |fired| first.max(fired.after(min_interval)))
            }
            Self::Quiet { quiet, max_wait } => last.after(quiet).min(first.after(max_wait)),
        }
    }
}

/// A leading edge with a tenth of a second between passes.
impl Default for Policy {
    fn default() -> Self {
        Self::refractory(Duration::from_millis(100))
    }
}

/// Why a policy was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The quiet period could never be waited out.
    #[error("the longest wait of {max_wait:?} is shorter than the quiet period of {quiet:?}")]
    WaitBelowQuiet {
        /// The quiet period that was asked for.
        quiet: Duration,
        /// The longest wait that was asked for.
        max_wait: Duration,
    },
    /// Steady hints could delay a pass without an end.
    #[error("the longest wait of {max_wait:?} is over the limit of {:?}", Policy::LONGEST_WAIT)]
    WaitTooLong {
        /// The longest wait that was asked for.
        max_wait: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_quiet_period_needs_a_bound_that_it_fits_in() {
        let refused = Policy::quiet(2 * SECOND, SECOND).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the longest wait of 1s is shorter than the quiet period of 2s"
        );
        assert!(Policy::quiet(SECOND, SECOND).is_ok());
    }

    #[test]
    fn an_unbounded_wait_cannot_be_expressed() {
        let refused = Policy::quiet(SECOND, Duration::MAX);
        assert_eq!(refused, Err(PolicyError::WaitTooLong { max_wait: Duration::MAX }));
        assert!(Policy::quiet(SECOND, Policy::LONGEST_WAIT).is_ok());
    }
}
