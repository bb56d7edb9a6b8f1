//! Pauses that double up to a longest one, and the jitter that spreads them.

use core::time::Duration;

/// Pauses that double from a first to a longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    first: Duration,
    longest: Duration,
}

impl Pauses {
    /// Between tries of what fails: a tenth of a second to two minutes.
    pub const BACKOFF: Self = Self::new(Duration::from_millis(100), Duration::from_mins(2));
    /// Between heals of a key that another program keeps undoing: a fifth of a second to half a minute.
    pub const CONTENTION: Self = Self::new(Duration::from_millis(200), Duration::from_secs(30));

    /// The least first pause: none at all would be a hot loop.
    const SHORTEST: Duration = Duration::from_millis(1);

    /// Pauses from `first` (a millisecond at least) to `longest` (`first` at least).
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        let first = longer(first, Self::SHORTEST);
        Self { first, longest: longer(longest, first) }
    }

    /// The pause after the `nth` failure in a row, counted from one.
    #[must_use]
    pub fn nth(self, nth: u32) -> Duration {
        let doublings = nth.saturating_sub(1).min(u32::BITS - 1);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// The longest pause that there is.
    #[must_use]
    pub const fn longest(self) -> Duration {
        self.longest
    }
}

// `Ord::max` is not const.
const fn longer(a: Duration, b: Duration) -> Duration {
    if a.as_nanos() < b.as_nanos() { b } else { a }
}

/// A small generator of random shares, the same for the same seed. Not for secrets.
#[derive(Clone, Debug)]
pub(super) struct Jitter(u64);

impl Jitter {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random share of `whole`, from nothing to all of it.
    pub(super) fn share(&mut self, whole: Duration) -> Duration {
        // The high half of a number is its random one; the sum fits, as a share is at most a whole.
        let share = self.roll() >> 32;
        let nanos = whole.as_nanos().saturating_mul(u128::from(share)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    // The splitmix64 sequence: a counter whose bits are mixed, so any seed will do.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = Pauses::new(SECOND, 5 * SECOND);
        let got: Vec<_> = (1..6).map(|nth| pauses.nth(nth).as_secs()).collect();
        assert_eq!(got, [1, 2, 4, 5, 5]);
        assert_eq!(pauses.nth(u32::MAX), 5 * SECOND);
    }

    #[test]
    fn no_pause_is_ever_empty() {
        let pauses = Pauses::new(Duration::ZERO, Duration::ZERO);
        assert_eq!((pauses.nth(0), pauses.longest()), (Pauses::SHORTEST, Pauses::SHORTEST));
        assert_eq!(Pauses::new(2 * SECOND, SECOND).longest(), 2 * SECOND);
    }

    #[test]
    fn shares_are_spread_over_the_whole_and_repeat_with_the_seed() {
        let roll = |seed| {
            let mut jitter = Jitter::new(seed);
            (0..1_000).map(|_| jitter.share(SECOND).as_millis() / 100).collect::<Vec<_>>()
        };
        for tenth in 0..10 {
            let count = roll(7).iter().filter(|share| **share == tenth).count();
            assert!((60..140).contains(&count), "{count} in tenth {tenth}");
        }
        assert_eq!(roll(7), roll(7));
        assert_ne!(roll(7), roll(8));
        assert!(Jitter::new(1).share(Duration::MAX) <= Duration::MAX);
    }
}
