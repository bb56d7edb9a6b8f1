//! The time of day, for people and logs. Nothing is decided by it.

use std::fmt;
use std::time::{Duration, SystemTime};

/// A moment of the day; as text, `2026-03-01T12:00:00.250Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Duration);

impl Stamp {
    /// This moment.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub(crate) fn now() -> Self {
        // A clock that stands before 1970 stands at 1970.
        Stamp(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    /// That long ago.
    pub(crate) fn ago(time: Duration) -> Self {
        Stamp(Stamp::now().0.saturating_sub(time))
    }

    /// That many milliseconds after 1970.
    pub(crate) fn of_millis(millis: u64) -> Self {
        Stamp(Duration::from_millis(millis))
    }

    /// Milliseconds since 1970, as the journal has them.
    pub(crate) fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Seconds since 1970, as metrics have them.
    pub(crate) fn as_seconds(self) -> f64 {
        self.0.as_secs_f64()
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = jiff::Timestamp::try_from(SystemTime::UNIX_EPOCH + self.0).unwrap_or_default();
        write!(f, "{time:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_a_person_writes_it() {
        let check = |seconds: u64, expected: &str| {
            assert_eq!(Stamp(Duration::from_millis(seconds * 1000 + 7)).to_string(), expected);
        };
        check(0, "1970-01-01T00:00:00.007Z");
        check(951_782_399, "2000-02-28T23:59:59.007Z");
        check(951_782_400, "2000-02-29T00:00:00.007Z");
        check(1_709_251_199, "2024-02-29T23:59:59.007Z");
        check(1_735_689_599, "2024-12-31T23:59:59.007Z");
        check(4_107_542_400, "2100-03-01T00:00:00.007Z");
    }
}
