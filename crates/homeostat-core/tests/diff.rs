//! Every finding of the diff, a row each. The language of the rows is explained in `common`.

mod common;

use std::collections::BTreeSet;

use common::{Thing, World, desired, ownership, records, seen, standings};
use homeostat_core::{Finding, Focus, OnRelease};

/// A case: what is declared, seen and recorded. The rest has quiet defaults.
#[derive(Clone, Copy)]
struct Case {
    ownership: &'static str,
    desired: &'static str,
    seen: &'static str,
    records: &'static str,
    adopt: &'static str,
    focus: Option<&'static str>,
    on_release: OnRelease,
    standings: &'static str,
}

const QUIET: Case = Case {
    ownership: "marked",
    desired: "",
    seen: "",
    records: "",
    adopt: "",
    focus: None,
    on_release: OnRelease::Leave,
    standings: "",
};

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn world(case: Case) -> World {
    World {
        ownership: ownership(case.ownership),
        desired: desired(case.desired),
        seen: seen(case.seen),
        records: records(case.records),
        adopt: words(case.adopt),
        focus: case.focus.map_or(Focus::All, |keys| Focus::Keys(words(keys))),
        on_release: case.on_release,
        standings: standings(case.standings),
    }
}

/// Checks the findings, reported forwards and backwards: the order of the target never matters.
#[track_caller]
fn check(case: Case, expected: &[&str]) {
    let mut world = world(case);
    assert_eq!(world.findings(), expected, "as reported");
    world.seen.reverse();
    assert_eq!(world.findings(), expected, "reported backwards");
}

#[test]
fn nothing_declared_and_nothing_there_finds_nothing() {
    check(QUIET, &[]);
}

#[test]
fn what_is_declared_and_absent_is_created() {
    check(Case { desired: "a=1 b=2", seen: "b=2@ours", ..QUIET }, &["create a", "owned 1"]);
}

#[test]
fn the_first_and_the_last_bit_of_a_word_of_marks_are_no_exception() {
    for len in [0u32, 1, 63, 64, 65, 128, 129] {
        let mut world = world(QUIET);
        let rows: Vec<_> = (0..len).map(|nth| format!("k{nth:03}=1")).collect();
        world.desired = desired(&rows.join(" "));
        let expected: Vec<_> = (0..len).map(|nth| format!("create k{nth:03}")).collect();
        assert_eq!(world.findings(), expected);
        for there in &rows {
            world.seen = seen(&format!("{there}@ours"));
            assert_eq!(world.diff().list.len(), rows.len() - 1, "{there} of {len}");
        }
    }
}

#[test]
fn what_is_ours_and_differs_is_updated_and_what_agrees_is_left() {
    let case = Case { desired: "a=1 b=2", seen: "a=7@ours b=2@ours", ..QUIET };
    check(case, &["update a from 7", "owned 2"]);
}

#[test]
fn undeclared_fields_agree_with_anything() {
    check(Case { desired: "a=1", seen: "a=1/9@ours", ..QUIET }, &["owned 1"]);
    let declared = Case { desired: "a=1/8", seen: "a=1/9@ours", ..QUIET };
    check(declared, &["update a from 1/9", "owned 1"]);
}

#[test]
fn what_is_ours_and_undeclared_is_deleted() {
    check(Case { seen: "a=1@ours", ..QUIET }, &["delete a 1", "owned 1"]);
}

#[test]
fn what_is_not_ours_and_undeclared_is_left_alone() {
    let seen = "a=1@bird b=1@kernel c=1@unmarked d=1@nobody";
    for ownership in ["marked", "checkpoint", "web-*"] {
        check(Case { ownership, seen, ..QUIET }, &[]);
    }
}

#[test]
fn exclusive_owns_everything_but_what_the_kernel_makes_and_values_nobody_claimed() {
    let seen = "a=1@bird b=1@kernel c=1@unmarked d=1@nobody";
    let case = Case { ownership: "exclusive", seen, ..QUIET };
    check(case, &["delete a 1", "delete c 1", "owned 2"]);
    let declared = Case { desired: "a=2 c=2", ..case };
    check(declared, &["update a from 1", "update c from 1", "owned 2"]);
}

