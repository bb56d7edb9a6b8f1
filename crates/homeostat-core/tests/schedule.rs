//! Law 9: which steps run, and which wait on what, for every way in which steps fail. The language
//! of the rows is explained in `common/scripted.rs`.

#[path = "common/mod.rs"]
mod common;
#[path = "common/scripted.rs"]
mod scripted;

use std::collections::{BTreeMap, BTreeSet};

use common::cases;
use homeostat_core::{Action, Batch, Plan, Strictness};
use proptest::prelude::*;
use proptest::sample::select;
use scripted::{Atomic, Independent, Lanes, Mode, Ordered, Scribble, Scripted, plan, steps, turns};

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn text_of<M: Mode>(plan: &Plan<Scripted<M>>, turn: &Batch) -> String {
    let keys = |steps: &std::ops::Range<usize>| {
        let all: Vec<_> = plan.steps[steps.clone()].iter().map(|step| step.key.as_str()).collect();
        all.join(" ")
    };
    match turn {
        Batch::Run(steps) => format!("run {}", keys(steps)),
        Batch::Wait { steps, on } => format!("{} waits on {on}", keys(steps)),
        Batch::Lanes(lanes) => {
            format!("lanes {}", lanes.iter().map(keys).collect::<Vec<_>>().join(" | "))
        }
    }
}

#[track_caller]
fn check<M: Mode>(strictness: Strictness, rows: &str, bad: &str, expected: &[&str]) {
    let plan = plan::<M>(steps(rows));
    let turns = turns(&plan, strictness, &words(bad));
    let texts: Vec<_> = turns.iter().map(|turn| text_of(&plan, turn)).collect();
    assert_eq!(texts, expected, "{rows} with bad {bad:?}");
}

use Strictness::{Lenient, Strict};

#[test]
fn an_empty_plan_has_no_turns_in_any_mode() {
    check::<Ordered>(Lenient, "", "", &[]);
    check::<Independent>(Lenient, "", "", &[]);
    check::<Atomic>(Lenient, "", "", &[]);
    check::<Lanes>(Lenient, "", "", &[]);
    check::<Ordered>(Strict, "", "", &[]);
}

#[test]
fn ordered_steps_run_by_phase_a_phase_in_one_call() {
    check::<Ordered>(Lenient, "-x:9 +b:1 +a:0 +c:1", "", &["run a", "run b c", "run x"]);
}

#[test]
fn steps_of_one_phase_keep_the_order_of_the_draft() {
    check::<Ordered>(Lenient, "+c +a +b", "", &["run c a b"]);
    check::<Atomic>(Lenient, "+c:1 +a +b:1 +d", "", &["run a d c b"]);
}

#[test]
fn a_failed_step_blocks_what_needs_it_and_nothing_else() {
    let rows = "+link +other addr:1<link";
    let rows = rows.replace(" addr", " +addr") + " +addr2:1<other +route:2<addr +route2:2<addr2";
    let expected =
        ["run link other", "addr waits on link", "run addr2", "route waits on addr", "run route2"];
    check::<Ordered>(Lenient, &rows, "link", &expected);
}

#[test]
fn a_step_with_several_needs_names_the_first_that_failed() {
    let rows = "+a +b +c:1<a,b";
    check::<Ordered>(Lenient, rows, "b", &["run a b", "c waits on b"]);
    check::<Ordered>(Lenient, rows, "a b", &["run a b", "c waits on a"]);
}

#[test]
fn a_need_that_is_not_in_the_plan_is_no_obstacle() {
    check::<Ordered>(Lenient, "+a +c:1<ghost", "a", &["run a", "run c"]);
}

#[test]
fn a_blocked_run_is_cut_where_it_must_be() {
    let rows = "+x +y +a:1 +b:1<x +c:1 +d:1<x +e:1<y";
    let expected = ["run x y", "run a", "b waits on x", "run c", "d waits on x", "run e"];
    check::<Ordered>(Lenient, rows, "x", &expected);
}

