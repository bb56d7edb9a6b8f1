//! Guards: a wish that is smaller than its author meant deletes nothing.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

mod common;

use common::rig::{Rig, told};
use common::toy::{Independent, Ordered};
use homeostat_engine::{
    Budget, Cascades, Entry, Explain as _, Guards, Kind, MassDelete, Owner, Section, Taken,
};

/// Rows `k00=1 k01=1 ...` from one number to another.
fn rows(from: usize, to: usize) -> String {
    let rows: Vec<_> = (from..to).map(|nth| format!("k{nth:02}=1")).collect();
    rows.join(" ")
}

/// How many deletes are held when `deleted` of `owned` objects are no longer wished.
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
fn the_operator_may_allow_it() {
    let guards = Guards { mass_delete: MassDelete::Allow, ..Guards::default() };
    check(40, 40, guards, 0);
    check(3, 3, Guards { section: Section::Missing, ..guards }, 0);
}

#[test]
fn a_missing_section_holds_every_delete() {
    let guards = Guards { section: Section::Missing, ..Guards::default() };
    check(100, 1, guards, 1);
    check(3, 3, guards, 3);
}

#[test]
fn another_budget_counts_from_its_own_percentage() {
    let guards = |percent| Guards { budget: Budget { percent }, ..Guards::default() };
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
    rig.config.guards.section = Section::Missing;
    let report = rig.focused_pass("", "k00 k01");
    assert_eq!(report, ["held k00", "held k01", "not converged"]);
    rig.config.guards.section = Section::Stated;
    let report = rig.focused_pass("", &keys);
    assert_eq!(report.last().unwrap(), "converged");
}

#[test]
fn what_is_held_is_told_with_the_way_out() {
    let mut rig = Rig::<Independent>::marked(&rows(0, 20).replace("=1", "=1@ours"));
    let plan = rig.plan("");
    let why = &plan.held[0].why;
    assert!(why.contains("20 of 20") && why.contains("--allow-mass-delete"), "{why}");
    rig.config.guards.section = Section::Missing;
    let why = &rig.plan("").held[0].why;
    assert!(why.contains("`toy`") && why.contains("--allow-mass-delete"), "{why}");
}

fn cascading(owner: Owner) -> Rig<Independent> {
    let mut rig = Rig::<Independent>::marked("link=1@ours");
    rig.rescript(|script| {
        let taken = Taken { key: "route".to_owned(), owner };
        script.takes.insert("link".to_owned(), taken);
    });
    rig
}

#[test]
fn a_step_that_takes_foreign_objects_along_is_held_unless_confirmed() {
    let mut rig = cascading(Owner::foreign("bird"));
    let plan = rig.plan("");
    assert_eq!(told(&plan), ["held link", "not converged"]);
    assert_eq!(
        plan.held[0].why,
        "it would take `route` along, which belongs to bird; remove that first, or use \
         --allow-cascades"
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
