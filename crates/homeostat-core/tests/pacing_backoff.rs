//! Tries of what fails are spaced as promised: cases in virtual time, then the bounds under random
//! scripts. Times are milliseconds.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use homeostat_core::Retry;
use homeostat_core::pacing::{Backoff, Pauses, Reason, Reasons, Time};
use proptest::prelude::*;

const FIRST: u64 = 100;
const LONGEST: u64 = 120_000;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Time {
    Time::from_epoch(ms(time))
}

fn pauses() -> Pauses {
    Pauses::new(ms(FIRST), ms(LONGEST))
}

fn backoff<K: Ord + Clone>() -> Backoff<K> {
    Backoff::new(pauses(), 1)
}

/// The least that is left of a pause after it was cut at random.
fn least(nth: u32) -> Duration {
    pauses().nth(nth) * 3 / 4
}

/// Fails the key at once each time that it is due, and returns the waits in between.
fn waits(backoff: &mut Backoff<&'static str>, retry: Retry, tries: usize) -> Vec<Duration> {
    let mut now = at(0);
    backoff.failed("a", retry, now);
    let mut waits = Vec::new();
    for _ in 0..tries {
        let due = backoff.deadline().unwrap_or_default();
        waits.push(due.since(now));
        now = due;
        assert_eq!(backoff.take_due(now), ["a"]);
        backoff.failed("a", retry, now);
    }
    waits
}

#[test]
fn pauses_double_from_the_first_to_the_cap_and_are_spread() {
    let waits = waits(&mut backoff(), Retry::Soon, 15);
    for (nth, wait) in (1..).zip(&waits) {
        assert!((least(nth)..=pauses().nth(nth)).contains(wait), "{nth}: {wait:?}");
    }
    assert!(waits.iter().all(|wait| *wait <= ms(LONGEST)));
    assert!(waits.get(14) > Some(&ms(LONGEST * 3 / 4)), "the cap is reached");
}

#[test]
fn keys_that_failed_together_do_not_come_back_together() {
    let mut backoff = backoff();
    (0..100).for_each(|key| backoff.failed(key, Retry::Soon, at(0)));
    let early = backoff.take_due(at(88)).len();
    assert!((20..80).contains(&early), "{early}");
    assert_eq!(backoff.take_due(at(FIRST)).len(), 100 - early);
}

