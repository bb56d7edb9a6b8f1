//! When passes start, and what they look at.

use std::time::Duration;

use homeostat_engine::{Control as _, EventKind, Kind, Mode, Pace};
use homeostat_testkit::memory::{Act, Echoes, HintFault, Mark, Target};
use tokio::time::Instant;

use crate::stage::{MINUTE, MS, SECOND, Stage, bound, later, pace, taking};

#[tokio::test(start_paused = true)]
async fn the_subscription_stands_before_the_first_look() {
    let stage = Stage::start(&[("a", "1")]);
    stage.converged().await;
    assert_eq!(stage.target.take_log(), ["subscribe", "look at all", "write a"]);
}

#[tokio::test(start_paused = true)]
async fn hints_before_the_first_full_pass_are_absorbed_by_it() {
    let stage = Stage::with(&[("a", "1")], pace(), |faults| faults.blind = true);
    later(SECOND).await;
    for key in ["x", "y", "z"] {
        stage.target.add(key, "9", Mark::Foreign);
    }
    later(SECOND).await;
    stage.faults(|faults| faults.blind = false);
    stage.converged().await;
    later(SECOND).await;
    let counts = stage.handle.status().counts;
    // What came while there was no subscription may be reported by a later one in this target.
    assert!(counts.focused <= 1, "{counts:?}");
    assert_eq!(counts.full, counts.broken + 1, "hints alone start no pass before the first");
}

#[tokio::test(start_paused = true)]
async fn hints_that_wait_when_a_full_pass_starts_are_absorbed_by_it() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    stage.target.remove("a");
    stage.target.remove("b");
    stage.handle.pass().await.unwrap().unwrap();
    later(SECOND).await;
    let log = stage.target.take_log();
    assert_eq!(log.iter().filter(|line| line.starts_with("look")).count(), 1, "{log:?}");
    assert_eq!(stage.handle.status().counts.drift_by_hint, 2);
}

#[tokio::test(start_paused = true)]
async fn ready_comes_only_after_the_first_full_pass() {
    let stage = Stage::with(&[("a", "1")], pace(), |faults| faults.hangs = Some(Act::Apply));
    later(SECOND).await;
    let status = stage.handle.status();
    assert!(!status.is_ready && !status.is_converged && status.counts.full == 1);
    stage.faults(|faults| faults.hangs = None);
    assert!(stage.ready().await.is_converged);
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_healed_at_once_and_looks_at_its_key_only() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    let began = Instant::now();
    stage.target.remove("a");
    stage.handle.wait_for(|status| status.counts.drift_by_hint == 1).await.unwrap();
    stage.converged().await;
    assert!(began.elapsed() < 5 * MS, "{:?}", began.elapsed());
    assert_eq!(stage.values(), ["a=1", "b=2"]);
    assert_eq!(stage.target.take_log(), ["look at a", "write a"]);
}

#[tokio::test(start_paused = true)]
async fn wakeups_during_a_pass_lead_to_one_more() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    stage.faults(|faults| faults.hangs = Some(Act::Observe));
    let before = stage.handle.status().counts;
    stage.target.overflow();
    later(MS).await;
    for _ in 0..10 {
        stage.handle.put(bound(&stage.target, &[("a", "3")])).unwrap();
        stage.target.alter("b", "9");
        later(MS).await;
    }
    stage.faults(|faults| faults.hangs = None);
    stage.converged().await;
    later(SECOND).await;
    let counts = stage.handle.status().counts;
    assert_eq!((counts.full - before.full, stage.values()), (2, vec!["a=3".to_owned()]));
    assert!(counts.focused - before.focused <= 1, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn lost_hints_lead_to_a_full_pass_at_once() {
    let mut stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hints = HintFault::Lost);
    stage.target.remove("a");
    let began = Instant::now();
    stage.target.overflow();
    stage.handle.wait_for(|status| status.counts.drift_by_resync == 1).await.unwrap();
    assert!(began.elapsed() < 5 * MS);
    assert_eq!(stage.handle.status().counts.lost, 1);
    assert!(stage.event_kinds().contains(&EventKind::Lost));
}

