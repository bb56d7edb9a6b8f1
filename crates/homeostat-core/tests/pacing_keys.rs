//! Focused passes are paced key by key: cases in virtual time, then a comparison with a model that
//! is too slow and too plain to be wrong. Times are milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use homeostat_core::pacing::{KeyPacer, Time};
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

fn taken(pacer: &mut KeyPacer<&'static str>, now: u64) -> Vec<&'static str> {
    pacer.take_due(at(now))
}

#[test]
fn a_key_that_was_just_taken_waits_and_others_do_not() {
    let mut pacer = KeyPacer::new(ms(100));
    pacer.on_hint("a", at(0));
    assert_eq!((pacer.deadline(), taken(&mut pacer, 0)), (Some(at(0)), vec!["a"]));
    pacer.on_hint("a", at(10));
    pacer.on_hint("b", at(10));
    assert_eq!(pacer.deadline(), Some(at(10)), "for b");
    assert_eq!(taken(&mut pacer, 10), ["b"]);
    assert_eq!((pacer.deadline(), taken(&mut pacer, 99)), (Some(at(100)), vec![]));
    assert_eq!(taken(&mut pacer, 100), ["a"]);
}

#[test]
fn ten_thousand_hints_about_one_key_are_one_key() {
    let mut pacer = KeyPacer::new(ms(100));
    for nth in 0..10_000 {
        pacer.on_hint("a", at(nth / 200));
    }
    assert_eq!((taken(&mut pacer, 50), pacer.tracked()), (vec!["a"], 1));
    for nth in 0..10_000 {
        pacer.on_hint("a", at(50 + nth / 200));
    }
    assert_eq!((pacer.deadline(), pacer.tracked()), (Some(at(150)), 1));
    assert_eq!((taken(&mut pacer, 150), taken(&mut pacer, 150)), (vec!["a"], vec![]));
}

#[test]
fn keys_come_out_in_the_order_of_their_hints() {
    let mut pacer = KeyPacer::new(ms(100));
    for key in ["d", "a", "c", "a", "b"] {
        pacer.on_hint(key, at(0));
    }
    assert_eq!(taken(&mut pacer, 0), ["d", "a", "c", "b"]);
    for key in ["b", "z", "d"] {
        pacer.on_hint(key, at(100));
    }
    assert_eq!(taken(&mut pacer, 100), ["d", "b", "z"], "those whose window ended come first");
}

#[test]
fn a_hint_after_an_empty_window_is_due_at_once() {
    let mut pacer = KeyPacer::new(ms(100));
    pacer.on_hint("a", at(0));
    assert_eq!(taken(&mut pacer, 0), ["a"]);
    pacer.on_hint("a", at(250));
    assert!(pacer.deadline().is_some_and(|deadline| deadline <= at(250)));
    assert_eq!(taken(&mut pacer, 250), ["a"]);
}

#[test]
fn an_idle_key_is_forgotten_at_the_end_of_its_window() {
    let mut pacer = KeyPacer::new(ms(100));
    pacer.on_hint("a", at(0));
    assert_eq!(taken(&mut pacer, 0), ["a"]);
    pacer.on_hint("b", at(60));
    assert_eq!(taken(&mut pacer, 60), ["b"]);
    assert_eq!((pacer.tracked(), pacer.deadline()), (2, Some(at(100))));
    assert_eq!((taken(&mut pacer, 100), pacer.tracked()), (vec![], 1));
    assert_eq!((pacer.deadline(), taken(&mut pacer, 160)), (Some(at(160)), vec![]));
    assert_eq!((pacer.tracked(), pacer.deadline()), (0, None));
}

#[test]
fn a_full_pass_absorbs_pending_keys_and_restarts_no_window() {
    let mut pacer = KeyPacer::new(ms(100));
    pacer.on_hint("healed", at(0));
    assert_eq!(taken(&mut pacer, 0), ["healed"]);
    pacer.on_hint("healed", at(20));
    pacer.on_hint("fresh", at(20));
    pacer.absorb_all(at(30));
    assert_eq!(
        (taken(&mut pacer, 30), pacer.tracked()),
        (vec![], 1),
        "only the open window is left"
    );
    pacer.on_hint("fresh", at(40));
    pacer.on_hint("healed", at(40));
    assert_eq!(taken(&mut pacer, 40), ["fresh"], "hints during the full pass are pending again");
    assert_eq!(taken(&mut pacer, 100), ["healed"]);
}

#[test]
fn a_key_that_was_looked_at_and_spared_does_not_wait() {
    let mut pacer = KeyPacer::new(ms(100));
    pacer.on_hint("seen", at(0));
    pacer.on_hint("healed", at(0));
    assert_eq!(taken(&mut pacer, 0), ["seen", "healed"]);
    pacer.spare(|key| *key == "healed", at(5));
    pacer.on_hint("seen", at(10));
    pacer.on_hint("healed", at(10));
    assert_eq!((pacer.deadline(), taken(&mut pacer, 10)), (Some(at(10)), vec!["seen"]));
    assert_eq!(taken(&mut pacer, 100), ["healed"], "at the end of its window");
}

#[test]
fn a_hint_that_came_before_a_key_was_spared_is_due_at_once() {
    let mut pacer = KeyPacer::new(ms(100));
    pacer.on_hint("a", at(0));
    assert_eq!(taken(&mut pacer, 0), ["a"]);
    pacer.on_hint("a", at(5));
    assert_eq!(pacer.deadline(), Some(at(100)));
    pacer.spare(|_| false, at(6));
    assert_eq!((pacer.deadline(), taken(&mut pacer, 7)), (Some(at(5)), vec!["a"]));
    pacer.spare(|_| false, at(8));
    assert_eq!((taken(&mut pacer, 300), pacer.tracked()), (vec![], 0), "and then forgotten");
}

#[test]
fn a_storm_about_a_key_that_is_always_spared_does_not_run_hot() {
    let mut pacer = KeyPacer::new(ms(100));
    let mut takes = Vec::new();
    for now in 0..1000 {
        pacer.on_hint("a", at(now));
        if taken(&mut pacer, now) == ["a"] {
            takes.push(now);
            pacer.spare(|_| false, at(now));
        }
    }
    let burst: Vec<u64> = (0..11).collect();
    assert_eq!(takes[..12], [burst, vec![110]].concat(), "ten are free, then it waits");
    assert!(takes.len() < 120, "{takes:?}");
}

#[test]
fn a_key_that_is_spared_now_and_then_never_waits() {
    let mut pacer = KeyPacer::new(ms(100));
    for now in (0..10_000).step_by(20) {
        pacer.on_hint("a", at(now));
        assert_eq!(taken(&mut pacer, now), ["a"], "{now}");
        pacer.spare(|_| false, at(now));
    }
}

#[test]
fn a_key_that_is_written_after_it_was_spared_waits_for_a_whole_interval() {
    let mut pacer = KeyPacer::new(ms(100));
    for now in [0, 60] {
        pacer.on_hint("a", at(now));
        assert_eq!(taken(&mut pacer, now), ["a"]);
        pacer.spare(|_| now == 60, at(now));
    }
    pacer.on_hint("a", at(70));
    assert_eq!((taken(&mut pacer, 100), taken(&mut pacer, 159)), (vec![], vec![]));
    assert_eq!(taken(&mut pacer, 160), ["a"]);
}

#[test]
fn what_was_taken_says_since_when_it_was_hinted() {
    let mut pacer = KeyPacer::new(ms(100));
    assert_eq!(pacer.taken_since(), None);
    pacer.on_hint("a", at(3));
    assert_eq!((taken(&mut pacer, 8), pacer.taken_since()), (vec!["a"], Some(at(3))));
    pacer.on_hint("a", at(20));
    pacer.on_hint("b", at(107));
    let both = (taken(&mut pacer, 108), pacer.taken_since());
    assert_eq!(both, (vec!["a", "b"], Some(at(20))), "a waited out its window");
    assert_eq!((taken(&mut pacer, 109), pacer.taken_since()), (vec![], None));
}

#[test]
fn an_interval_of_zero_keeps_no_state() {
    let mut pacer = KeyPacer::new(Duration::ZERO);
    for now in 0..3 {
        pacer.on_hint("a", at(now));
        assert_eq!(
            (taken(&mut pacer, now), pacer.tracked(), pacer.deadline()),
            (vec!["a"], 0, None)
        );
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Hint(u8),
    FullPass,
}

#[derive(Default)]
struct Model {
    min: u64,
    taken: BTreeMap<u8, u64>,
    pending: BTreeMap<u8, u64>,
}

impl Model {
    fn feed(&mut self, event: Event, now: u64) {
        match event {
            Event::Hint(key) => drop(self.pending.entry(key).or_insert(now)),
            Event::FullPass => self.pending.clear(),
        }
    }

    fn window_end(&self, key: u8) -> u64 {
        self.taken.get(&key).map_or(0, |taken| taken + self.min)
    }

    fn take_due(&mut self, now: u64) -> Vec<u8> {
        let is_due = |key: &u8| self.window_end(*key) <= now;
        let due: Vec<u8> = self.pending.keys().copied().filter(is_due).collect();
        for key in &due {
            self.pending.remove(key);
            self.taken.insert(*key, now);
        }
        due
    }

    fn next_due(&self) -> Option<u64> {
        self.pending.iter().map(|(key, hinted)| self.window_end(*key).max(*hinted)).min()
    }

    fn keys_with_state(&self, now: u64) -> usize {
        let in_window = self.taken.keys().filter(|key| self.window_end(**key) > now);
        let idle = |key: &&u8| self.window_end(**key) <= now;
        in_window.count() + self.pending.keys().filter(idle).count()
    }
}

fn apply(pacer: &mut KeyPacer<u8>, event: Event, now: u64) {
    match event {
        Event::Hint(key) => pacer.on_hint(key, at(now)),
        Event::FullPass => pacer.absorb_all(at(now)),
    }
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![15 => (0..6_u8).prop_map(Event::Hint), 1 => Just(Event::FullPass)];
    prop::collection::vec((prop_oneof![2 => 0..15_u64, 1 => 0..150_u64], event), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn keys_are_taken_exactly_when_the_model_says(
        min in 0..200_u64,
        script in events(),
        lengths in prop::collection::vec(0..60_u64, 1..5),
    ) {
        let mut pacer = KeyPacer::new(ms(min));
        let mut model = Model { min, ..Model::default() };
        let mut lengths = lengths.into_iter().cycle();
        let (mut time, mut now, mut busy_until) = (0, 0, 0);
        let mut script = script.into_iter().map(|(gap, event)| { time += gap; (time, event) }).peekable();
        loop {
            let deadline = pacer.deadline().map(millis);
            if let Some(due) = model.next_due() {
                prop_assert!(deadline.is_some_and(|deadline| deadline <= due.max(now)), "starved");
            }
            let next = [deadline.map(|d| d.max(busy_until)), script.peek().map(|(time, _)| *time)];
            let Some(next) = next.into_iter().flatten().min() else { break };
            now = next.max(now);
            while let Some((_, event)) = script.next_if(|(time, _)| *time <= now) {
                apply(&mut pacer, event, now);
                model.feed(event, now);
            }
            if busy_until > now {
                continue;
            }
            let mut due = pacer.take_due(at(now));
            due.sort_unstable();
            prop_assert_eq!(&due, &model.take_due(now), "at {}", now);
            prop_assert_eq!(pacer.tracked(), model.keys_with_state(now), "at {}", now);
            if !due.is_empty() {
                busy_until = now + lengths.next().unwrap_or(0);
            }
        }
        prop_assert!(model.pending.is_empty() && pacer.tracked() == 0, "something is left");
    }
}
