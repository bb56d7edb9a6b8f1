//! Full passes are paced as promised: every known edge case in virtual time, then the bounds under
//! random scripts. Times are milliseconds.

use std::time::Duration;

use homeostat_core::pacing::{Fired, Pacer, Policy, Reason, Reasons, Time};
use proptest::prelude::*;

const START: Wakeup = Wakeup::Of(Reason::Start);
const DESIRED: Wakeup = Wakeup::Of(Reason::Desired);
const HINT: Wakeup = Wakeup::Of(Reason::Hint);
const RESYNC: Wakeup = Wakeup::Of(Reason::Resync);
const RETRY: Wakeup = Wakeup::Of(Reason::Retry);
const OPERATOR: Wakeup = Wakeup::Of(Reason::Operator);

#[derive(Clone, Copy, Debug)]
enum Wakeup {
    Of(Reason),
    Command(Reason),
    Unknown,
}

impl Wakeup {
    fn reasons(self) -> Reasons {
        match self {
            Self::Of(reason) | Self::Command(reason) => reason.into(),
            Self::Unknown => Reasons::NONE,
        }
    }

    fn is_command(self) -> bool {
        !matches!(self, Self::Of(Reason::Hint | Reason::Desired))
    }

    fn feed(self, pacer: &mut Pacer, now: Time) {
        if self.is_command() {
            pacer.on_command(self.reasons(), now);
        } else {
            pacer.on_paced(self.reasons(), now);
        }
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(time: u64) -> Time {
    Time::from_epoch(ms(time))
}

fn millis(time: Time) -> u64 {
    u64::try_from(time.since_epoch().as_millis()).unwrap_or(u64::MAX)
}

fn refractory(min_interval: u64) -> Policy {
    Policy::refractory(ms(min_interval))
}

#[expect(clippy::unwrap_used, reason = "a policy that is refused fails its test")]
fn quiet(quiet: u64, max_wait: u64) -> Policy {
    Policy::quiet(ms(quiet), ms(max_wait)).unwrap()
}

fn synced(policy: Policy) -> Pacer {
    let mut pacer = Pacer::new(policy);
    pacer.synced();
    pacer
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Pass {
    start: u64,
    end: u64,
    reasons: Reasons,
}

type Script<'a> = &'a [(u64, Wakeup)];

/// The plainest driver: it sleeps until the next wakeup, the end of a pass or the deadline, and
/// comes back when none of them is left.
fn drive(pacer: &mut Pacer, script: Script, lengths: &[u64]) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let mut lengths = lengths.iter().copied().cycle();
    let mut script = script.iter().copied().peekable();
    let mut running = None;
    let mut now = 0;
    loop {
        let deadline = pacer.deadline().map(millis);
        let wakeup = script.peek().map(|(time, _)| *time);
        let Some(next) = [deadline, wakeup, running].into_iter().flatten().min() else {
            return passes;
        };
        now = next.max(now);
        if running.take_if(|end| *end <= now).is_some() {
            pacer.finished();
        }
        while let Some((_, wakeup)) = script.next_if(|(time, _)| *time <= now) {
            wakeup.feed(pacer, at(now));
        }
        if let Some(Fired { reasons, .. }) = pacer.fire(at(now)) {
            let end = now + lengths.next().unwrap_or(0);
            running = Some(end);
            passes.push(Pass { start: now, end, reasons });
        }
    }
}

#[track_caller]
fn check(name: &str, policy: Policy, script: Script, expected: &[(u64, &str)]) {
    check_busy(name, policy, (script, 0), expected);
}

#[track_caller]
fn check_busy(
    name: &str,
    policy: Policy,
    (script, length): (Script, u64),
    expected: &[(u64, &str)],
) {
    let passes = drive(&mut synced(policy), script, &[length]);
    let fires: Vec<_> = passes.iter().map(|pass| (pass.start, pass.reasons.to_string())).collect();
    let expected: Vec<_> = expected.iter().map(|(time, why)| (*time, (*why).to_owned())).collect();
    assert_eq!(fires, expected, "{name}");
}

#[test]
fn the_published_timings_hold() {
    check(
        "changes at 0, 100, 300 ms and a quiet period of 5 s fire once at 5300 ms",
        quiet(5_000, 60_000),
        &[(0, HINT), (100, HINT), (300, HINT)],
        &[(5_300, "hint")],
    );
    check(
        "a leading edge with 200 ms and a change at 50 ms fires at 0 and 200, not 250",
        refractory(200),
        &[(0, HINT), (50, HINT)],
        &[(0, "hint"), (200, "hint")],
    );
}

#[test]
fn hints_fire_at_the_edges_of_a_window_that_is_never_extended() {
    let window = refractory(200);
    check("the first hint fires at once", refractory(500), &[(7, HINT)], &[(7, "hint")]);
    check(
        "hints inside the window fire together at its end",
        window,
        &[(0, HINT), (50, HINT), (100, HINT), (199, HINT)],
        &[(0, "hint"), (200, "hint")],
    );
    check(
        "a deferred pass opens a window as well",
        window,
        &[(0, HINT), (50, HINT), (210, HINT), (390, HINT)],
        &[(0, "hint"), (200, "hint"), (400, "hint")],
    );
    check(
        "a hint after an empty window fires at once",
        window,
        &[(0, HINT), (250, HINT)],
        &[(0, "hint"), (250, "hint")],
    );
    check(
        "a hint at the very end of the window is outside of it",
        window,
        &[(0, HINT), (200, HINT)],
        &[(0, "hint"), (200, "hint")],
    );
    check(
        "the source's reasons survive the wait",
        window,
        &[(0, HINT), (10, DESIRED), (20, HINT)],
        &[(0, "hint"), (200, "desired,hint")],
    );
}

#[test]
fn commands_bypass_absorb_and_restart_the_window() {
    let hour = refractory(3_600_000);
    check(
        "a command fires at once, however long the window",
        hour,
        &[(0, HINT), (1, OPERATOR)],
        &[(0, "hint"), (1, "operator")],
    );
    check(
        "a command absorbs the pending hint, then all is silent",
        refractory(200),
        &[(0, HINT), (50, HINT), (60, OPERATOR)],
        &[(0, "hint"), (60, "hint,operator")],
    );
    check(
        "an accepted input absorbs the pending hint, although its reason alone might wait",
        refractory(200),
        &[(0, HINT), (50, HINT), (60, Wakeup::Command(Reason::Desired))],
        &[(0, "hint"), (60, "desired,hint")],
    );
    check(
        "a hint right after a command waits a whole window",
        refractory(200),
        &[(0, HINT), (150, OPERATOR), (151, HINT)],
        &[(0, "hint"), (150, "operator"), (350, "hint")],
    );
    check(
        "a resync after a hint keeps its own reason",
        refractory(200),
        &[(0, HINT), (20, RESYNC)],
        &[(0, "hint"), (20, "resync")],
    );
    check(
        "a retry is not paced twice",
        refractory(200),
        &[(0, HINT), (20, RETRY)],
        &[(0, "hint"), (20, "retry")],
    );
    check(
        "a wakeup without a known reason must run",
        refractory(200),
        &[(0, HINT), (20, Wakeup::Unknown)],
        &[(0, "hint"), (20, "none")],
    );
    check(
        "a command ends a quiet period",
        quiet(100, 1_000),
        &[(0, HINT), (20, OPERATOR)],
        &[(20, "hint,operator")],
    );
}

#[test]
fn each_policy_keeps_its_interval() {
    let hints: Vec<_> = (0..=20).map(|nth| (nth * 50, HINT)).collect();
    check("a custom interval", refractory(400), &hints, &[0, 400, 800, 1_200].map(|t| (t, "hint")));
    let all: Vec<_> = hints.iter().map(|(time, _)| (*time, "hint")).collect();
    check("an interval of zero is none", refractory(0), &hints, &all);
    let bounded = [300, 650, 1_000].map(|t| (t, "hint"));
    check("steady hints hit the longest wait", quiet(100, 300), &hints, &bounded);
    let pauses = [40, 90].map(|t| (t, "hint"));
    check("pauses end the gathering", quiet(40, 300), &hints[..2], &pauses);
}

#[test]
fn a_wakeup_during_a_pass_leaves_one_mark() {
    let storm: Vec<_> = (0..10_000).map(|nth| (nth / 20, HINT)).collect();
    check_busy(
        "ten thousand hints during one pass are one more pass",
        refractory(100),
        (&storm, 600),
        &[(0, "hint"), (600, "hint")],
    );
    check_busy(
        "immediate passes do not overlap",
        refractory(0),
        (&[(0, HINT), (1, HINT), (2, HINT)], 50),
        &[(0, "hint"), (50, "hint")],
    );
    check_busy(
        "a window longer than the pass counts from its start",
        refractory(200),
        (&[(0, HINT), (10, HINT)], 50),
        &[(0, "hint"), (200, "hint")],
    );
    check_busy(
        "a command waits for the running pass only",
        refractory(200),
        (&[(0, HINT), (10, OPERATOR)], 50),
        &[(0, "hint"), (50, "operator")],
    );
    check_busy(
        "a quiet period may elapse during a pass",
        quiet(100, 500),
        (&[(0, HINT), (150, HINT)], 400),
        &[(100, "hint"), (500, "hint")],
    );
    let commands: Vec<_> = (0..4_096).map(|nth| (1 + nth / 100, OPERATOR)).collect();
    check_busy(
        "no number of commands is lost or backs up",
        refractory(100),
        (&commands, 1_000),
        &[(1, "operator"), (1_001, "operator")],
    );
}

#[test]
fn a_command_is_never_displaced() {
    let rows: [(&str, Script, &str); 4] = [
        ("command after hint", &[(10, HINT), (11, OPERATOR)], "hint,operator"),
        ("hint after command", &[(10, OPERATOR), (11, HINT)], "hint,operator"),
        ("command after command", &[(10, OPERATOR), (11, RESYNC)], "resync,operator"),
        ("unknown then hint", &[(10, Wakeup::Unknown), (11, HINT)], "hint"),
    ];
    for (name, queued, why) in rows {
        let script = [&[(0, HINT)], queued].concat();
        check_busy(name, refractory(1_000), (&script, 50), &[(0, "hint"), (50, why)]);
    }
}

#[test]
fn before_the_first_full_pass_only_commands_fire() {
    let mut pacer = Pacer::new(refractory(100));
    assert_eq!(drive(&mut pacer, &[(0, HINT), (5_000, HINT)], &[0]), [], "hints alone");
    let first = drive(&mut pacer, &[(6_000, START), (6_010, HINT)], &[20]);
    let absorbed = Pass { start: 6_000, end: 6_020, reasons: Reason::Start | Reason::Hint };
    assert_eq!(first, [absorbed], "the first pass absorbs, and has not seen everything yet");
    let retried = drive(&mut pacer, &[(6_500, RETRY)], &[20]);
    let again = Pass { start: 6_500, end: 6_520, reasons: Reason::Hint | Reason::Retry };
    assert_eq!(retried, [again], "after a failed first pass its retry absorbs");
    assert!(!pacer.is_synced());
    pacer.synced();
    let hinted = drive(&mut pacer, &[(6_530, HINT)], &[0]);
    assert_eq!(hinted.iter().map(|pass| pass.start).collect::<Vec<_>>(), [6_600]);
}

fn wakeups() -> impl Strategy<Value = Wakeup> {
    prop_oneof![
        12 => Just(HINT),
        3 => Just(DESIRED),
        1 => Just(OPERATOR),
        1 => Just(RESYNC),
        1 => Just(Wakeup::Command(Reason::Desired)),
        1 => Just(Wakeup::Unknown),
    ]
}

fn scripts() -> impl Strategy<Value = Vec<(u64, Wakeup)>> {
    let gaps = prop_oneof![3 => 0..20_u64, 2 => 0..150_u64, 1 => 0..1_500_u64];
    prop::collection::vec((gaps, wakeups()), 1..60).prop_map(|steps| {
        let times = steps.iter().scan(0, |time, (gap, _)| {
            *time += gap;
            Some(*time)
        });
        times.zip(steps.iter().map(|(_, wakeup)| *wakeup)).collect()
    })
}

/// A policy with the least time between two passes and the longest wait of a hint.
fn policies() -> impl Strategy<Value = (Policy, u64, u64)> {
    prop_oneof![
        1 => Just((refractory(0), 0, 0)),
        4 => (1..300_u64).prop_map(|min| (refractory(min), min, min)),
        4 => (1..200_u64, 0..400_u64).prop_map(|(gap, more)| (quiet(gap, gap + more), gap, gap + more)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_bounds_hold_for_every_script(
        (policy, least, longest) in policies(),
        script in scripts(),
        lengths in prop::collection::vec(0..250_u64, 1..8),
    ) {
        let mut pacer = synced(policy);
        let passes = drive(&mut pacer, &script, &lengths);
        let mut unserved = &script[..];
        let mut before: Option<Pass> = None;
        for pass in &passes {
            let (served, rest) = unserved.split_at(unserved.partition_point(|(time, _)| *time <= pass.start));
            unserved = rest;
            prop_assert!(!served.is_empty(), "{pass:?} has no reason");
            let merged = served.iter().fold(Reasons::NONE, |all, (_, wakeup)| all | wakeup.reasons());
            prop_assert_eq!(pass.reasons, merged);
            let ended = before.map_or(0, |before| before.end);
            prop_assert!(pass.start >= ended, "{pass:?} overlaps {before:?}");
            let is_commanded = served.iter().any(|(_, wakeup)| wakeup.is_command());
            let too_early = before.is_some_and(|before| pass.start < before.start + least);
            prop_assert!(is_commanded || !too_early, "{pass:?} too soon after {before:?}");
            for (time, wakeup) in served {
                let wait = if wakeup.is_command() { 0 } else { longest };
                prop_assert!(pass.start <= ended.max(time + wait), "{wakeup:?} of {time} in {pass:?}");
            }
            before = Some(*pass);
        }
        prop_assert!(unserved.is_empty(), "never served: {unserved:?}");
        prop_assert_eq!(pacer.deadline(), None, "then quiet");
    }
}
