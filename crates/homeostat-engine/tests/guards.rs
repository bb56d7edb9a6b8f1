//! Guards: a desired state that is smaller than its author meant deletes nothing.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

mod common;

use common::rig::{Rig, lines};
use common::toy::{Independent, Ordered};
use homeostat_engine::{
    Budget, Cascades, Entry, Explain as _, Guards, Kind, Losses, MassDelete, MissingSections,
    Owner, Taken,
};

/// Rows `k00=1 k01=1 ...` from one number to another.
fn rows(from: usize, to: usize) -> String {
    let rows: Vec<_> = (from..to).map(|nth| format!("k{nth:02}=1")).collect();
    rows.join(" ")
}

/// How many deletes are held when `deleted` of `owned` objects are no longer declared.
fn held(owned: usize, deleted: usize, guards: Guards) -> usize {
    let mut rig = Rig::<Independent>::marked(&rows(0, owned).replace("=1", "=1@ours"));
    rig.config.guards = guards;
    let report = rig.pass(&rows(deleted, owned));
    let held = report.iter().filter(|line| line.starts_with("held")).count();
    let gone = report.iter().filter(|line| line.starts_with("delete")).count();
    assert_eq!(held + gone, deleted, "{report:?}");
    assert_eq!(report.last().unwrap() == "converged", held == 0, "{report:?}");
    held
}

fn with_budget(budget: Budget) -> Guards {
    let mut guards = Guards::default();
    guards.budget = budget;
    guards
}

#[track_caller]
fn check(owned: usize, deleted: usize, guards: Guards, expected: usize) {
    assert_eq!(held(owned, deleted, guards), expected, "{deleted} of {owned}");
}

#[test]
fn more_than_ten_and_more_than_half_is_held_and_nothing_less() {
    let guards = Guards::default();
    for (owned, deleted, held) in [
        (10, 10, 0),
        (11, 10, 0),
        (11, 11, 11),
        (21, 11, 11),
        (22, 11, 0),
        (23, 11, 0),
        (23, 12, 12),
        (99, 49, 0),
        (99, 50, 50),
        (1, 1, 0),
    ] {
        check(owned, deleted, guards, held);
    }
}

#[test]
fn a_budget_may_have_no_deletes_that_are_always_free() {
    let guards = with_budget(Budget::default().with_free(0));
    for (owned, deleted, held) in [(1, 1, 1), (2, 1, 0), (3, 2, 2), (4, 2, 0)] {
        check(owned, deleted, guards, held);
    }
    let guards = with_budget(Budget::default().with_free(2));
    for (owned, deleted, held) in [(2, 2, 0), (3, 3, 3)] {
        check(owned, deleted, guards, held);
    }
}

#[test]
fn the_operator_may_allow_it() {
    let mut guards = Guards::default();
    guards.mass_delete = MassDelete::Allow;
    check(40, 40, guards, 0);
    let mut rig = Rig::<Independent>::marked("a1=1@ours b1=1@ours");
    (rig.config.guards, rig.config.missing) = (guards, missing("a"));
    assert_eq!(rig.pass(""), ["delete a1", "delete b1", "converged"]);
}

/// The section of a key is its first letter; these are missing.
fn missing(sections: &'static str) -> MissingSections<String> {
    MissingSections::new(sections, |sections, key: &String| {
        let section = key.chars().next().filter(|section| sections.contains(*section));
        section.map(|section| format!("section {section} is missing"))
    })
}

/// The report of a pass over objects of ours while sections are missing.
fn pass_without(sections: &'static str, owned: &str, desired: &str) -> Vec<String> {
    let owned: Vec<_> = owned.split(' ').map(|key| format!("{key}=1@ours")).collect();
    let mut rig = Rig::<Independent>::marked(&owned.join(" "));
    rig.config.missing = missing(sections);
    rig.pass(desired)
}

#[test]
fn a_missing_section_holds_its_own_removals_and_no_others() {
    assert_eq!(
        pass_without("a", "a1 a2 b1 b2", "b1=2 b3=1"),
        ["update b1", "create b3", "delete b2", "held a1", "held a2", "not converged"]
    );
    assert_eq!(pass_without("ab", "a1 b1", ""), ["held a1", "held b1", "not converged"]);
    assert_eq!(pass_without("c", "a1 b1", "b1=1"), ["delete a1", "converged"]);
}