#[test]
fn the_same_seed_gives_the_same_moments() {
    let run = |seed| waits(&mut Backoff::new(pauses(), seed), Retry::Soon, 10);
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn at_once_is_bounded_to_three_in_a_row() {
    let waits = waits(&mut backoff(), Retry::Now, 6);
    assert_eq!(waits.get(..3), Some([Duration::ZERO; 3].as_slice()));
    for (nth, wait) in (1..).zip(waits.iter().skip(3)) {
        assert!((least(nth)..=pauses().nth(nth)).contains(wait), "{nth}: {wait:?}");
    }
}

#[test]
fn another_answer_ends_the_row_of_those_at_once() {
    let mut backoff = backoff();
    for retry in [Retry::Now, Retry::Now, Retry::Now, Retry::OnChange, Retry::Now] {
        backoff.failed("a", retry, at(5));
    }
    assert_eq!(backoff.deadline(), Some(at(5)));
}

#[test]
fn each_answer_says_what_may_wake_the_key() {
    let resync = Reasons::from(Reason::Resync);
    let rows = [
        (Retry::Now, true, true),
        (Retry::Soon, true, true),
        (Retry::OnChange, false, true),
        (Retry::Never, false, false),
    ];
    for (retry, by_time, by_resync) in rows {
        let mut backoff = backoff();
        backoff.failed("a", retry, at(0));
        assert_eq!(backoff.deadline().is_some(), by_time, "{retry:?}");
        assert_eq!(backoff.may_try(&"a", resync, at(1)), by_resync, "{retry:?}");
        assert_eq!(backoff.may_try(&"a", Reason::Operator.into(), at(1)), by_resync, "{retry:?}");
        backoff.forget(&"a");
        assert!(
            backoff.may_try(&"a", Reason::Desired.into(), at(1)),
            "a new desired state, {retry:?}"
        );
    }
}

#[test]
fn a_key_in_its_pause_is_left_out_of_passes_for_other_reasons() {
    let mut backoff = backoff();
    backoff.failed("a", Retry::Soon, at(0));
    for reason in [Reason::Hint, Reason::Retry, Reason::Desired] {
        assert!(!backoff.may_try(&"a", reason.into(), at(50)), "{reason:?}");
        assert!(backoff.may_try(&"b", reason.into(), at(50)), "{reason:?}");
        assert!(backoff.may_try(&"a", reason.into(), at(FIRST)), "{reason:?}");
    }
    assert_eq!(backoff.take_due(at(FIRST)), ["a"]);
    assert!(backoff.may_try(&"a", Reason::Retry.into(), at(FIRST)), "it is being tried");
}

#[test]
fn success_and_a_new_desired_state_begin_anew() {
    let mut backoff = backoff();
    waits(&mut backoff, Retry::Soon, 8);
    assert_eq!((backoff.streak(&"a"), backoff.tracked()), (9, 1));
    backoff.forget(&"a");
    assert_eq!((backoff.streak(&"a"), backoff.tracked(), backoff.deadline()), (0, 0, None));
    backoff.failed("a", Retry::Soon, at(900_000));
    assert_eq!(backoff.streak(&"a"), 1);
    assert!(backoff.deadline() <= Some(at(900_000 + FIRST)));
    backoff.retain(|_| false);
    assert_eq!((backoff.tracked(), backoff.deadline()), (0, None));
}

#[test]
fn a_full_pass_forgets_the_keys_that_no_longer_fail() {
    let mut backoff = backoff();
    (0..10).for_each(|key| backoff.failed(key, Retry::Soon, at(0)));
    backoff.retain(|key| key % 5 == 0);
    assert_eq!(backoff.tracked(), 2);
    let mut due = backoff.take_due(at(FIRST));
    due.sort_unstable();
    assert_eq!(due, [0, 5]);
}

#[test]
fn a_key_without_an_answer_comes_back() {
    let mut backoff = backoff();
    backoff.failed("a", Retry::Soon, at(0));
    assert_eq!(backoff.take_due(at(FIRST)), ["a"]);
    assert!(backoff.take_due(at(FIRST)).is_empty());
    assert_eq!(backoff.deadline(), Some(at(FIRST + LONGEST)));
    assert_eq!(backoff.take_due(at(FIRST + LONGEST)), ["a"]);
}

#[test]
fn a_whole_source_backs_off_by_the_same_rules() {
    let mut backoff: Backoff<()> = backoff();
    backoff.failed((), Retry::Soon, at(0));
    assert!(backoff.take_due(at(74)).is_empty());
    assert_eq!(backoff.take_due(at(FIRST)), [()]);
    backoff.forget(&());
    assert_eq!(backoff.deadline(), None);
}

// What others learned the hard way.

#[test]
fn eighteen_failures_within_seconds_do_not_stall_a_key() {
    // Where events bypass the delay and count, 18 of them made a pause of 1000 s.
    let mut backoff = backoff();
    for nth in 0..18 {
        backoff.take(&"a", at(nth * 100));
        backoff.failed("a", Retry::Soon, at(nth * 100 + 1));
    }
    assert!(backoff.streak(&"a") <= 5, "{}", backoff.streak(&"a"));
    assert!(backoff.deadline() <= Some(at(1_701 + 1_600)), "{:?}", backoff.deadline());
}

#[test]
fn a_storm_of_passes_neither_counts_nor_puts_the_try_off() {
    let mut backoff = backoff();
    backoff.failed("a", Retry::Soon, at(0));
    let due = backoff.deadline();
    for now in 1..70 {
        backoff.take(&"a", at(now));
        backoff.failed("a", Retry::Soon, at(now));
        assert_eq!((backoff.streak(&"a"), backoff.deadline()), (1, due));
    }
}

#[test]
fn one_failing_key_delays_no_other() {
    let mut backoff = backoff();
    waits(&mut backoff, Retry::Soon, 20);
    backoff.failed("b", Retry::Soon, at(0));
    assert_eq!((backoff.streak(&"b"), backoff.take_due(at(FIRST))), (1, vec!["b"]));
}

#[test]
fn without_a_failing_key_there_is_no_deadline() {
    // A stopped timer that reads as ready fires for ever.
    let mut backoff: Backoff<&str> = backoff();
    assert_eq!((backoff.deadline(), backoff.take_due(at(9))), (None, vec![]));
    backoff.take(&"healthy", at(9));
    assert_eq!((backoff.deadline(), backoff.tracked()), (None, 0));
}

#[test]
fn a_try_before_the_deadline_leaves_no_stale_tick() {
    let mut backoff = backoff();
    backoff.failed("a", Retry::Soon, at(0));
    backoff.take(&"a", at(10));
    backoff.forget(&"a");
    assert_eq!((backoff.deadline(), backoff.take_due(at(FIRST))), (None, vec![]));
}

thread_local! {
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

#[derive(Clone, PartialEq, Eq)]
struct Counted(u64);

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARED.set(COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[test]
fn one_of_many_failing_keys_costs_no_look_at_the_others() {
    let mut backoff = backoff();
    (0..50_000).for_each(|key| backoff.failed(Counted(key), Retry::Soon, at(0)));
    COMPARED.set(0);
    for key in 0..1_000 {
        backoff.take(&Counted(key), at(1));
        assert!(backoff.deadline() > Some(at(1)));
        backoff.failed(Counted(key), Retry::Soon, at(1));
        backoff.forget(&Counted(key));
    }
    let each = COMPARED.get() / 1_000;
    assert!(each < 500, "{each} comparisons for one of many keys");
    assert_eq!(backoff.tracked(), 49_000);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A pass takes the key along, and it fails.
    Try(u8, Retry),
    Fail(u8, Retry),
    Forget(u8),
}

/// What must hold for one failing key, kept in the plainest way.
#[derive(Clone, Copy, Debug)]
struct Model {
    retry: Retry,
    streak: u32,
    at_once: u32,
    counted: Option<u64>,
}

impl Model {
    const NEW: Self = Self { retry: Retry::Soon, streak: 0, at_once: 0, counted: None };

    fn least_until(self) -> Time {
        self.counted.map_or(at(0), |counted| at(counted).after(least(self.streak)))
    }

    fn most_until(self) -> Time {
        self.counted.map_or(at(0), |counted| at(counted).after(pauses().nth(self.streak)))
    }

    fn failed(&mut self, retry: Retry, (streak, now): (u32, u64)) {
        self.at_once = if retry == Retry::Now { self.at_once + 1 } else { 0 };
        self.retry = if self.at_once > 3 { Retry::Soon } else { retry };
        if streak != self.streak {
            self.counted = Some(now);
        }
        self.streak = streak;
    }

    fn may_be_taken(self, now: Time) -> bool {
        match self.retry {
            Retry::Now => true,
            Retry::Soon => self.least_until() <= now,
            Retry::OnChange | Retry::Never => false,
        }
    }

    fn latest(self, now: Time) -> Option<Time> {
        match self.retry {
            Retry::Now => Some(now),
            Retry::Soon => Some(self.most_until().max(now)),
            Retry::OnChange | Retry::Never => None,
        }
    }
}

fn retries() -> impl Strategy<Value = Retry> {
    prop_oneof![
        4 => Just(Retry::Soon),
        2 => Just(Retry::Now),
        1 => Just(Retry::OnChange),
        1 => Just(Retry::Never),
    ]
}

fn scripts() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        6 => (0..5_u8, retries()).prop_map(|(key, retry)| Event::Try(key, retry)),
        3 => (0..5_u8, retries()).prop_map(|(key, retry)| Event::Fail(key, retry)),
        1 => (0..5_u8).prop_map(Event::Forget),
    ];
    prop::collection::vec((prop_oneof![3 => 0..40_u64, 1 => 0..3_000_u64], event), 1..120)
}

/// The machine beside what must hold for it.
struct Run {
    backoff: Backoff<u8>,
    models: BTreeMap<u8, Model>,
}

impl Run {
    fn feed(&mut self, event: Event, now: u64) -> Result<(), TestCaseError> {
        match event {
            Event::Try(key, retry) => {
                self.backoff.take(&key, at(now));
                self.fail(key, retry, now)?;
            }
            Event::Fail(key, retry) => self.fail(key, retry, now)?,
            Event::Forget(key) => {
                self.backoff.forget(&key);
                self.models.remove(&key);
            }
        }
        Ok(())
    }

    // A failure counts if, and only if, the pause before it had elapsed.
    fn fail(&mut self, key: u8, retry: Retry, now: u64) -> Result<(), TestCaseError> {
        let model = self.models.entry(key).or_insert(Model::NEW);
        let before = *model;
        self.backoff.failed(key, retry, at(now));
        model.failed(retry, (self.backoff.streak(&key), now));
        if model.streak != before.streak {
            prop_assert_eq!(model.streak, before.streak + 1);
            prop_assert!(model.retry == Retry::Soon && before.least_until() <= at(now), "inflated");
        } else if model.retry == Retry::Soon {
            prop_assert!(at(now) < before.most_until(), "a failure after the pause has to count");
        }
        Ok(())
    }

    fn none_starves(&self, now: u64) -> Result<(), TestCaseError> {
        for (key, model) in &self.models {
            if let Some(latest) = model.latest(at(now)) {
                prop_assert!(self.due(*key).is_some_and(|due| due <= latest), "{key}");
            }
        }
        prop_assert_eq!(self.backoff.tracked(), self.models.len());
        Ok(())
    }

    fn due(&self, key: u8) -> Option<Time> {
        let mut alone = self.backoff.clone();
        alone.retain(|other| *other == key);
        alone.deadline()
    }

    /// Takes what is due: none too early, and all in order.
    fn take(&mut self, now: u64) -> Result<Vec<u8>, TestCaseError> {
        let dues: BTreeMap<_, _> = (0..5).map(|key| (key, self.due(key))).collect();
        let taken = self.backoff.take_due(at(now));
        prop_assert!(taken.iter().is_sorted_by_key(|key| dues.get(key)), "{taken:?} of {dues:?}");
        for key in &taken {
            let model = self.models.get(key);
            let may = model.is_some_and(|model| model.may_be_taken(at(now)));
            prop_assert!(may, "{key} too early at {now}: {model:?}");
        }
        Ok(taken)
    }
}

/// The first whole millisecond that is not before it.
fn ceil(time: Time) -> u64 {
    u64::try_from(time.since_epoch().as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tries_keep_their_pauses_and_none_is_starved(
        script in scripts(),
        answers in prop::collection::vec(prop::option::weighted(0.8, retries()), 1..9),
    ) {
        let mut run = Run { backoff: backoff(), models: BTreeMap::new() };
        let mut answers = answers.into_iter().cycle();
        let (mut now, mut time) = (0, 0);
        for (gap, event) in script {
            time += gap;
            while let Some(due) = run.backoff.deadline().map(ceil).filter(|due| *due < time) {
                now = due.max(now);
                for key in run.take(now)? {
                    let answer = answers.next().flatten();
                    run.feed(answer.map_or(Event::Forget(key), |retry| Event::Fail(key, retry)), now)?;
                }
                run.none_starves(now)?;
            }
            now = time;
            run.feed(event, now)?;
            run.none_starves(now)?;
        }
    }

    #[test]
    fn passes_never_inflate_a_backoff(gaps in prop::collection::vec(0..400_u64, 1..200)) {
        let mut backoff = backoff();
        let mut now = 0;
        backoff.failed("a", Retry::Soon, at(0));
        for gap in gaps {
            now += gap;
            backoff.take(&"a", at(now));
            backoff.failed("a", Retry::Soon, at(now));
            let elapsed: Duration = (1..backoff.streak(&"a")).map(least).sum();
            prop_assert!(elapsed <= ms(now), "{} counted by {now}", backoff.streak(&"a"));
        }
    }
}

#[test]
fn a_key_that_a_running_pass_tries_along_is_not_due_beside_it() {
    for (retry, may_try) in [(Retry::Soon, true), (Retry::OnChange, true), (Retry::Never, false)] {
        let mut backoff = backoff();
        backoff.failed("a", retry, at(0));
        assert!(!backoff.may_try(&"a", Reason::Hint.into(), at(1)), "{retry:?}");
        backoff.take(&"a", at(1));
        assert_eq!(backoff.may_try(&"a", Reason::Hint.into(), at(1)), may_try, "{retry:?}");
        assert!(backoff.take_due(at(2)).is_empty());
        let before = backoff.streak(&"a");
        backoff.failed("a", retry, at(2));
        assert_eq!(backoff.streak(&"a"), before, "a try before its time does not count");
    }
}