#[test]
fn a_prefix_owns_unmarked_names_and_no_others() {
    let seen = "web-1=1@unmarked web-2=1@bird db-1=1@unmarked we=1@unmarked";
    let case = Case { ownership: "web-*", seen, ..QUIET };
    check(case, &["delete web-1 1", "owned 1"]);
}

#[test]
fn a_checkpoint_owns_what_is_recorded_and_nothing_else() {
    let case = Case {
        ownership: "checkpoint",
        seen: "a=1@unmarked b=1@unmarked",
        records: "a=1,absent,done",
        ..QUIET
    };
    check(case, &["delete a 1", "owned 1"]);
}

#[test]
fn a_recorded_object_stays_ours_when_somebody_changes_it() {
    let case = Case {
        ownership: "checkpoint",
        desired: "a=1",
        seen: "a=5@unmarked b=6@unmarked",
        records: "a=1,absent,done b=2,absent,done",
        ..QUIET
    };
    check(case, &["update a from 5", "delete b 6", "owned 2"]);
}

#[test]
fn a_foreign_object_on_a_wanted_key_is_a_conflict() {
    let case = Case { desired: "a=1", seen: "a=2@bird", ..QUIET };
    check(case, &["conflict a foreign bird"]);
    for ownership in ["marked", "checkpoint", "web-*"] {
        let case = Case { ownership, desired: "a=1", seen: "a=2@unmarked", ..QUIET };
        check(case, &["conflict a foreign unmarked"]);
    }
}

#[test]
fn a_foreign_object_that_agrees_is_matched_and_not_claimed() {
    check(Case { desired: "a=1", seen: "a=1@bird", ..QUIET }, &["matched a bird"]);
    check(Case { desired: "a=1", seen: "a=1/3@unmarked", ..QUIET }, &["matched a unmarked"]);
}

#[test]
fn what_the_kernel_makes_counts_as_foreign() {
    check(Case { desired: "a=1", seen: "a=1@kernel", ..QUIET }, &["matched a kernel"]);
    check(Case { desired: "a=1", seen: "a=2@kernel", ..QUIET }, &["conflict a foreign kernel"]);
}

#[test]
fn a_desired_state_with_leave_to_adopt_takes_the_key_from_anybody() {
    let case = Case { desired: "a=1! b=1!", seen: "a=2@bird b=1@bird", ..QUIET };
    let expected = ["adopt a from 2 of bird", "adopt b from 1 of bird", "a was 2", "b was 1"];
    check(case, &expected);
}

#[test]
fn a_key_adopted_once_is_taken_and_its_neighbour_is_not() {
    let case = Case { desired: "a=1 b=1", seen: "a=2@bird b=2@bird", adopt: "a", ..QUIET };
    check(case, &["adopt a from 2 of bird", "a was 2", "conflict b foreign bird"]);
}

#[test]
fn leave_to_adopt_is_nothing_without_a_desired_state() {
    check(Case { seen: "a=2@bird", adopt: "a", ..QUIET }, &[]);
}

#[test]
fn leave_to_adopt_changes_nothing_about_what_is_ours() {
    check(Case { desired: "a=1!", seen: "a=1@ours", adopt: "a", ..QUIET }, &["owned 1"]);
    let drifted = Case { desired: "a=1!", seen: "a=2@ours", adopt: "a", ..QUIET };
    check(drifted, &["update a from 2", "owned 1"]);
}

#[test]
fn a_stripped_mark_is_reported_declared_or_not_and_never_fixed() {
    let records = "a=1,absent,done";
    let expected = ["conflict a lostmark bird"];
    check(Case { desired: "a=1", seen: "a=1@bird", records, ..QUIET }, &expected);
    check(Case { desired: "a=1", seen: "a=2@bird", records, ..QUIET }, &expected);
    check(Case { seen: "a=1@bird", records, ..QUIET }, &expected);
}

