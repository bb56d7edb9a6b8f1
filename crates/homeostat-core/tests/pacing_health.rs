//! Full passes come round, and a loop that is stuck is distinguished from one that is idle. Times are
//! milliseconds.

use std::time::Duration;

use homeostat_core::pacing::{Bounds, Health, Resync, Stall, Time};
use proptest::prelude::*;

const PERIOD: u64 = 30_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Time {
    Time::from_epoch(ms(time))
}

#[expect(clippy::unwrap_used, reason = "a period that is refused fails its test")]
fn resync(seed: u64) -> Resync {
    Resync::new(ms(PERIOD), seed).unwrap()
}

/// A loop whose first full pass ended at once.
fn health() -> Health {
    let bounds = Bounds { pass: ms(60_000), ready: ms(90_000), resync: ms(PERIOD) };
    let mut health = Health::new(bounds, at(0));
    health.started_full(at(0));
    health.ended(at(0));
    health
}

#[test]
fn the_first_full_pass_is_due_at_once() {
    assert_eq!((resync(1).deadline(), resync(1).is_due(at(0))), (at(0), true));
}

#[test]
fn periods_are_spread_by_a_tenth_to_both_sides() {
    let mut resync = resync(1);
    let mut now = at(0);
    let mut periods = Vec::new();
    for _ in 0..200 {
        resync.started(now);
        periods.push(resync.deadline().since(now));
        now = resync.deadline();
        assert!(resync.is_due(now));
    }
    assert!(periods.iter().all(|period| (ms(27_000)..=ms(33_000)).contains(period)));
    assert!(periods.iter().any(|period| *period < ms(28_000)));
    assert!(periods.iter().any(|period| *period > ms(32_000)));
}

#[test]
fn loops_with_other_seeds_do_not_stay_in_step() {
    let first = |seed| {
        let mut resync = resync(seed);
        resync.started(at(0));
        resync.deadline()
    };
    assert_ne!(first(1), first(2));
    assert_eq!(first(1), first(1));
}

#[test]
fn any_full_pass_restarts_the_period() {
    let mut resync = resync(1);
    resync.started(at(0));
    resync.started(at(20_000));
    assert!(!resync.is_due(at(46_999)));
    assert!(resync.is_due(at(53_000)));
}

#[test]
fn a_pass_that_runs_longer_than_its_deadline_is_a_stall() {
    let mut health = health();
    health.started(at(10));
    assert_eq!(health.stalled(at(60_010)), None);
    assert_eq!(health.stalled(at(60_011)), Some(Stall::Pass(ms(60_001))));
    health.ended(at(60_012));
    assert_eq!(health.stalled(at(60_012)), None);
}

#[test]
fn ready_work_that_is_not_taken_is_a_stall() {
    let mut health = health();
    health.ready(Some(at(5)));
    health.started_full(at(90_000));
    assert_eq!(health.stalled(at(90_005)), None);
    health.ready(Some(at(5)));
    assert_eq!(health.stalled(at(90_006)), Some(Stall::Ready(ms(90_001))));
    health.ready(None);
    assert_eq!(health.stalled(at(90_007)), None);
}

#[test]
fn a_resync_that_is_overdue_by_half_a_period_is_a_stall() {
    let mut health = health();
    assert_eq!(health.stalled(at(45_000)), None);
    let stall = health.stalled(at(45_001));
    assert_eq!(stall, Some(Stall::Resync(ms(45_001))));
    assert_eq!(
        stall.map(|stall| stall.to_string()),
        Some("the last full pass started 45.001s ago".into())
    );
    health.started_full(at(45_002));
    assert_eq!(health.stalled(at(45_002)), None);
}

#[test]
fn a_loop_that_never_makes_its_first_full_pass_is_stalled() {
    let bounds = Bounds { pass: ms(60_000), ready: ms(90_000), resync: ms(PERIOD) };
    let health = Health::new(bounds, at(1_000));
    assert_eq!(health.stalled(at(46_000)), None);
    assert!(matches!(health.stalled(at(46_001)), Some(Stall::Resync(_))));
}

#[test]
fn focused_passes_that_starve_the_full_one_are_a_stall() {
    let mut health = health();
    for start in (0..46_000).step_by(10) {
        health.started(at(start));
        let stalled = health.stalled(at(start + 9));
        assert_eq!(stalled.is_some(), start > 45_000, "at {start}: {stalled:?}");
        health.ended(at(start + 10));
    }
}

