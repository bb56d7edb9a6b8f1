//! Outcomes of steps, the report that they become, and when a pass counts as converged.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a desired state that cannot be made fails the test"
)]

#[path = "common/scripted.rs"]
#[allow(dead_code, reason = "the schedule is tested elsewhere")]
mod scripted;

use homeostat_core::{
    Action, Cause, Changes, Entry, Explain, Failure, Finding, HeldBy, Kind, LastApplied, Outcome,
    Owner, PassTrouble, Plan, Reason, Report, Retry, Slot, Summary, Table, Tally, WaitsOn,
};
use scripted::{Independent, Keys, Scripted, plan, plan_for, steps};

type Made = Plan<Scripted<Independent>>;

const APPLIED: Outcome<u32> = Outcome::Applied { now: None };

fn failed() -> Outcome<u32> {
    Outcome::Failed(Failure::new("no", Retry::Soon))
}

fn pending() -> Outcome<u32> {
    Outcome::Pending { on: WaitsOn::Condition("x".to_owned()) }
}

fn desired(rows: &[(&str, u32)]) -> Keys {
    Table::new(rows.iter().map(|(key, value)| ((*key).to_owned(), *value))).unwrap()
}

#[test]
fn bits_at_the_edges_of_words_are_apart() {
    for len in [1, 63, 64, 65, 128, 200] {
        for step in [0, 62, 63, 64, 65, 127, 128, 199].into_iter().filter(|step| *step < len) {
            let mut tally = Tally::<u32>::new(len);
            tally.put(step..step + 1, &APPLIED);
            let applied: Vec<_> = (0..len).filter(|at| tally.is_applied(*at)).collect();
            let open: Vec<_> = (0..len).filter(|at| tally.is_open(*at)).collect();
            assert_eq!((applied, open.len()), (vec![step], len - 1), "{step} of {len}");
        }
    }
}

#[test]
fn a_range_over_several_words_answers_for_every_step_in_it() {
    let mut tally = Tally::<u32>::new(200);
    tally.put(10..190, &APPLIED);
    assert!((10..190).all(|step| tally.is_good(step)));
    assert!((0..10).chain(190..200).all(|step| tally.is_open(step)));
    assert_eq!(tally.others().count(), 0, "good outcomes cost a bit each");
}

#[test]
fn the_first_word_on_a_step_stands() {
    let mut tally = Tally::new(3);
    tally.put(0..1, &APPLIED);
    tally.put(1..2, &failed());
    tally.put(0..3, &pending());
    assert!(tally.is_applied(0));
    assert_eq!(tally.other(1), Some(&failed()));
    assert_eq!(tally.other(2), Some(&pending()));
}

#[test]
fn a_second_look_knows_better() {
    let mut tally = Tally::new(2);
    tally.put(0..1, &APPLIED);
    tally.revise(0, failed());
    assert!(!tally.is_good(0) && !tally.is_applied(0));
    assert_eq!(tally.other(0), Some(&failed()));
    tally.revise(0, APPLIED);
    assert!(tally.is_applied(0) && tally.other(0).is_none());
    tally.revise(1, Outcome::Settled { held: 4 });
    assert!(tally.is_good(1) && !tally.is_applied(1));
}

#[test]
fn answers_for_steps_that_do_not_exist_are_dropped_at_once() {
    let mut tally = Tally::new(3);
    tally.put(0..usize::MAX, &failed());
    tally.put(usize::MAX - 1..usize::MAX, &APPLIED);
    tally.revise(64, APPLIED);
    assert!(tally.is_open(64) && !tally.is_applied(usize::MAX));
    let mut empty = Tally::new(0);
    empty.put(0..5, &failed());
    assert_eq!(empty.others().count(), 0);
}

#[test]
fn good_outcomes_are_those_that_changed_the_target() {
    let rows = [
        (APPLIED, true),
        (Outcome::Settled { held: 1 }, true),
        (Outcome::Conflict { owner: Owner::foreign("bird") }, false),
        (failed(), false),
        (Outcome::Unknown { why: String::new() }, false),
        (pending(), false),
        (Outcome::Waiting { task: "7".to_owned() }, false),
    ];
    for (outcome, good) in rows {
        let mut tally = Tally::new(1);
        tally.put(0..1, &outcome);
        assert_eq!((outcome.is_good(), tally.is_good(0)), (good, good), "{outcome:?}");
        let report = Report::new(plan::<Independent>(steps("+a")), tally);
        assert_eq!(report.is_converged(), good, "{outcome:?}");
        assert_eq!(report.summary().total(), usize::from(good), "{outcome:?}");
    }
}