#[test]
fn what_is_declared_is_never_held_by_a_missing_section() {
    assert_eq!(pass_without("a", "a1", "a1=2 a2=1"), ["update a1", "create a2", "converged"]);
}

#[test]
fn the_budget_does_not_count_what_a_missing_section_holds() {
    let owned = |section: char, count: usize| {
        let keys: Vec<_> = (0..count).map(|nth| format!("{section}{nth:02}")).collect();
        keys.join(" ")
    };
    let held = |a: usize, b: usize| {
        let lines = pass_without("a", &format!("{} {}", owned('a', a), owned('b', b)), "");
        let of = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
        (of("held a"), of("held b"))
    };
    assert_eq!(held(40, 1), (40, 0));
    assert_eq!(held(40, 20), (40, 0), "20 of 60 are less than half");
    assert_eq!(held(10, 20), (10, 20), "20 of 30 are more than half");
}

#[test]
fn a_removal_of_several_steps_is_held_as_one() {
    let mut rig = Rig::<Independent>::marked("a1=1@ours b1=1@ours");
    rig.rescript(|script| _ = script.removed_in_two.insert("a1".to_owned()));
    rig.config.missing = missing("a");
    let plan = rig.plan("");
    assert_eq!(lines(&plan), ["will delete b1", "held a1", "held a1", "not converged"]);
    assert_eq!(plan.removals, 1);
}

#[test]
fn releases_of_a_missing_section_are_held_too() {
    let mut rig = Rig::<Independent>::checkpoint("a1=0@nobody b1=0@nobody");
    rig.pass("a1=1 b1=1");
    rig.config.missing = missing("a");
    assert_eq!(rig.pass(""), ["delete b1", "held a1", "not converged"]);
    assert_eq!(rig.records(), "a1=1,0,done");
}

#[test]
fn another_budget_counts_from_its_own_percentage() {
    let guards = |percent| with_budget(Budget::percent(percent));
    check(50, 11, guards(20), 11);
    check(55, 11, guards(20), 0);
    check(20, 20, guards(100), 0);
    check(99, 11, guards(0), 11);
    check(99, 10, guards(0), 0);
}

#[test]
fn creates_and_updates_go_on_while_deletes_are_held() {
    let mut rig = Rig::<Independent>::marked(&rows(0, 20).replace("=1", "=1@ours"));
    let report = rig.pass("k00=2 new=1");
    assert_eq!(report[..2], ["update k00", "create new"]);
    assert_eq!(report.iter().filter(|line| line.starts_with("held")).count(), 19);
    assert!(rig.world.text().contains("k19=1@ours"));
}

#[test]
fn foreign_objects_do_not_stretch_the_budget() {
    let mut rig = Rig::<Independent>::marked(&rows(0, 20).replace("=1", "=1@ours"));
    rig.world.holds(&rows(20, 99).replace("=1", "=1@bird"));
    let report = rig.pass(&rows(11, 20));
    assert_eq!(report.iter().filter(|line| line.starts_with("held")).count(), 11);
}

#[test]
fn releases_count_as_deletes() {
    let mut rig = Rig::<Independent>::checkpoint(&rows(0, 12).replace("=1", "=0@nobody"));
    rig.pass(&rows(0, 12));
    let report = rig.pass("");
    assert_eq!(report.iter().filter(|line| line.starts_with("held")).count(), 12);
    assert_eq!(rig.records().split(' ').count(), 12, "held values stay claimed");
}

#[test]
fn a_focused_pass_is_bound_by_a_missing_section_but_not_by_the_budget() {
    let all = rows(0, 20);
    let keys = all.replace("=1", "");
    let mut rig = Rig::<Independent>::marked(&all.replace("=1", "=1@ours"));
    rig.pass(&all);
    rig.config.missing = missing("k");
    let report = rig.focused_pass("", "k00 k01");
    assert_eq!(report, ["held k00", "held k01", "not converged"]);
    rig.config.missing = MissingSections::default();
    let report = rig.focused_pass("", &keys);
    assert_eq!(report.last().unwrap(), "converged");
}

