//! Durations such as `"30s"`, and shares such as `"50%"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::shape::{Text, ValueError};

/// A span of time, at most a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(Duration);

/// A share from 0 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u8);

const UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const LONGEST: u64 = 366 * 86_400_000;

impl Period {
    /// The time itself.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl Percent {
    /// The number before the `%`.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl FromStr for Period {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refuse = || {
            ValueError::is_not(text, "a duration")
                .help("write a whole number and a unit: \"100ms\", \"30s\", \"5m\", \"1h\", \"2d\"")
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits).ok_or_else(refuse)?;
        let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?.1;
        let number: u64 = number.parse().map_err(|_| refuse())?;
        match number.checked_mul(scale) {
            Some(millis) if millis <= LONGEST => Ok(Self(Duration::from_millis(millis))),
            _ => Err(ValueError::new(format!("`{text}` is longer than a year"))),
        }
    }
}

impl TryFrom<String> for Period {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

/// In the largest unit that needs no fraction.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(LONGEST);
        let mut fitting = UNITS.iter().rev().filter(|(_, scale)| millis.is_multiple_of(*scale));
        match fitting.next() {
            Some((name, scale)) if millis > 0 => write!(f, "{}{name}", millis / scale),
            _ => f.write_str("0s"),
        }
    }
}

impl Text for Period {
    const WHAT: &'static str = "a duration such as \"30s\"";
    const ZERO: Option<&'static str> = Some("0s");

    fn from_text(text: &str) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl Text for Percent {
    const WHAT: &'static str = "a share such as \"50%\"";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let number = text.strip_suffix('%').filter(|text| !text.starts_with('+'));
        let number = number.and_then(|text| text.parse().ok()).filter(|number| *number <= 100);
        number
            .map(Self)
            .ok_or_else(|| ValueError::is_not(text, "a share").help("write \"0%\" to \"100%\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, millis) in [("100ms", 100), ("30s", 30_000), ("5m", 300_000), ("0s", 0)] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.get(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "5", "s", "-5s", "5 s", "1.5s", "5sec", "99999999999999999999s", "400d"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_is_written_as_a_person_would() {
        for text in ["100ms", "1500ms", "30s", "90s", "5m", "1h", "2d", "0s"] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.to_string(), text);
        }
        assert_eq!("60s".parse::<Period>().unwrap().to_string(), "1m");
    }

    #[test]
    fn shares_need_their_sign() {
        assert_eq!(Percent::from_text("50%").unwrap().get(), 50);
        for text in ["", "%", "50", "101%", "-1%", "+5%", "5 %", "0.5%"] {
            assert!(Percent::from_text(text).is_err(), "{text}");
        }
    }
}
