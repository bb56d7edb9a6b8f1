//! Times of the week at which a machine takes new documents. Pure: `now` is an argument.

use std::time::Duration;

use homeostat_document::{Text, ValueError};
use homeostat_fleet::Time;

/// Some days, and a time of day in UTC that may end on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// From Monday; all of them if none is written.
    days: [bool; 7],
    /// Minutes since midnight.
    begin: u64,
    length: u64,
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY: u64 = 24 * 60;
/// 1970 began on a Thursday.
const FIRST_DAY: u64 = 3;
const MINUTE: Duration = Duration::from_mins(1);

impl Text for Window {
    const WHAT: &'static str = "a maintenance window";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let refused = || {
            ValueError::is_not(text, Self::WHAT).help(
                "write \"02:00-04:00\", \"Sat,Sun 22:00-04:00\" or \"Mon-Fri 02:00-04:00\", in UTC",
            )
        };
        let (days, times) = match text.split_once(' ') {
            Some((days, times)) => (days_of(days).ok_or_else(refused)?, times),
            None => ([true; 7], text),
        };
        let (begin, end) = times.split_once('-').ok_or_else(refused)?;
        let (begin, end) = minute_of(begin).zip(minute_of(end)).ok_or_else(refused)?;
        let length = (DAY + end - begin) % DAY;
        // The same time twice is a whole day.
        Ok(Window { days, begin: begin % DAY, length: if length == 0 { DAY } else { length } })
    }
}

fn days_of(text: &str) -> Option<[bool; 7]> {
    let number = |day: &str| DAYS.iter().position(|one| one.eq_ignore_ascii_case(day));
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = number(first).zip(number(last))?;
        let count = (7 + last - first) % 7;
        days.iter_mut()
            .enumerate()
            .for_each(|(day, is_in)| *is_in |= (7 + day - first) % 7 <= count);
    }
    Some(days)
}

fn minute_of(text: &str) -> Option<u64> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.len() == 2);
    let (hour, minute) = number(hour).zip(number(minute))?;
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= DAY).then_some(minutes)
}

impl Window {
    pub(super) fn is_open(&self, now: Time) -> bool {
        let minutes = now.as_millis() / u64::try_from(MINUTE.as_millis()).unwrap_or(1);
        // One that began on the day before may still be open.
        [0, 1].into_iter().any(|days_ago| {
            let Some(day) = (minutes / DAY).checked_sub(days_ago) else { return false };
            let weekday = usize::try_from((day + FIRST_DAY) % 7).unwrap_or_default();
            let begin = day * DAY + self.begin;
            let is_day = self.days.get(weekday).copied().unwrap_or_default();
            is_day && (begin..begin + self.length).contains(&minutes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(window: &str, open: &[&str], closed: &[&str]) {
        let parsed = Window::from_text(window).unwrap();
        for time in open {
            assert!(parsed.is_open(time.parse().unwrap()), "{window} at {time}");
        }
        for time in closed {
            assert!(!parsed.is_open(time.parse().unwrap()), "{window} at {time}");
        }
    }

    #[test]
    fn a_window_is_open_on_its_days_and_over_midnight() {
        // 2026-11-18 is a Wednesday.
        let (early, late) = ("2026-11-18T01:59:59Z", "2026-11-18T04:00:00Z");
        let within = ["2026-11-18T02:00:00Z", "2026-11-18T03:59:59Z"];
        check("02:00-04:00", &within, &[early, late]);
        check("Wed 02:00-04:00", &within, &[early, late, "2026-11-19T03:00:00Z"]);
        check("Mon-Fri 02:00-04:00", &within, &["2026-11-21T03:00:00Z"]);
        let weekend = ["2026-11-21T23:00:00Z", "2026-11-22T03:59:00Z", "2026-11-23T03:59:00Z"];
        check("Sat,Sun 22:00-04:00", &weekend, &["2026-11-21T03:00:00Z", "2026-11-23T04:00:00Z"]);
        check("Sun-Mon 00:00-24:00", &["2026-11-22T12:00:00Z", "2026-11-23T23:59:59Z"], &[early]);
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "",
            "02:00",
            "2:00-4:00",
            "25:00-26:00",
            "02:60-03:00",
            "Xyz 02:00-03:00",
            "Sat  02:00-03:00",
        ] {
            assert!(Window::from_text(text).is_err(), "{text:?}");
        }
    }
}