#[test]
fn a_stripped_mark_comes_back_with_leave_to_adopt() {
    let records = "a=1,absent,done";
    let case = Case { desired: "a=1!", seen: "a=1@bird", records, ..QUIET };
    check(case, &["adopt a from 1 of bird", "a was 1"]);
}

#[test]
fn what_was_taken_over_goes_back_when_it_is_no_longer_declared() {
    let records = "a=1,2,done,taken";
    let case = Case { seen: "a=1@ours", records, ..QUIET };
    check(case, &["give back a 2", "owned 1"]);
    // The source judges whether it still is what we wrote.
    let case = Case { seen: "a=3@ours", records, ..QUIET };
    check(case, &["give back a 2", "owned 1"]);
    // Without a snapshot it could not be made again as it was.
    let case = Case { seen: "a=1@ours", records: "a=1,2,done", ..QUIET };
    check(case, &["delete a 1", "owned 1"]);
}

#[test]
fn what_its_former_owner_has_back_is_no_longer_ours() {
    let records = "a=1,2,done,taken";
    check(Case { seen: "a=2@bird", records, ..QUIET }, &["prune a"]);
    check(Case { seen: "a=3@bird", records, ..QUIET }, &["prune a"]);
    check(Case { seen: "a=2@unmarked", records, ..QUIET }, &["prune a", "owned 1"]);
    // As long as it is declared, a lost mark is worth a word.
    let case = Case { desired: "a=1", seen: "a=2@bird", records, ..QUIET };
    check(case, &["conflict a lostmark bird"]);
}

#[test]
fn a_value_of_nobody_that_agrees_is_claimed_with_its_original() {
    check(Case { desired: "a=1", seen: "a=1@nobody", ..QUIET }, &["claim a", "a was 1"]);
}

#[test]
fn a_value_of_nobody_that_differs_is_updated_and_its_original_kept() {
    check(Case { desired: "a=1", seen: "a=0@nobody", ..QUIET }, &["update a from 0", "a was 0"]);
}

#[test]
fn a_claimed_value_is_not_claimed_again() {
    let case = Case { desired: "a=1", seen: "a=1@nobody", records: "a=1,0,done", ..QUIET };
    check(case, &["owned 1"]);
}

#[test]
fn a_claimed_value_that_drifted_is_updated_without_a_new_original() {
    let case = Case { desired: "a=1", seen: "a=7@nobody", records: "a=1,0,done", ..QUIET };
    check(case, &["update a from 7", "owned 1"]);
}

#[test]
fn a_claimed_value_that_is_no_longer_declared_is_released_and_stays() {
    let case = Case { seen: "a=1@nobody", records: "a=1,0,done", ..QUIET };
    check(case, &["release a", "owned 1"]);
}

#[test]
fn a_release_restores_only_what_still_is_what_we_left() {
    let rows: [(&str, &str, &[&str]); 7] = [
        ("a=1@nobody", "a=1,0,done", &["release a restoring 0", "owned 1"]),
        ("a=5@nobody", "a=1,0,done", &["release a", "owned 1"]),
        ("a=3@nobody", "a=1,0,done,3", &["release a restoring 0", "owned 1"]),
        ("a=5@nobody", "a=1,0,done,3", &["release a", "owned 1"]),
        // It already is the original; the source knows whether another step will change it.
        ("a=0@nobody", "a=0,0,done", &["release a restoring 0", "owned 1"]),
        // A crash after the intent, before and after the write.
        ("a=0@nobody", "a=1,0,intent", &["release a", "owned 1"]),
        ("a=1@nobody", "a=1,0,intent", &["release a restoring 0", "owned 1"]),
    ];
    for (seen, records, expected) in rows {
        check(Case { seen, records, on_release: OnRelease::Restore, ..QUIET }, expected);
    }
}

