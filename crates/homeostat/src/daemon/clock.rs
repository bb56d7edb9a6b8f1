//! The time of day, for people and logs. Nothing is decided by it but whether files were left alone.

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

/// How long ago this was; nothing for a time in the future.
pub(crate) fn age(time: SystemTime) -> Option<Duration> {
    time.elapsed().ok()
}

const DAY: u64 = 24 * 60 * 60;

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = date(seconds / DAY);
        let (hour, minute) = (seconds % DAY / 3600, seconds % 3600 / 60);
        let (second, millis) = (seconds % 60, self.0.subsec_millis());
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// The date of a day since 1970. Years are counted from March, so that the leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let days = days + 719_468;
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / (ERA - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, turn) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + turn, month, day)
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
