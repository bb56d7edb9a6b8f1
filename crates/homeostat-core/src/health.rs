//! Whether something is healthy, by a check that runs again and again. Pure: `now` is an argument, and results are
//! handed in.
//!
//! One failure proves little, and neither does one success: only a row of them counts. What fails again soon after it
//! came back waits longer each time, so that it does not flap. Start at [`Health::record`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::pacing::Time;

/// What has to be healthy, and how that is found out: what a declaration says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names of its fields say it")]
#[non_exhaustive]
pub struct Condition {
    pub check: Check,
    /// How often it runs; one that takes longer runs again as soon as it has ended.
    pub every: Duration,
    /// So many failures in a row and it is failing; at least one.
    pub fall: u32,
    /// So many successes in a row and it is good; at least one.
    pub rise: u32,
}

impl Condition {
    /// A check with the usual numbers: every second, three failures, two successes.
    #[must_use]
    pub fn new(check: Check) -> Self {
        Condition { check, every: Duration::from_secs(1), fall: 3, rise: 2 }
    }
}

/// What is known of a condition.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Neither enough successes nor enough failures in a row yet.
    #[default]
    Undecided,
    /// It holds.
    Good,
    /// It does not.
    Failing,
}

/// A failure within this time after it came back is a flap.
pub const CALM: Duration = Duration::from_mins(10);
/// How long the first flap keeps it from coming back. Each further one doubles that.
pub const FIRST_HOLD: Duration = Duration::from_secs(10);
/// The longest that flaps keep it from coming back.
pub const LONGEST_HOLD: Duration = Duration::from_mins(5);

/// How one condition stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    state: State,
    since: Option<Time>,
    row: Row,
    /// When it last came back after a failure.
    returned: Option<Time>,
    /// How often in a row it failed soon after it had come back.
    flaps: u32,
    /// It does not come back before.
    held_until: Option<Time>,
    reason: Option<String>,
}

/// Equal results in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    is_good: bool,
    count: u32,
}

impl Row {
    fn add(&mut self, is_good: bool) -> u32 {
        let count = if self.is_good == is_good { self.count.saturating_add(1) } else { 1 };
        *self = Row { is_good, count };
        count
    }
}

impl Health {
    /// Learns the result of one run, an error being why it failed. Returns whether the state is another one now.
    pub fn record(&mut self, by: &Condition, result: Result<(), String>, now: Time) -> bool {
        let count = self.row.add(result.is_ok());
        let next = match &result {
            Ok(()) if count >= by.rise.max(1) && !self.is_held(now) => State::Good,
            Err(_) if count >= by.fall.max(1) => State::Failing,
            _ => self.state,
        };
        if let Err(why) = result {
            self.reason = Some(why);
        }
        if next == self.state {
            return false;
        }
        match (self.state, next) {
            (State::Failing, State::Good) => self.returned = Some(now),
            (_, State::Failing) => self.hold(now),
            _ => {}
        }
        (self.state, self.since) = (next, Some(now));
        true
    }

    /// Begins a withdrawal: if it came back only a short time ago, it is kept from coming back.
    fn hold(&mut self, now: Time) {
        let is_flap = self.returned.is_some_and(|returned| now.since(returned) < CALM);
        self.flaps = if is_flap { self.flaps.saturating_add(1) } else { 0 };
        let doubled = self.flaps.checked_sub(1).map(|times| 1u32.checked_shl(times));
        self.held_until = doubled.map(|factor| {
            let hold = factor.and_then(|factor| FIRST_HOLD.checked_mul(factor));
            now.after(hold.unwrap_or(LONGEST_HOLD).min(LONGEST_HOLD))
        });
    }

    fn is_held(&self, now: Time) -> bool {
        self.state == State::Failing && self.held_until.is_some_and(|until| now < until)
    }

    /// What is known.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Since when; none while nothing is decided.
    #[must_use]
    pub fn since(&self) -> Option<Time> {
        self.since
    }