fn entries(report: &dyn Explain, kind: Kind) -> Vec<Entry> {
    let mut entries = Vec::new();
    report.explain(kind, &mut |entry| entries.push(entry));
    entries
}

#[test]
fn a_step_without_an_answer_is_unknown() {
    let mut tally = Tally::new(2);
    tally.put(0..1, &APPLIED);
    let report = Report::new(plan::<Independent>(steps("+a +b")), tally);
    let why = "the `scripted` source gave no answer for this step".to_owned();
    assert_eq!(
        entries(&report, Kind::Unknown),
        [Entry::Finding { key: "b".into(), finding: Finding::Unknown { why } }]
    );
    assert!(!report.is_converged());
    assert_eq!(report.summary(), Summary::from_iter([Action::Create]));
}

#[test]
fn every_outcome_has_its_place_in_the_report() {
    let made = plan_for::<Independent>(
        steps("+a ~b +c -d +e +f %g"),
        desired(&[("b", 2)]),
        Changes::default(),
    );
    let mut tally = Tally::new(7);
    let outcomes = [
        APPLIED,
        Outcome::Settled { held: 3 },
        Outcome::Conflict { owner: Owner::foreign("bird") },
        failed(),
        Outcome::Unknown { why: "lost".to_owned() },
        pending(),
        Outcome::Waiting { task: "7".to_owned() },
    ];
    for (at, outcome) in outcomes.iter().enumerate() {
        tally.put(at..at + 1, outcome);
    }
    let report = Report::new(made, tally);
    let key = str::to_owned;
    let applied = entries(&report, Kind::Applied);
    assert_eq!(applied.len(), 2, "settled steps wrote, too: {applied:?}");
    let (wanted, held) = (Box::new(2.into()), Box::new(3.into()));
    assert_eq!(
        entries(&report, Kind::Settled),
        [Entry::Finding { key: key("b"), finding: Finding::Settled { wanted, held } }]
    );
    let (owner, reason) = (Owner::foreign("bird"), Reason::Foreign);
    assert_eq!(
        entries(&report, Kind::Conflict),
        [Entry::Finding { key: key("c"), finding: Finding::Conflict { owner, reason } }]
    );
    let (action, failure) = (Some(Action::Delete), Failure::new("no", Retry::Soon));
    assert_eq!(
        entries(&report, Kind::Failed),
        [Entry::Finding { key: key("d"), finding: Finding::Failed { action, failure } }]
    );
    assert_eq!(
        entries(&report, Kind::Unknown),
        [Entry::Finding { key: key("e"), finding: Finding::Unknown { why: key("lost") } }]
    );
    let waits = [
        Entry::Finding {
            key: key("f"),
            finding: Finding::Pending { on: WaitsOn::Condition(key("x")) },
        },
        Entry::Finding { key: key("g"), finding: Finding::Pending { on: WaitsOn::Task(key("7")) } },
    ];
    assert_eq!(entries(&report, Kind::Pending), waits);
    assert_eq!(entries(&report, Kind::Change), []);
    assert_eq!(entries(&report, Kind::Held), []);
    assert_eq!(report.summary(), Summary::from_iter([Action::Create, Action::Update]));
}