#[test]
fn deletes_wait_for_a_failed_create_of_their_group_and_for_no_other() {
    let rows = "+new#g +fine#h -old:1#g -stale:1#h -loose:1";
    check::<Ordered>(
        Lenient,
        rows,
        "new",
        &["run new fine", "old waits on new", "run stale loose"],
    );
    for sign in ["~", "%"] {
        let rows = rows.replace('+', sign);
        let expected = ["run new fine", "old waits on new", "run stale loose"];
        check::<Ordered>(Lenient, &rows, "new", &expected);
    }
}

#[test]
fn a_create_that_waits_holds_the_deletes_of_its_group_too() {
    let rows = "+link +new:1<link#g -old:2#g";
    let expected = ["run link", "new waits on link", "old waits on new"];
    check::<Ordered>(Lenient, rows, "link", &expected);
}

#[test]
fn a_failed_delete_holds_nothing_of_its_group() {
    check::<Ordered>(Lenient, "-a#g -b:1#g +c:1#g", "a", &["run a", "run b c"]);
}

#[test]
fn creates_of_a_group_go_on_when_another_create_of_it_failed() {
    check::<Ordered>(Lenient, "+a#g +b:1#g", "a", &["run a", "run b"]);
}

#[test]
fn independent_steps_all_run_whatever_fails() {
    check::<Independent>(Lenient, "+a +b<a -c#g +d:3#g", "a b c d", &["run a b c d"]);
}

#[test]
fn an_atomic_plan_is_one_call_in_strict_mode_too() {
    check::<Atomic>(Lenient, "+a +b:1 -c:2", "a", &["run a b c"]);
    check::<Atomic>(Strict, "+a +b:1 -c:2", "a", &["run a b c"]);
}

#[test]
fn lanes_gather_the_steps_of_a_key_and_order_them_by_phase() {
    let rows = "~b:2 +a:1 ~b:1 +c";
    check::<Lanes>(Lenient, rows, "", &["lanes a | b b | c"]);
    let plan = plan::<Lanes>(steps(rows));
    let phases: Vec<_> = plan.steps.iter().map(|step| step.phase).collect();
    assert_eq!(phases, [1, 1, 2, 0]);
}

#[test]
fn strict_mode_runs_one_step_at_a_time_and_stops_at_the_first_failure() {
    let stopped = "c d waits on `b`, which failed in strict mode";
    check::<Ordered>(Strict, "+a +b +c -d:1", "b", &["run a", "run b", stopped]);
    check::<Independent>(Strict, "+a +b +c -d:1", "b", &["run a", "run b", stopped]);
    check::<Lanes>(Strict, "+a +b +c -d:1", "b", &["run a", "run b", stopped]);
    check::<Ordered>(Strict, "+a +b", "", &["run a", "run b"]);
}

#[test]
fn a_bad_step_that_is_not_in_the_plan_changes_nothing() {
    let plan = plan::<Ordered>(steps("+a +b:1"));
    let mut schedule = homeostat_core::Schedule::new(Strict);
    schedule.went_bad(&plan, 7);
    assert_eq!(schedule.next(&plan), Some(Batch::Run(0..1)));
}

#[test]
fn a_hundred_thousand_blocked_steps_are_scheduled_in_one_sweep() {
    // Twice as many steps must not take four times as many looks at them.
    let mut rows = steps("+link");
    for nth in 0..100_000 {
        let needs = if nth % 2 == 0 { vec!["link".to_owned()] } else { vec![] };
        let key = format!("route{nth}");
        rows.push(Scribble { key, action: Action::Create, phase: 1, needs, group: None });
    }
    let plan = plan::<Ordered>(rows);
    assert_eq!(turns(&plan, Lenient, &words("link")).len(), 100_001);
}

