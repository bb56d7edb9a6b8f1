//! How often an API may be called to write: a bucket of tokens. Pure: `now` is an argument.

use std::time::Duration;

/// So many writes at once, and so many a second after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// How many writes may come at once.
    pub burst: u32,
    /// How many a second are allowed in the long run.
    pub per_second: f64,
}

/// The tokens that are left of a limit.
#[derive(Clone, Debug)]
pub struct Bucket {
    limit: Limit,
    tokens: f64,
    filled: Duration,
}

impl Bucket {
    /// Full at the time zero.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Bucket { limit, tokens: f64::from(limit.burst), filled: Duration::ZERO }
    }

    /// Takes a token, or tells how long to wait for one. `now` counts from the time zero; a clock that
    /// goes back fills nothing.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        let full = f64::from(self.limit.burst).max(1.0);
        self.tokens = (self.tokens + passed * self.limit.per_second).min(full);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - self.tokens) / self.limit.per_second;
        // A rate of nothing would be an endless wait: an hour is as good as one.
        Err(Duration::try_from_secs_f64(missing).unwrap_or(Duration::from_hours(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn near(wait: Duration, expected: Duration) -> bool {
        wait.abs_diff(expected) < MILLI
    }

    #[test]
    fn a_burst_goes_through_and_then_the_rate_holds() {
        let mut bucket = Bucket::new(Limit { burst: 2, per_second: 10.0 });
        assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        let wait = bucket.take(Duration::ZERO).unwrap_err();
        assert!(near(wait, 100 * MILLI), "{wait:?}");
        assert!(bucket.take(60 * MILLI).is_err());
        assert_eq!(bucket.take(101 * MILLI), Ok(()));
    }

    #[test]
    fn idle_time_fills_no_more_than_the_burst() {
        let mut bucket = Bucket::new(Limit { burst: 2, per_second: 10.0 });
        let later = Duration::from_hours(1);
        assert_eq!((bucket.take(later), bucket.take(later)), (Ok(()), Ok(())));
        assert!(bucket.take(later).is_err());
    }

    #[test]
    fn a_clock_that_goes_back_fills_nothing_and_a_rate_of_nothing_waits_long() {
        let mut bucket = Bucket::new(Limit { burst: 1, per_second: 0.0 });
        assert_eq!(bucket.take(Duration::from_secs(9)), Ok(()));
        assert_eq!(bucket.take(Duration::from_secs(1)), Err(Duration::from_hours(1)));
    }
}
