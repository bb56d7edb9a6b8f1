//! Times as a bridge keeps them: in hundredths of a second.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::links::kinds::Alike;

/// Hundredths of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Centis(pub u32);

/// A text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no time such as 15s or 150ms")]
pub struct NotATime(pub String);

impl From<Duration> for Centis {
    fn from(time: Duration) -> Self {
        Centis(u32::try_from(time.as_millis() / 10).unwrap_or(u32::MAX))
    }
}

impl Alike for Centis {
    /// Quirk `bridge-times-in-ticks` (Linux 6.18): with 250 ticks a second an odd number of
    /// hundredths reads back one lower (`ip link set br0 type bridge hello_time 199`).
    fn is_alike(&self, seen: &Self) -> bool {
        self.0 == seen.0 || self.0.checked_sub(1) == Some(seen.0)
    }
}

impl fmt::Display for Centis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 100 {
            0 => write!(f, "{}s", self.0 / 100),
            _ => write!(f, "{}ms", u64::from(self.0) * 10),
        }
    }
}

impl FromStr for Centis {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        let millis = text.strip_suffix("ms").and_then(|number| number.parse().ok());
        let seconds = || text.strip_suffix('s').and_then(|number| number.parse().ok());
        let time = millis.map(Duration::from_millis).or_else(|| seconds().map(Duration::from_secs));
        time.map(Centis::from).ok_or_else(|| NotATime(text.to_owned()))
    }
}

impl TryFrom<String> for Centis {
    type Error = NotATime;

    fn try_from(text: String) -> Result<Self, NotATime> {
        text.parse()
    }
}

impl From<Centis> for String {
    fn from(time: Centis) -> String {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_from_its_own_text() {
        for (text, centis) in [("15s", 1500), ("150ms", 15), ("1990ms", 199), ("0s", 0)] {
            let time: Centis = text.parse().unwrap();
            assert_eq!((time.0, time.to_string().as_str()), (centis, text));
        }
        assert!("15".parse::<Centis>().is_err() && "s".parse::<Centis>().is_err());
    }

    #[test]
    fn a_tick_less_is_as_declared_and_a_tick_more_is_not() {
        let desired = Centis(199);
        assert!(desired.is_alike(&Centis(199)) && desired.is_alike(&Centis(198)));
        assert!(!desired.is_alike(&Centis(197)) && !desired.is_alike(&Centis(200)));
    }
}
