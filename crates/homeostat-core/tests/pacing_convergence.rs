//! A step that succeeds and changes nothing is reported and makes no hot loop. Times are
//! milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use homeostat_core::pacing::{Convergence, Pauses, Reason, Time};
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Time {
    Time::from_epoch(ms(time))
}

fn convergence() -> Convergence<&'static str, u32> {
    Convergence::new(Pauses::BACKOFF, 1)
}

/// Tries the key whenever it is due, with these prints, and returns when each try was.
fn tries(
    breaker: &mut Convergence<&'static str, u32>,
    prints: impl Iterator<Item = u32>,
) -> Vec<Time> {
    let mut now = at(0);
    let mut tries = Vec::new();
    for print in prints {
        breaker.missed("a", print, now);
        tries.push(now);
        now = breaker.deadline().unwrap_or_default();
        assert_eq!(breaker.take_due(now), ["a"]);
    }
    tries
}

#[test]
fn the_third_pass_in_a_row_with_the_same_end_is_reported() {
    let mut breaker = convergence();
    for (pass, is_reported) in [(1, false), (2, false), (3, true), (4, true)] {
        breaker.missed("a", 7, at(pass * 10));
        assert_eq!(breaker.report().count() == 1, is_reported, "pass {pass}");
    }
    assert_eq!(breaker.report().collect::<Vec<_>>(), [&"a"]);
}

#[test]
fn two_more_tries_come_at_once_and_then_growing_pauses() {
    let tries = tries(&mut convergence(), std::iter::repeat_n(7, 16));
    assert_eq!(tries.get(..3), Some([at(0); 3].as_slice()));
    for (nth, pair) in (1..).zip(tries.windows(2).skip(2)) {
        let [before, after] = pair else { continue };
        let wait = after.since(*before);
        let pause = Pauses::BACKOFF.nth(nth);
        assert!((pause * 3 / 4..=pause).contains(&wait), "{nth}: {wait:?}");
    }
    assert!(tries.last() > Some(&at(120_000)));
}

#[test]
fn only_a_resync_an_operator_and_a_new_desired_state_come_before_the_pause_ends() {
    let mut breaker = convergence();
    (0..3).for_each(|now| breaker.missed("a", 7, at(now)));
    for (reason, expected) in [
        (Reason::Hint, false),
        (Reason::Retry, false),
        (Reason::Desired, false),
        (Reason::Resync, true),
        (Reason::Operator, true),
    ] {
        assert_eq!(breaker.may_try(&"a", reason.into(), at(20)), expected, "{reason:?}");
    }
    breaker.forget(&"a");
    assert!(
        breaker.may_try(&"a", Reason::Desired.into(), at(20)),
        "the desired state is a new one"
    );
    assert_eq!((breaker.tracked(), breaker.deadline(), breaker.report().count()), (0, None, 0));
}

#[test]
fn another_end_begins_the_count_anew() {
    let mut breaker = convergence();
    for print in [7, 7, 8, 8] {
        breaker.missed("a", print, at(0));
    }
    assert_eq!(breaker.report().count(), 0);
    breaker.missed("a", 8, at(5));
    assert_eq!(breaker.report().count(), 1);
}

#[test]
fn a_key_that_misses_each_time_in_another_way_makes_no_hot_loop() {
    let mut breaker = convergence();
    let tries = tries(&mut breaker, 0..16);
    assert_eq!(tries.iter().filter(|time| **time == at(0)).count(), 4);
    assert_eq!(breaker.report().count(), 0, "it moves, and so may yet arrive");
}

#[test]
fn tries_at_resyncs_do_not_lengthen_the_pauses() {
    let mut breaker = convergence();
    (0..3).for_each(|_| breaker.missed("a", 7, at(0)));
    let due = breaker.deadline();
    (1..70).for_each(|now| breaker.missed("a", 7, at(now)));
    assert_eq!(breaker.deadline(), due);
}

#[test]
fn a_full_pass_forgets_the_keys_that_arrived() {
    let mut breaker = convergence();
    for key in ["a", "b", "c"] {
        breaker.missed(key, 7, at(0));
    }
    breaker.retain(|key| *key == "b");
    assert_eq!((breaker.tracked(), breaker.take_due(at(0))), (1, vec!["b"]));
}

// What others learned the hard way.

#[test]
fn a_step_that_is_said_to_be_done_and_is_not_there_is_not_added_for_ever() {
    // "Exists already" read as "installed", while the table never showed it: an endless re-add.
    let mut breaker = convergence();
    let tries = tries(&mut breaker, std::iter::repeat_n(7, 100));
    let in_first_minute = tries.iter().filter(|time| **time <= at(60_000)).count();
    assert!(in_first_minute <= 13, "{in_first_minute}");
}

/// Four tries for each pause that fits into the time, if all pauses are cut as far as they may be.
fn most(time: u64) -> usize {
    let ends = (1..).scan(Duration::ZERO, |sum, nth| {
        *sum += Pauses::BACKOFF.nth(nth) * 3 / 4;
        Some(*sum)
    });
    4 * (1 + ends.take_while(|end| *end <= ms(time)).count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_misses_is_slowed_down_and_nothing_else_has_state(
        script in prop::collection::vec((0..200_u64, 0..4_u8, prop::option::weighted(0.95, 0..2_u32)), 1..200),
    ) {
        let mut breaker = Convergence::new(Pauses::BACKOFF, 1);
        let mut tries: BTreeMap<u8, (u64, usize)> = BTreeMap::new();
        let mut time = 0;
        for (gap, key, print) in script {
            time += gap;
            let mut tried = breaker.take_due(at(time));
            if !tried.contains(&key) && breaker.may_try(&key, Reason::Hint.into(), at(time)) {
                tried.push(key);
            }
            for key in tried {
                breaker.missed(key, print.unwrap_or(0), at(time));
                tries.entry(key).or_insert((time, 0)).1 += 1;
            }
            if print.is_none() {
                breaker.forget(&key);
                tries.remove(&key);
            }
            prop_assert_eq!(breaker.tracked(), tries.len());
            prop_assert!(breaker.deadline().is_some() || tries.is_empty(), "starved");
            for (since, tries) in tries.values() {
                prop_assert!(*tries <= most(time - since), "{tries} tries from {since} to {time}");
            }
        }
    }
}