#[test]
fn a_crash_between_the_intent_to_update_and_the_write_does_not_cost_the_original() {
    // We wrote 1, announced 2, and died: 1 still is ours.
    let records = "a=2,0,intent,1";
    let on_release = OnRelease::Restore;
    let case = Case { seen: "a=1@nobody", records, on_release, ..QUIET };
    check(case, &["release a restoring 0", "owned 1"]);
    check(Case { desired: "a=2", ..case }, &["update a from 1", "owned 1"]);
}

#[test]
fn a_crash_between_the_intent_to_update_and_the_write_does_not_cost_the_object() {
    let records = "a=2,absent,intent,1";
    for there in ["a=1@unmarked", "a=2@unmarked", "a=9@unmarked"] {
        let case = Case { ownership: "checkpoint", seen: there, records, ..QUIET };
        let deleted = format!("delete {}", there.replace('=', " ").replace("@unmarked", ""));
        check(case, &[deleted.as_str(), "owned 1"]);
    }
}

#[test]
fn an_intent_to_create_that_the_target_shows_is_confirmed() {
    let case = Case { ownership: "checkpoint", records: "a=1,absent,intent", ..QUIET };
    check(Case { desired: "a=1", seen: "a=1@unmarked", ..case }, &["confirm a", "owned 1"]);
    check(Case { seen: "a=1@unmarked", ..case }, &["delete a 1", "owned 1"]);
}

#[test]
fn an_intent_to_create_is_confirmed_by_an_object_that_agrees_in_all_declared_fields() {
    let case = Case {
        ownership: "checkpoint",
        desired: "a=1",
        seen: "a=1/9@unmarked",
        records: "a=1,absent,intent",
        ..QUIET
    };
    check(case, &["confirm a", "owned 1"]);
}

#[test]
fn an_intent_to_create_proves_nothing_when_somebody_else_came_first() {
    let case = Case { ownership: "checkpoint", records: "a=1,absent,intent", ..QUIET };
    check(Case { desired: "a=1", seen: "a=2@unmarked", ..case }, &["conflict a foreign unmarked"]);
    check(Case { seen: "a=2@unmarked", ..case }, &[]);
    // The desired state is another one by now: what is there is neither.
    check(Case { desired: "a=3", seen: "a=3@unmarked", ..case }, &["matched a unmarked"]);
}

#[test]
fn an_intent_to_create_is_no_lost_mark_when_somebody_else_came_first() {
    let records = "a=1,absent,intent";
    check(
        Case { desired: "a=1", seen: "a=2@bird", records, ..QUIET },
        &["conflict a foreign bird"],
    );
    check(Case { seen: "a=2@bird", records, ..QUIET }, &[]);
}

#[test]
fn an_intent_to_create_with_nothing_there_is_created_or_pruned() {
    let case = Case { ownership: "checkpoint", records: "a=1,absent,intent", ..QUIET };
    check(Case { desired: "a=1", ..case }, &["create a"]);
    check(case, &["prune a"]);
}

#[test]
fn a_record_of_another_text_is_confirmed_when_the_target_has_the_desired_state() {
    let case = Case { desired: "a=2", seen: "a=2@nobody", records: "a=1,0,done", ..QUIET };
    check(case, &["confirm a", "owned 1"]);
    // The target stopped rewriting the value.
    let case = Case { desired: "a=1", seen: "a=1@nobody", records: "a=1,0,done,3", ..QUIET };
    check(case, &["confirm a", "owned 1"]);
}

#[test]
fn a_settled_value_is_quiet_and_a_third_value_is_drift() {
    let case = Case { desired: "a=1", records: "a=1,0,done,3", ..QUIET };
    check(Case { seen: "a=3@nobody", ..case }, &["settled a 3", "owned 1"]);
    check(Case { seen: "a=4@nobody", ..case }, &["update a from 4", "owned 1"]);
}

#[test]
fn a_settled_value_answers_only_the_desired_state_that_it_was_settled_for() {
    let case = Case { desired: "a=2", seen: "a=3@nobody", records: "a=1,0,done,3", ..QUIET };
    check(case, &["update a from 3", "owned 1"]);
}