    /// Why it failed the last time, if it ever did.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Until when flaps keep it from coming back, if they do.
    #[must_use]
    pub fn held_until(&self, now: Time) -> Option<Time> {
        self.held_until.filter(|_| self.is_held(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_epoch(Duration::from_secs(seconds))
    }

    fn condition(fall: u32, rise: u32) -> Condition {
        Condition { fall, rise, ..Condition::new("ping:192.0.2.1".parse().unwrap()) }
    }

    fn result(is_good: bool) -> Result<(), String> {
        if is_good { Ok(()) } else { Err("no answer".to_owned()) }
    }

    /// The states after each result, `+` and `-`, one a second.
    fn states(by: &Condition, results: &str) -> String {
        let mut health = Health::default();
        let record = |(second, sign)| {
            health.record(by, result(sign == '+'), at(second));
            match health.state() {
                State::Undecided => '?',
                State::Good => 'g',
                State::Failing => 'f',
            }
        };
        (0..).zip(results.chars()).map(record).collect()
    }

    #[test]
    fn only_a_row_of_equal_results_decides() {
        for (fall, rise, results, expected) in [
            (3, 2, "++++", "?ggg"),
            (3, 2, "---+", "??ff"),
            (3, 2, "+-+-+-", "??????"),
            (3, 2, "++--+--+---", "?gggggggggf"),
            (3, 2, "---++", "??ffg"),
            (3, 2, "---+-++", "??ffffg"),
            (1, 1, "+-+", "gfg"),
            (1, 3, "-+++", "fffg"),
        ] {
            assert_eq!(
                states(&condition(fall, rise), results),
                expected,
                "{fall} {rise} {results}"
            );
        }
    }

    #[test]
    fn the_first_failure_is_not_damped_and_each_one_soon_after_a_return_doubles_the_wait() {
        let by = condition(1, 1);
        let (mut health, mut now, mut waits) = (Health::default(), 0, Vec::new());
        health.record(&by, result(true), at(now));
        for _ in 0..8 {
            now += 1;
            assert!(health.record(&by, result(false), at(now)));
            let failed = now;
            while health.state() == State::Failing {
                now += 1;
                health.record(&by, result(true), at(now));
            }
            waits.push(now - failed);
        }
        assert_eq!(waits, [1, 10, 20, 40, 80, 160, 300, 300]);
        // After a calm time it is as at the first.
        now += CALM.as_secs();
        assert!(health.record(&by, result(false), at(now)));
        assert_eq!(health.held_until(at(now)), None);
        assert!(health.record(&by, result(true), at(now + 1)));
    }

    #[test]
    fn status_says_since_when_and_why_and_until_when_it_is_held() {
        let by = condition(1, 1);
        let mut health = Health::default();
        assert_eq!((health.since(), health.reason()), (None, None));
        for (second, is_good) in [(1, false), (2, true), (3, false), (4, true)] {
            health.record(&by, result(is_good), at(second));
        }
        assert_eq!(health.state(), State::Failing);
        assert_eq!(health.since(), Some(at(3)));
        assert_eq!(health.reason(), Some("no answer"));
        assert_eq!(health.held_until(at(5)), Some(at(13)));
        assert_eq!(health.held_until(at(13)), None);
    }

    proptest! {
        /// Whatever comes: it falls and rises only by a row of that many, never comes back before its hold ends, is never
        /// held longer than the longest, and good results for long enough bring it back.
        #[test]
        fn no_row_of_results_breaks_the_rules(
            fall in 1u32..5, rise in 1u32..5,
            results in proptest::collection::vec((any::<bool>(), 1u64..200), 0..200),
        ) {
            let by = condition(fall, rise);
            let (mut health, mut now, mut row) = (Health::default(), 0, (false, 0));
            for (is_good, pause) in results {
                now += pause;
                row = if row.0 == is_good { (is_good, row.1 + 1) } else { (is_good, 1) };
                let before = health.clone();
                let has_changed = health.record(&by, result(is_good), at(now));
                prop_assert_eq!(has_changed, before.state() != health.state());
                if has_changed {
                    let needed = if health.state() == State::Good { rise } else { fall };
                    prop_assert!(row.1 >= needed);
                    prop_assert_eq!(row.0, health.state() == State::Good);
                    prop_assert_eq!(health.since(), Some(at(now)));
                    prop_assert!(before.held_until(at(now)).is_none() || health.state() != State::Good);
                } else if row.0 && row.1 >= rise {
                    prop_assert!(health.state() == State::Good || health.held_until(at(now)).is_some());
                } else if !row.0 && row.1 >= fall {
                    prop_assert_eq!(health.state(), State::Failing);
                }
                if let Some(until) = health.held_until(at(now)) {
                    prop_assert!(until.since(at(now)) <= LONGEST_HOLD);
                }
            }
            for _ in 0..=rise + 1 {
                now += LONGEST_HOLD.as_secs();
                health.record(&by, Ok(()), at(now));
            }
            prop_assert_eq!(health.state(), State::Good);
        }
    }
}