fn any_steps() -> impl Strategy<Value = Vec<Scribble>> {
    let group = proptest::option::of(select(vec!["g", "h"]));
    let action = select(vec![Action::Create, Action::Update, Action::Replace, Action::Delete]);
    let row =
        (0u8..4, action, group, proptest::collection::vec(any::<prop::sample::Index>(), 0..3));
    proptest::collection::vec(row, 0..12).prop_map(|rows| {
        let keys: Vec<_> = (0..rows.len()).map(|nth| format!("k{nth}")).collect();
        let late = |row: &(u8, Action, _, _)| row.0 + if row.1 == Action::Delete { 4 } else { 0 };
        let phases: Vec<_> = rows.iter().map(late).collect();
        let step =
            |(nth, (phase, action, group, needs)): (usize, (u8, _, Option<&str>, Vec<_>))| {
                // A step runs in a later phase than what it needs; deletes after the creates.
                let phase = if action == Action::Delete { phase + 4 } else { phase };
                let early: Vec<_> =
                    (0..keys.len()).filter(|at| phases[*at] < phase.min(4)).collect();
                let needs = needs.iter().filter(|_| !early.is_empty());
                let needs: Vec<_> = needs
                    .map(|index: &prop::sample::Index| keys[*index.get(&early)].clone())
                    .collect();
                let group = group.map(str::to_owned);
                Scribble { key: keys[nth].clone(), action, phase, needs, group }
            };
        rows.into_iter().enumerate().map(step).collect()
    })
}

/// What became of each step, by key, in the order of the turns.
fn fates<M: Mode>(plan: &Plan<Scripted<M>>, turns: &[Batch]) -> Vec<(Scribble, bool)> {
    let mut fates = Vec::new();
    for turn in turns {
        let (ranges, ran) = match turn {
            Batch::Run(steps) => (vec![steps.clone()], true),
            Batch::Wait { steps, .. } => (vec![steps.clone()], false),
            Batch::Lanes(lanes) => (lanes.clone(), true),
        };
        let steps = ranges.into_iter().flatten();
        fates.extend(steps.map(|at| (plan.steps[at].clone(), ran)));
    }
    fates
}

fn obeys_law_9<M: Mode>(rows: &[Scribble], strictness: Strictness, bad: &BTreeSet<String>) {
    let plan = plan::<M>(rows.to_vec());
    let turns = turns(&plan, strictness, bad);
    let fates = fates(&plan, &turns);
    let once: BTreeMap<_, _> = fates.iter().map(|(step, ran)| (&step.key, *ran)).collect();
    assert_eq!((once.len(), fates.len()), (rows.len(), rows.len()), "one turn a step");
    if M::FAILS != homeostat_core::Fails::Ordered {
        return;
    }
    let is_bad = |key: &String| !once.get(key).copied().unwrap_or(true) || bad.contains(key);
    for (step, ran) in fates.iter().filter(|(_, ran)| *ran) {
        let created: Vec<_> = fates
            .iter()
            .filter(|(other, _)| other.phase < step.phase && other.action != Action::Delete)
            .filter(|(other, _)| other.group.is_some() && other.group == step.group)
            .collect();
        assert!(*ran && !step.needs.iter().any(is_bad), "{step:?} ran after its need failed");
        let held = created.iter().any(|(other, _)| is_bad(&other.key));
        assert!(step.action != Action::Delete || !held, "{step:?} ran after its group failed");
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn every_step_gets_one_turn_and_none_runs_after_its_need_or_group_failed(
        rows in any_steps(),
        bad in proptest::collection::btree_set((0..12).prop_map(|nth| format!("k{nth}")), 0..4),
        strictness in select(vec![Lenient, Strict]),
    ) {
        obeys_law_9::<Ordered>(&rows, strictness, &bad);
        obeys_law_9::<Independent>(&rows, strictness, &bad);
        obeys_law_9::<Atomic>(&rows, strictness, &bad);
        obeys_law_9::<Lanes>(&rows, strictness, &bad);
    }
}