#[test]
fn an_unknown_key_is_neither_created_nor_deleted_nor_pruned() {
    let case = Case { seen: "a?timeout b?timeout c?timeout", desired: "a=1", ..QUIET };
    let expected = ["unknown a timeout", "unknown b timeout", "unknown c timeout"];
    check(Case { records: "b=1,absent,done", ..case }, &expected);
    check(Case { ownership: "exclusive", ..case }, &expected);
}

#[test]
fn a_key_whose_declaration_is_unknown_is_left_as_it_is_and_the_others_are_not() {
    let desired = "a?broken b=1 c=2 d?broken";
    let unknown = |key| format!("unknown {key} what is declared is not known: broken");
    let (a, d) = (unknown("a"), unknown("d"));
    let (a, d) = (a.as_str(), d.as_str());
    // Ours, foreign, a claimed value, a record of something that is gone; and nothing at all.
    let changed = ["create b", "update c from 1"];
    for (seen, records, owned) in [
        ("a=9@ours c=1@ours", "", "owned 2"),
        ("a=9@bird c=1@ours", "", "owned 1"),
        ("a=9@nobody c=1@ours", "a=9,0,done", "owned 2"),
        ("c=1@ours", "a=9,absent,done", "owned 1"),
        ("a?timeout c=1@ours", "", "owned 1"),
    ] {
        let a = if seen.contains("timeout") { "unknown a timeout" } else { a };
        let expected = [changed[0], changed[1], a, d, owned];
        check(Case { desired, seen, records, ..QUIET }, &expected);
    }
    let mut focused = world(Case { desired, seen: "a=9@ours", ..QUIET });
    focused.focus = Focus::Keys(["a".to_owned(), "b".to_owned()].into());
    assert_eq!(focused.findings(), ["create b", a, "owned 1"]);
}

#[test]
fn a_prefix_is_about_the_name_in_a_key_of_several_parts() {
    let seen = "role:tenant-a/app=1@unmarked role:tenant-ab/app=1@unmarked db:tenant-a/app=1@unmarked \
                tenant-b:tenant-a/x=1@bird";
    let case = Case { ownership: "tenant-a/*", seen, ..QUIET };
    check(case, &["delete db:tenant-a/app 1", "delete role:tenant-a/app 1", "owned 2"]);
}

#[test]
fn a_key_that_is_reported_both_present_and_unknown_is_unknown() {
    let rows = ["a=2@ours", "a=1@nobody", "a=2@bird", "a=1@bird", "a=1/1@ours"];
    for there in rows {
        for desired in ["a=1", "a=1!", "a=1/5", ""] {
            let text = format!("{there} a?timeout");
            let mut world = world(Case { desired, ..QUIET });
            for _ in 0..2 {
                world.seen = seen(&text);
                let found = world.diff();
                let timeout = Finding::Unknown { why: "timeout".to_owned() };
                assert_eq!(found.findings, [("a".to_owned(), timeout)], "{text}");
                world.seen.reverse();
                let findings = world.findings();
                let besides: Vec<_> =
                    findings.iter().filter(|line| !line.starts_with("owned")).collect();
                assert_eq!(besides, ["unknown a timeout"], "{text} for {desired:?}");
            }
        }
    }
}

#[test]
fn unreadable_fields_are_said_and_the_readable_ones_still_count() {
    let case = Case { desired: "a=1/5", ..QUIET };
    let why = "unknown a extra is unreadable";
    check(Case { seen: "a=2@ours", ..case }, &["update a from 2", why, "owned 1"]);
    check(Case { seen: "a=2@bird", ..case }, &["conflict a foreign bird", why]);
}