/// A name, what it does to an empty plan, and whether that plan still counts as converged.
type Row = (&'static str, fn(&mut Made), bool);

fn find(plan: &mut Made, finding: Finding) {
    plan.findings.push(("a".into(), finding));
}

#[test]
fn converged_means_nothing_failed_pending_unknown_held_or_in_conflict() {
    let rows: [Row; 10] = [
        ("nothing", |_| {}, true),
        ("matched", |plan| find(plan, Finding::Matched { owner: Owner::Kernel }), true),
        (
            "settled",
            |plan| {
                find(
                    plan,
                    Finding::Settled { wanted: Box::new(2.into()), held: Box::new(3.into()) },
                );
            },
            true,
        ),
        ("claimed", |plan| plan.found.claims.push(Slot(0)), true),
        ("pruned", |plan| plan.found.pruned.push("z".into()), true),
        ("unknown", |plan| find(plan, Finding::Unknown { why: "why".into() }), false),
        (
            "conflict",
            |plan| {
                let (owner, reason) = (Owner::Kernel, Reason::Foreign);
                find(plan, Finding::Conflict { owner, reason });
            },
            false,
        ),
        (
            "pending",
            |plan| {
                plan.wait("a".into(), WaitsOn::Condition("x".into()));
            },
            false,
        ),
        (
            "refused",
            |plan| {
                let failure = Failure::new("no", Retry::Never);
                find(plan, Finding::refused(failure));
            },
            false,
        ),
        (
            "held",
            |plan| {
                let (action, why) = (Action::Delete, "guard".into());
                find(plan, Finding::Held { action, by: HeldBy::DeleteBudget, why });
            },
            false,
        ),
    ];
    for (name, spoil, converged) in rows {
        let made = || {
            let mut made: Made = plan_for(vec![], desired(&[("a", 2)]), Changes::default());
            spoil(&mut made);
            made
        };
        assert_eq!(made().is_converged(), converged, "the plan, {name}");
        let report = Report::new(made(), Tally::new(0));
        assert_eq!(report.is_converged(), converged, "the report, {name}");
    }
    assert!(!plan::<Independent>(steps("+a")).is_converged(), "a step is left to be done");
}

#[test]
fn what_made_a_pass_fail_is_in_the_list_of_failures_under_its_name() {
    let failure = Failure::new("no room", Retry::Soon).with_help("make some");
    for (about, name) in [
        (PassTrouble::Ledger, "ledger"),
        (PassTrouble::Journal, "journal"),
        (PassTrouble::Source("memory".into()), "memory"),
    ] {
        let report = Report::new(plan::<Independent>(vec![]), Tally::new(0));
        let report = report.unrecorded(about.clone(), failure.clone());
        assert!(!report.is_converged());
        let entry = Entry::Pass { about, failure: failure.clone() };
        assert_eq!(entries(&report, Kind::Failed), std::slice::from_ref(&entry));
        let refused = Finding::refused(failure.clone());
        let of_key = Entry::Finding { key: name.to_owned(), finding: refused };
        assert_eq!(serde_json::to_string(&entry).unwrap(), serde_json::to_string(&of_key).unwrap());
    }
}

#[test]
fn held_steps_leave_the_plan_in_order_and_are_reported() {
    let mut made = plan::<Independent>(steps("+a -b +c -d"));
    let by = HeldBy::Cascade;
    made.hold(by, |_, step| (step.action == Action::Delete).then(|| format!("not {}", step.key)));
    let kept: Vec<_> = made.steps.iter().map(|step| step.key.as_str()).collect();
    assert_eq!(kept, ["a", "c"]);
    let held = |key: &str| {
        let why = format!("not {key}");
        Entry::Finding {
            key: key.to_owned(),
            finding: Finding::Held { action: Action::Delete, by, why },
        }
    };
    assert_eq!(entries(&made, Kind::Held), [held("b"), held("d")]);
    assert_eq!(made.summary(), Summary::from_iter([Action::Create; 2]));
}

#[test]
fn a_plan_distinguishes_config_from_drift_by_the_last_applied_desired_state() {
    let last = LastApplied::of(&desired(&[("changed", 1), ("dropped", 1), ("same", 1)]));
    let now = desired(&[("changed", 2), ("fresh", 1), ("same", 1)]);
    let rows = "~changed +fresh ~same -dropped -stray";
    let made: Made = plan_for(steps(rows), now, Changes::default()).since(last);
    let causes: Vec<_> = entries(&made, Kind::Change)
        .into_iter()
        .map(|entry| match entry {
            Entry::Change(line, cause) => (line.key, cause),
            other => panic!("{other:?}"),
        })
        .collect();
    let (config, drift) = (Cause::Config, Cause::Drift);
    let expected = [
        ("changed", config),
        ("fresh", config),
        ("same", drift),
        ("dropped", config),
        ("stray", drift),
    ];
    assert_eq!(causes, expected.map(|(key, cause)| (key.to_owned(), cause)));
}

#[test]
fn a_failure_joins_the_chain_of_its_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::num::ParseIntError);
    let error = Outer("x".parse::<u8>().unwrap_err());
    let failure = Failure::from_error(&error, Retry::Soon).with_help("write a number");
    assert_eq!(failure.to_string(), "outer: invalid digit found in string");
    assert_eq!(failure.help.as_deref(), Some("write a number"));
}

#[test]
fn what_others_say_is_bounded_in_failures_and_findings() {
    let long = "x".repeat(1 << 20);
    let failure = Failure::new(&*long, Retry::Soon).with_help(&*long);
    assert!(failure.error.len() < 3000 && failure.help.unwrap().len() < 3000);
    let unknown = Outcome::<u32>::Unknown { why: long }.finding(Action::Update, |_| None);
    assert!(unknown.unwrap().reason().len() < 3000);
}