#[test]
fn a_slow_pass_within_its_deadline_is_not_also_late() {
    let mut health = health();
    health.started_full(at(30_000));
    assert_eq!(health.stalled(at(89_000)), None, "the next is due, and waits for this one");
    health.ended(at(89_000));
    assert_eq!(health.stalled(at(89_001)), None, "it has had no time to start");
    assert!(health.stalled(at(104_001)).is_some());
}

#[test]
fn a_paused_loop_owes_nothing_but_the_end_of_its_pass() {
    let mut health = health();
    health.ready(Some(at(10)));
    health.started(at(10));
    health.paused();
    assert!(health.stalled(at(70_000)).is_some());
    health.ended(at(70_001));
    assert_eq!(health.stalled(at(9_000_000)), None);
    health.resumed(at(9_000_000));
    assert_eq!(health.stalled(at(9_000_001)), None);
    assert!(health.stalled(at(9_045_001)).is_some());
}

// What others learned the hard way.

#[test]
fn idle_is_healthy() {
    let mut health = health();
    for now in (30_000..3_000_000).step_by(30_000) {
        assert_eq!(health.stalled(at(now)), None);
        health.started_full(at(now));
        health.ended(at(now + 20));
    }
}

#[test]
fn a_wedged_worker_is_seen_although_the_loop_still_answers() {
    let mut health = health();
    health.started(at(0));
    let answers: Vec<_> = (0..10).filter_map(|ping| health.stalled(at(ping * 10_000))).collect();
    assert_eq!(answers.len(), 3, "{answers:?}");
}

#[test]
fn the_period_counts_from_the_start_of_a_pass_not_from_its_end() {
    // A timer that is armed after each pass adds the length of the pass to every period.
    let mut resync = resync(1);
    let mut now = at(0);
    let mut starts = Vec::new();
    while now < at(1_000_000) {
        resync.started(now);
        starts.push(now);
        let end = now.after(ms(20_000));
        now = resync.deadline().max(end);
    }
    assert!((31..=37).contains(&starts.len()), "{}", starts.len());
}

#[test]
fn a_resync_cannot_be_switched_off() {
    // Without hints and without a timer a loop is dead, and nothing reports it.
    for period in [Duration::ZERO, ms(99), Duration::from_hours(25), Duration::MAX] {
        assert!(Resync::new(period, 1).is_err(), "{period:?}");
    }
    let refused = Resync::new(Duration::ZERO, 1).err().map(|refused| refused.to_string());
    assert_eq!(
        refused.as_deref(),
        Some("the resync period of 0ns is not between 100ms and 86400s")
    );
    assert!(Resync::new(Resync::LONGEST, 1).is_ok_and(|mut resync| {
        resync.started(at(0));
        resync.deadline() <= Time::from_epoch(Duration::from_hours(27))
    }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_driver_that_follows_the_timer_is_never_called_stalled(
        seed in any::<u64>(),
        lengths in prop::collection::vec(0..60_000_u64, 1..20),
        pings in prop::collection::vec(0..60_000_u64, 1..4),
    ) {
        let (mut resync, mut health) = (resync(seed), health());
        let mut now = at(0);
        for length in lengths {
            let start = resync.deadline().max(now);
            prop_assert_eq!(health.stalled(start), None, "before the pass");
            resync.started(start);
            health.started_full(start);
            let mut pings: Vec<_> = pings.iter().copied().filter(|ping| *ping < length).collect();
            pings.sort_unstable();
            for ping in pings {
                prop_assert_eq!(health.stalled(start.after(ms(ping))), None, "during the pass");
            }
            now = start.after(ms(length));
            health.ended(now);
            prop_assert_eq!(health.stalled(now), None, "after the pass");
        }
    }

    #[test]
    fn a_driver_that_stops_is_always_found_out(
        is_running in any::<bool>(),
        is_ready in any::<bool>(),
        length in 0..60_000_u64,
    ) {
        let mut health = health();
        health.started_full(at(30_000));
        if !is_running {
            health.ended(at(30_000 + length));
        }
        if is_ready {
            health.ready(Some(at(30_000)));
        }
        prop_assert!(health.stalled(at(30_000 + 60_000 + PERIOD / 2 + 1)).is_some());
    }
}