#[test]
fn what_may_agree_is_left_until_it_can_be_read() {
    let why = "unknown a extra is unreadable";
    let case = Case { desired: "a=1/5", ..QUIET };
    check(Case { seen: "a=1@ours", ..case }, &[why, "owned 1"]);
    check(Case { seen: "a=1@bird", ..case }, &[why]);
    check(Case { seen: "a=1@nobody", ..case }, &[why]);
    check(Case { seen: "a=1@bird", adopt: "a", ..case }, &[why]);
    let intent = Case { seen: "a=1@nobody", records: "a=1/5,0,intent", ..case };
    check(intent, &[why, "owned 1"]);
}

#[test]
fn a_record_that_is_neither_declared_nor_there_is_pruned() {
    let records = "a=1,absent,done b=1,absent,done c=1,absent,done";
    let case =
        Case { ownership: "checkpoint", desired: "b=1", seen: "c=1@unmarked", records, ..QUIET };
    check(case, &["create b", "delete c 1", "prune a", "owned 1"]);
}

#[test]
fn a_declared_key_that_is_seen_twice_is_a_conflict_and_nothing_else() {
    let rows = [
        "a=1@ours a=2@bird",
        "a=2@ours a=1@bird",
        "a=2@ours a=3@ours",
        "a=1@bird a=2@bird",
        "a=1@nobody a=2@nobody",
        "a=1@ours a=1@ours a=1@ours",
        "a=1@kernel a=2@unmarked",
    ];
    for seen in rows {
        for records in ["", "a=1,0,done", "a=1,0,intent", "a=1,0,done,2"] {
            for desired in ["a=1", "a=1!", "a=1/5"] {
                let findings = world(Case { desired, seen, records, ..QUIET }).findings();
                let besides: Vec<_> =
                    findings.iter().filter(|line| !line.starts_with("owned")).collect();
                assert_eq!(besides, ["conflict a twin unmarked"], "{seen} {records} {desired}");
            }
        }
    }
}

#[test]
fn an_owned_twin_that_is_not_declared_is_not_deleted_at_all() {
    let case = Case { seen: "a=1@ours a=2@ours", ..QUIET };
    check(case, &["conflict a twin unmarked", "owned 2"]);
    let claimed = Case { seen: "a=1@nobody a=2@nobody", records: "a=1,0,done", ..QUIET };
    check(claimed, &["conflict a twin unmarked", "owned 2"]);
}

#[test]
fn an_undeclared_twin_whose_other_half_lost_its_mark_is_not_deleted() {
    let case = Case { seen: "a=1@ours a=1@bird", records: "a=1,absent,done", ..QUIET };
    check(case, &["conflict a twin unmarked", "owned 1"]);
    let both = Case { seen: "a=1@bird a=1@frr", records: "a=1,absent,done", ..QUIET };
    check(both, &["conflict a twin unmarked"]);
}

#[test]
fn foreign_twins_that_are_not_declared_are_ignored() {
    check(Case { seen: "a=1@bird a=2@frr", ..QUIET }, &[]);
}

#[test]
fn a_twin_does_not_hide_the_findings_of_its_neighbours() {
    let case = Case { desired: "a=1 b=1 c=1", seen: "a=2@ours b=1@ours b=1@ours", ..QUIET };
    check(case, &["update a from 2", "create c", "conflict b twin unmarked", "owned 3"]);
}

#[test]
fn what_is_out_of_focus_is_ignored() {
    let case = Case {
        desired: "a=1 b=1 c=1",
        seen: "a=2@ours x=1@ours b?timeout",
        records: "r=1,absent,done",
        focus: Some("c"),
        ..QUIET
    };
    check(case, &["create c"]);
}

#[test]
fn a_focused_look_creates_deletes_and_prunes_what_it_is_about() {
    let case = Case {
        desired: "a=1 b=1 c=1",
        seen: "b=1@ours x=1@ours",
        records: "r=1,absent,done s=1,absent,done",
        focus: Some("a b r x z"),
        ..QUIET
    };
    check(case, &["create a", "delete x 1", "prune r", "owned 2"]);
}