/// Why the first step that is held is so.
fn why_held<S: homeostat_engine::Source>(plan: &homeostat_engine::Plan<S>) -> String {
    plan.findings_of(Kind::Held).next().unwrap().1.reason()
}

#[test]
fn held_steps_are_reported_with_the_way_out() {
    let mut rig = Rig::<Independent>::marked(&rows(0, 20).replace("=1", "=1@ours"));
    let plan = rig.plan("");
    let why = why_held(&plan);
    assert!(why.contains("20 of 20") && why.contains("use `MassDelete::Allow`"), "{why}");
    rig.config.missing = missing("k");
    assert_eq!(why_held(&rig.plan("")), "section k is missing, or use `MassDelete::Allow`");
    rig.config.missing = MissingSections::all("everything is missing");
    assert_eq!(why_held(&rig.plan("")), "everything is missing, or use `MassDelete::Allow`");
}

fn cascading(owner: Owner) -> Rig<Independent> {
    let mut rig = Rig::<Independent>::marked("link=1@ours");
    rig.rescript(|script| {
        let taken = Taken::new("route".to_owned(), owner);
        script.takes.insert("link".to_owned(), taken);
    });
    rig
}

#[test]
fn a_step_that_takes_foreign_objects_along_is_held_unless_confirmed() {
    let mut rig = cascading(Owner::foreign("bird"));
    let plan = rig.plan("");
    assert_eq!(lines(&plan), ["held link", "not converged"]);
    assert_eq!(
        why_held(&plan),
        "it would take `route` along, which belongs to bird; remove that first, or use \
         `Cascades::Allow`"
    );
    rig.config.guards.cascades = Cascades::Allow;
    let plan = rig.plan("");
    let mut notes = Vec::new();
    plan.explain(Kind::Change, &mut |entry| {
        if let Entry::Change(line, _) = entry {
            notes.extend(line.note);
        }
    });
    assert_eq!(notes, ["takes along `route` of bird"]);
    assert_eq!(rig.pass(""), ["delete link", "converged"]);
}

#[test]
fn an_update_that_takes_foreign_objects_along_is_held_too() {
    assert_eq!(cascading(Owner::foreign("bird")).pass("link=2"), ["held link", "not converged"]);
}

#[test]
fn what_is_ours_or_the_targets_own_may_be_taken_along() {
    for owner in [Owner::Ours, Owner::Kernel] {
        assert_eq!(cascading(owner).pass(""), ["delete link", "converged"]);
    }
}

#[test]
fn what_is_removed_only_to_be_made_again_is_no_delete() {
    let keys: Vec<String> = (0..20).map(|nth| format!("k{nth:02}")).collect();
    let rows = |number: u32| keys.iter().map(|k| format!("{k}={number}")).collect::<Vec<_>>();
    let rows = |number: u32| rows(number).join(" ");
    let mut rig = Rig::<Ordered>::checkpoint("");
    rig.pass(&rows(1));
    rig.rescript(|script| script.remade.extend(keys.iter().cloned()));
    let report = rig.pass(&rows(2));
    assert_eq!(report.last().unwrap(), "converged", "{report:?}");
    assert!(rig.world.text().contains("k19=2"), "{}", rig.world.text());
}

#[test]
fn what_nobody_agreed_to_lose_is_held() {
    let held = |losses| {
        let mut rig = Rig::<Independent>::marked("");
        rig.config.guards.losses = losses;
        let report = rig.pass("plain=1 restarts=1 loses=1");
        let held = report.iter().filter_map(|line| line.strip_prefix("held "));
        held.map(|line| line.split_whitespace().next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    for (losses, expected) in [
        (Losses::Allow, vec![]),
        (Losses::Hold, vec!["loses"]),
        (Losses::HoldAll, vec!["loses"]),
        (Losses::HoldCompensable, vec!["restarts", "loses"]),
    ] {
        assert_eq!(held(losses), expected, "{losses:?}");
    }
}
