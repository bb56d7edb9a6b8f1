//! Moments of the wall clock, as records write them. Nothing here reads a clock.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::Error;

/// Milliseconds since 1970; as text, `2026-03-01T12:00:00.250Z`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct Time(u64);

impl Time {
    #[must_use]
    pub const fn of_millis(millis: u64) -> Self {
        Time(millis)
    }

    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Nothing if it is in the future.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Time(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl FromStr for Time {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let time: Result<jiff::Timestamp, _> = text.parse();
        let millis = time.ok().and_then(|time| u64::try_from(time.as_millisecond()).ok());
        millis.map(Time).ok_or_else(|| Error::Time { text: text.chars().take(64).collect() })
    }
}

impl TryFrom<String> for Time {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

impl From<SystemTime> for Time {
    /// A clock that stands before 1970 stands at 1970.
    fn from(time: SystemTime) -> Self {
        Time(0).after(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        if self.0.is_multiple_of(1000) { write!(f, "{time:.0}") } else { write!(f, "{time:.3}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_it_was_written() {
        for text in ["1970-01-01T00:00:00Z", "2026-11-16T10:00:00Z", "2026-11-16T10:00:00.250Z"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        let east: Time = "2026-11-16T11:00:00+01:00".parse().unwrap();
        assert_eq!(east.to_string(), "2026-11-16T10:00:00Z");
        for text in ["", "2026-11-16", "2026-11-16T10:00:00", "1969-01-01T00:00:00Z", "now"] {
            assert!(text.parse::<Time>().is_err(), "{text:?}");
        }
    }
}