#[tokio::test(start_paused = true)]
async fn with_all_hints_lost_the_resync_heals() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.faults(|faults| faults.hints = HintFault::Lost);
    stage.target.remove("a");
    let healed = stage.handle.wait_for(|status| status.counts.drift_by_resync == 1);
    let (_, waited) = taking(healed).await;
    assert!(waited >= 20 * SECOND && waited <= 33 * SECOND, "{waited:?}");
    stage.converged().await;
    assert_eq!(stage.values(), ["a=1"]);
}

#[tokio::test(start_paused = true)]
async fn the_resync_comes_after_a_period_give_or_take_a_tenth() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let mut waits = Vec::new();
    for _ in 0..20 {
        let full = stage.handle.status().counts.full;
        let next = stage.handle.wait_for(|status| status.counts.full > full);
        waits.push(taking(next).await.1);
    }
    let waits = waits.split_off(1);
    assert!(waits.iter().all(|wait| (27 * SECOND..=33 * SECOND).contains(wait)), "{waits:?}");
    assert!(waits.iter().max().unwrap().abs_diff(*waits.iter().min().unwrap()) > SECOND);
}

#[tokio::test(start_paused = true)]
async fn any_full_pass_restarts_the_period_of_the_resync() {
    let stage = Stage::settled(&[("a", "1")]).await;
    for _ in 0..10 {
        later(20 * SECOND).await;
        stage.handle.pass().await.unwrap().unwrap();
    }
    assert_eq!(stage.handle.status().counts.full, 11, "no resync came in between");
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_its_interval_and_others_do_not() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    stage.target.remove("a");
    stage.handle.wait_for(|status| status.counts.drift_by_hint == 1).await.unwrap();
    let began = Instant::now();
    later(MS).await;
    stage.target.remove("a");
    stage.target.remove("b");
    stage.handle.wait_for(|status| status.counts.drift_by_hint == 2).await.unwrap();
    later(MS).await;
    assert!(began.elapsed() < 10 * MS, "b does not wait");
    assert_eq!(stage.values(), ["b=2"]);
    stage.handle.wait_for(|status| status.counts.drift_by_hint == 3).await.unwrap();
    let waited = began.elapsed();
    assert!((95 * MS..=110 * MS).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_hints_about_one_key_is_merged_and_never_put_off() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let before = stage.handle.status().counts.focused;
    for _ in 0..1000 {
        stage.target.add("x", "9", Mark::Foreign);
        later(MS).await;
    }
    let passes = stage.handle.status().counts.focused - before;
    assert!((90..=120).contains(&passes), "ten looks an interval, and then it waits: {passes}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_only_looked_at_is_healed_at_once() {
    let stage = Stage::settled(&[("a", "1")]).await;
    stage.target.alter("a", "1");
    stage.handle.wait_for(|status| status.counts.focused == 1).await.unwrap();
    later(MS).await;
    stage.target.remove("a");
    let healed = stage.handle.wait_for(|status| status.counts.drift_by_hint == 1);
    let (_, waited) = taking(healed).await;
    assert!(waited < 10 * MS, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_an_interval_is_part_of_the_event() {
    let mut stage = Stage::settled(&[("a", "1")]).await;
    for nth in 1..=2 {
        stage.target.remove("a");
        let healed = stage.handle.wait_for(|status| status.counts.drift_by_hint == nth);
        healed.await.unwrap();
        later(10 * MS).await;
    }
    let waits = stage.event_kinds().into_iter().filter_map(|what| match what {
        EventKind::Started { waited, .. } => Some(waited),
        _ => None,
    });
    let waits: Vec<Duration> = waits.collect();
    assert!(waits[0] < 5 * MS && waits[1] > 80 * MS, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn commands_wait_for_no_window() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let began = Instant::now();
    for _ in 0..20 {
        stage.handle.pass().await.unwrap().unwrap();
    }
    assert!(began.elapsed() < 20 * MS, "{:?}", began.elapsed());
    assert_eq!(stage.handle.status().counts.full, 21);
}

#[tokio::test(start_paused = true)]
async fn own_writes_cause_no_further_pass_where_the_source_knows_its_echoes() {
    let stage = Stage::settled(&[("a", "1"), ("b", "2")]).await;
    stage.target.remove("a");
    later(SECOND).await;
    assert_eq!(stage.target.take_log(), ["look at a", "write a"]);
    assert_eq!(stage.handle.status().counts.focused, 1);
}

#[tokio::test(start_paused = true)]
async fn where_echoes_are_received_they_cost_one_look_and_no_write() {
    let stage = Stage::with(&[("a", "1")], pace(), |faults| faults.echoes = Echoes::Received);
    stage.converged().await;
    later(10 * SECOND).await;
    let status = stage.handle.status();
    assert_eq!((stage.target.writes(), status.counts.focused), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_converged_loop_is_silent_between_resyncs() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let writes = stage.target.writes();
    later(5 * MINUTE).await;
    let counts = stage.handle.status().counts;
    assert!((9..=12).contains(&counts.full) && counts.focused == 0, "{counts:?}");
    assert_eq!(stage.target.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn more_keys_than_are_worth_single_looks_become_one_full_pass() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let before = stage.handle.status().counts;
    stage.faults(|faults| faults.hangs = Some(Act::Observe));
    stage.target.add("x", "9", Mark::Foreign);
    later(MS).await;
    for number in 0..5000 {
        stage.target.add(&format!("x{number}"), "9", Mark::Foreign);
    }
    stage.faults(|faults| faults.hangs = None);
    later(10 * SECOND).await;
    let counts = stage.handle.status().counts;
    let made = (counts.full - before.full, counts.focused - before.focused);
    assert!(made.0 + made.1 <= 7, "hints are taken in together: {made:?}");
}

#[tokio::test(start_paused = true)]
async fn wrong_and_doubled_hints_change_nothing() {
    for hints in [HintFault::Twice, HintFault::Wrong] {
        let stage = Stage::settled(&[("a", "1")]).await;
        stage.faults(|faults| faults.hints = hints);
        stage.target.alter("a", "2");
        later(MINUTE).await;
        assert_eq!(stage.values(), ["a=1"], "{hints:?}");
        assert_eq!(stage.target.writes(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_observes_writes_nothing_and_says_what_drifted() {
    let stage = Stage::with(&[("a", "1"), ("x", "1")], pace().with_mode(Mode::Observe), |_| {});
    stage.target.add("x", "9", Mark::Foreign);
    let status = stage.ready().await;
    assert_eq!(
        (status.open.count(Kind::Change), status.open.count(Kind::Conflict), status.is_converged),
        (1, 1, false)
    );
    let report = stage.handle.adopt("x").await.unwrap().unwrap();
    assert!(!report.is_converged(), "also for a key that may be taken");
    later(MINUTE).await;
    let status = stage.handle.status();
    assert_eq!((stage.target.writes(), status.counts.applied), (0, 0));
    stage.handle.stop(homeostat_engine::OnStop::Revert).await;
    assert_eq!((stage.target.writes(), stage.values()), (0, vec!["x=9".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn two_loops_do_not_share_anything() {
    let (one, two) = (Stage::settled(&[("a", "1")]).await, Stage::settled(&[("a", "2")]).await);
    one.faults(|faults| faults.hangs = Some(Act::Observe));
    two.target.remove("a");
    later(SECOND).await;
    assert_eq!((one.values(), two.values()), (vec!["a=1".to_owned()], vec!["a=2".to_owned()]));
    drop::<Target>(one.target);
}

/// The moments, in milliseconds after `began`, at which full passes started.
fn full_passes(stage: &mut Stage, starts: &mut Vec<u128>, began: Instant) {
    for what in stage.event_kinds() {
        if matches!(what, EventKind::Started { keys: None, .. }) {
            starts.push(began.elapsed().as_millis());
        }
    }
}

/// Puts desired states at these moments; returns when full passes started.
async fn starts_after_puts(pace: Pace, at: &[u64], until: u64) -> Vec<u128> {
    let mut stage = Stage::settled_at(&[("a", "1")], pace).await;
    let (began, mut starts) = (Instant::now(), Vec::new());
    for now in 0..until {
        if at.contains(&now) {
            stage.handle.put(bound(&stage.target, &[("a", &now.to_string())])).unwrap();
        }
        tokio::task::yield_now().await;
        later(MS).await;
        full_passes(&mut stage, &mut starts, began);
    }
    let newest = at.iter().max().unwrap();
    assert_eq!(stage.values(), [format!("a={newest}")]);
    starts
}

#[tokio::test(start_paused = true)]
async fn new_desired_states_within_a_quiet_period_make_one_pass_after_the_last_of_them() {
    let pace = pace().with_debounce(5 * SECOND, MINUTE).unwrap();
    let starts = starts_after_puts(pace, &[0, 100, 300], 8000).await;
    assert!(matches!(starts[..], [5300..=5302]), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_first_new_desired_state_fires_at_once_and_later_ones_at_the_end_of_the_window() {
    let pace = pace().with_min_interval(200 * MS);
    let starts = starts_after_puts(pace, &[0, 50], 1000).await;
    assert!(matches!(starts[..], [0..=2, 200..=202]), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_new_desired_states_in_a_second_make_eleven_passes_at_most() {
    let mut stage = Stage::settled(&[("a", "0")]).await;
    let before = stage.handle.status().counts.full;
    for nth in 1..=10_000 {
        stage.handle.put(bound(&stage.target, &[("a", &nth.to_string())])).unwrap();
        if nth % 10 == 0 {
            later(MS).await;
        }
    }
    stage.converged().await;
    let made = stage.handle.status().counts.full - before;
    assert!((2..=11).contains(&made), "{made} full passes");
    assert_eq!(stage.values(), ["a=10000"]);
    let _ = stage.events();
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_lost_hints_makes_one_full_pass_an_interval() {
    let stage = Stage::settled(&[("a", "1")]).await;
    let before = stage.handle.status().counts.full;
    for _ in 0..1000 {
        stage.target.overflow();
        later(MS).await;
    }
    later(SECOND).await;
    let made = stage.handle.status().counts.full - before;
    assert!((2..=12).contains(&made), "{made} full passes");
}

#[tokio::test(start_paused = true)]
async fn the_present_desired_state_is_kept_while_a_new_one_waits_for_its_pass() {
    let pace = pace().with_debounce(5 * SECOND, MINUTE).unwrap();
    let stage = Stage::settled_at(&[("a", "1")], pace).await;
    stage.handle.put(bound(&stage.target, &[("a", "2")])).unwrap();
    later(SECOND).await;
    stage.target.remove("a");
    later(SECOND).await;
    assert_eq!(stage.values(), ["a=1"], "healed as it was");
    assert!(!stage.handle.status().is_converged, "not for the newest desired state");
    stage.handle.pass().await.unwrap().unwrap();
    assert_eq!(stage.values(), ["a=2"], "an operator does not wait");
}

#[tokio::test(start_paused = true)]
async fn a_desired_state_that_replaces_another_waits_for_no_pace() {
    let stage = Stage::settled_at(&[("a", "1")], pace().with_min_interval(MINUTE)).await;
    stage.handle.put(bound(&stage.target, &[("a", "2")])).unwrap();
    later(SECOND).await;
    assert_eq!(stage.values(), ["a=1"]);
    stage.handle.replace(bound(&stage.target, &[("a", "3")])).unwrap();
    later(SECOND).await;
    assert_eq!(stage.values(), ["a=3"]);
}
