//! A key that another program keeps undoing is healed ever more slowly, and never given up: cases in
//! virtual time, then the bounds under random scripts. Times are milliseconds.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use homeostat_core::pacing::{Contention, Heal, Pauses, Threshold, Time};
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Time {
    Time::from_epoch(ms(time))
}

fn millis(time: Time) -> u64 {
    u64::try_from(time.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

type Keys = Contention<&'static str>;

fn contention<K: Ord + Clone>() -> Contention<K> {
    Contention::new(Threshold { losses: 5, within: ms(10_000) }, Pauses::CONTENTION)
}

/// Five losses of `a`, one a second from the start; the fifth begins the first pause.
fn contended() -> Keys {
    let mut keys: Keys = contention();
    for nth in 0..4 {
        assert_eq!(keys.lost("a", Some("zebra".into()), at(nth * 1_000)), Heal::Now);
    }
    assert_eq!(keys.lost("a", Some("bird".into()), at(4_000)), Heal::At(at(4_200)));
    keys
}

/// Another program removes the key `after` each heal; returns the pauses before the heals.
fn fight(keys: &mut Keys, after: u64, heals: usize) -> Vec<u64> {
    let mut pauses = Vec::new();
    let mut lost = 4_000;
    for _ in 0..heals {
        let healed = keys.deadline().map_or(0, millis);
        assert_eq!(keys.take_due(at(healed)), ["a"]);
        pauses.push(healed - lost);
        lost = healed + after;
        assert_ne!(keys.lost("a", None, at(lost)), Heal::Now);
    }
    pauses
}

#[test]
fn the_fifth_loss_within_ten_seconds_begins_pauses_that_grow_to_half_a_minute() {
    let pauses = fight(&mut contended(), 1, 10);
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
}

#[test]
fn a_loss_now_and_then_is_healed_at_once_for_ever() {
    let mut keys = contention();
    for nth in 0..100 {
        assert_eq!(keys.lost("a", None, at(nth * 2_500)), Heal::Now, "four within ten seconds");
        assert!(keys.take_due(at(nth * 2_500)).is_empty());
    }
    assert_eq!(keys.report().count(), 0);
}

#[test]
fn a_paused_key_is_held_and_others_are_not() {
    let mut keys = contended();
    assert!(keys.holds(&"a", at(4_199)) && !keys.holds(&"b", at(4_199)));
    assert!(!keys.holds(&"a", at(4_200)));
    assert_eq!(keys.take_due(at(4_200)), ["a"]);
    assert!(!keys.holds(&"a", at(4_200)), "it is being healed");
}

#[test]
fn losses_within_a_pause_do_not_stretch_it() {
    let mut keys = contended();
    for now in 4_001..4_200 {
        assert_eq!(keys.lost("a", None, at(now)), Heal::At(at(4_200)));
    }
    assert_eq!(keys.take_due(at(4_200)), ["a"]);
    assert_eq!(keys.lost("a", None, at(4_300)), Heal::At(at(4_700)), "one pause, one doubling");
}

#[test]
fn calm_returns_when_a_heal_held_for_as_long_as_the_last_pause() {
    // After a short pause the counting time decides, after a long one the pause.
    for (heals, calm) in [(1, 10_000), (9, 30_000)] {
        for (wait, is_calm) in [(calm - 1, false), (calm, true)] {
            let mut keys = contended();
            fight(&mut keys, 1, heals - 1);
            let healed = keys.deadline().map_or(0, millis);
            assert_eq!(keys.take_due(at(healed)), ["a"]);
            let heal = keys.lost("a", None, at(healed + wait));
            assert_eq!(heal == Heal::Now, is_calm, "{heals} heals, {wait} ms");
        }
    }
}

#[test]
fn a_calm_key_is_forgotten() {
    let mut keys = contended();
    assert_eq!(keys.take_due(at(4_200)), ["a"]);
    assert_eq!((keys.deadline(), keys.report().count()), (Some(at(14_200)), 1));
    assert!(keys.take_due(at(14_200)).is_empty());
    assert_eq!((keys.tracked(), keys.deadline(), keys.report().count()), (0, None, 0));
}

#[test]
fn a_key_that_was_lost_once_is_forgotten_when_that_no_longer_counts() {
    let mut keys = contention();
    for key in 0..10_000 {
        assert_eq!(keys.lost(key, Some("ip route flush".into()), at(0)), Heal::Now);
    }
    assert_eq!((keys.tracked(), keys.deadline()), (10_000, Some(at(10_000))));
    assert!(keys.take_due(at(10_000)).is_empty());
    assert_eq!((keys.tracked(), keys.deadline()), (0, None));
}

#[test]
fn the_report_names_key_pause_and_culprit() {
    let mut keys = contended();
    fight(&mut keys, 10, 2);
    let _ = keys.lost("once", Some("somebody".into()), at(5_000));
    let report: Vec<_> = keys.report().collect();
    assert_eq!(report.len(), 1, "{report:?}");
    assert_eq!((keys.of(&"a"), keys.of(&"once"), keys.of(&"b")), (Some(report[0]), None, None));
    for contended in report {
        assert_eq!((*contended.key, contended.pause), ("a", ms(800)));
        assert_eq!(
            contended.culprit,
            Some("bird"),
            "a loss without a known culprit keeps the last name"
        );
    }
}

#[test]
fn a_new_desired_state_begins_anew() {
    let mut keys = contended();
    keys.forget(&"a");
    assert_eq!((keys.tracked(), keys.deadline()), (0, None));
    assert_eq!(keys.lost("a", None, at(4_001)), Heal::Now);
}

// What others learned the hard way.

#[test]
fn a_contended_key_is_never_given_up_nor_held_down_for_minutes() {
    // A hold-down of ten minutes after three deletions is an outage by itself.
    let pauses = fight(&mut contended(), 0, 1_000);
    assert!(pauses.iter().all(|pause| *pause <= 30_000));
}

#[test]
fn a_fight_is_not_fought_at_full_speed_for_ever() {
    let heals = fight(&mut contended(), 1, 200).iter().filter(|pause| **pause < 30_000).count();
    assert_eq!(heals, 8, "then twice a minute");
}

/// The losses of one key, in the plainest way.
#[derive(Default)]
struct Model {
    recent: VecDeque<u64>,
    pause: u64,
    paused_until: Option<u64>,
    calm: u64,
}

impl Model {
    fn lost(&mut self, now: u64) -> Option<u64> {
        if self.paused_until.is_none() {
            if self.pause > 0 && self.calm <= now {
                *self = Self::default();
            }
            self.recent.push_back(now);
            self.recent.retain(|loss| now - loss < 10_000);
            if self.pause > 0 || self.recent.len() >= 5 {
                self.pause = (self.pause * 2).clamp(200, 30_000);
                self.paused_until = Some(now + self.pause);
            }
        }
        self.paused_until
    }

    fn take(&mut self, now: u64) -> bool {
        let is_due = self.paused_until.take_if(|until| *until <= now).is_some();
        if is_due {
            self.calm = now + self.pause.max(10_000);
        }
        is_due
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn heals_come_exactly_when_the_model_says(
        script in prop::collection::vec((prop_oneof![6 => 0..300_u64, 1 => 0..40_000_u64], 0..3_u8), 1..200),
    ) {
        let (mut keys, mut models) = (contention(), BTreeMap::<u8, Model>::new());
        let mut time = 0;
        for (gap, key) in script {
            time += gap;
            while let Some(now) = keys.deadline().map(millis).filter(|due| *due <= time) {
                let mut taken = keys.take_due(at(now));
                taken.sort_unstable();
                let due = models.iter_mut().filter_map(|(key, model)| model.take(now).then_some(*key));
                prop_assert_eq!(taken, due.collect::<Vec<_>>(), "at {}", now);
            }
            let expected = models.entry(key).or_default().lost(time);
            let heal = keys.lost(key, None, at(time));
            prop_assert_eq!(heal, expected.map_or(Heal::Now, |until| Heal::At(at(until))));
            prop_assert_eq!(keys.holds(&key, at(time)), expected.is_some_and(|until| until > time));
            prop_assert!(keys.tracked() <= models.len());
        }
        for _ in 0..3 {
            let end = keys.deadline().unwrap_or_default().after(ms(60_000));
            let _ = keys.take_due(end);
        }
        prop_assert_eq!((keys.tracked(), keys.deadline()), (0, None), "something is left");
    }
}