#[test]
fn an_empty_focus_finds_nothing() {
    let case = Case { desired: "a=1", seen: "x=1@ours", records: "r=1,absent,done", ..QUIET };
    check(Case { focus: Some(""), ..case }, &[]);
}

#[test]
fn the_findings_are_in_key_order_whatever_the_target_says_first() {
    let case = Case {
        desired: "a=1 b=1 c=1 d=1 e=1 f=1",
        seen: "z=1@ours f=1@bird e=2@bird y=1@ours d=1@nobody b=2@ours a?x",
        ..QUIET
    };
    let expected = [
        "update b from 2",
        "create c",
        "delete y 1",
        "delete z 1",
        "claim d",
        "d was 1",
        "conflict e foreign bird",
        "matched f bird",
        "unknown a x",
        "owned 3",
    ];
    check(case, &expected);
}

#[test]
fn an_object_is_compared_with_its_own_desired_state_only() {
    let found = world(Case { desired: "a=1 b=2", seen: "a=2@ours b=1@ours", ..QUIET }).diff();
    assert_eq!(found.list.len(), 2);
    assert!(found.originals.is_empty(), "{:?}", found.originals.get("a"));
    let _: Option<&Thing> = found.originals.get("a");
}

const WITHDRAWN: Case = Case { desired: "a=1 b=1", standings: "a-", ..QUIET };

#[test]
fn what_is_withdrawn_is_deleted_if_it_is_ours_and_not_made() {
    let listed = ["withdrawn a by check c: no", "withheld a"];
    check(WITHDRAWN, &[&["create b"], &listed[..]].concat());
    let ours = Case { seen: "a=1@ours b=1@ours", ..WITHDRAWN };
    check(ours, &[&["delete a 1"], &listed[..], &["by check a", "owned 2"]].concat());
    // Not as declared makes no difference.
    let other = Case { seen: "a=7@ours b=1@ours", ..WITHDRAWN };
    check(other, &[&["delete a 7"], &listed[..], &["by check a", "owned 2"]].concat());
    let foreign = Case { seen: "a=1@bird b=1@ours", ..WITHDRAWN };
    check(foreign, &[&listed[..], &["owned 1"]].concat());
    // Leave to adopt is about what is to be there.
    let adopted = Case { desired: "a=1! b=1", ..foreign };
    check(adopted, &[&listed[..], &["owned 1"]].concat());
}

#[test]
fn what_cannot_be_read_is_not_withdrawn() {
    let unread = Case { seen: "a?torn b=1@ours", ..WITHDRAWN };
    check(unread, &["unknown a torn", "withheld a", "owned 1"]);
}

#[test]
fn what_is_undecided_is_kept_as_declared_if_it_is_there_and_not_made() {
    let undecided = Case { standings: "a~ b~", ..WITHDRAWN };
    let there = Case { seen: "a=1@ours", ..undecided };
    check(there, &["withdrawn b by check c: no", "withheld b", "owned 1"]);
    let drifted = Case { seen: "a=7@ours b=1@ours", ..undecided };
    check(drifted, &["update a from 7", "owned 2"]);
}

#[test]
fn what_has_returned_is_made_and_that_is_no_drift() {
    let returned = Case { standings: "a+", ..WITHDRAWN };
    check(returned, &["create a", "create b", "by check a"]);
    let there = Case { seen: "a=1@ours b=1@ours", ..returned };
    check(there, &["owned 2"]);
}

#[test]
fn out_of_focus_a_condition_is_named_and_finds_nothing() {
    let elsewhere = Case { focus: Some("b"), seen: "b=1@ours", ..WITHDRAWN };
    check(elsewhere, &["withheld a", "owned 1"]);
    let here = Case { focus: Some("a"), seen: "a=1@ours", ..WITHDRAWN };
    let expected = ["delete a 1", "withdrawn a by check c: no", "withheld a", "by check a"];
    check(here, &[&expected[..], &["owned 1"]].concat());
    // What is not declared has no condition.
    check(Case { desired: "b=1", ..elsewhere }, &["owned 1"]);
}
