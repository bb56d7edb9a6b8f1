//! Whole tables are owned: by the mark in their comment, or by the ledger if they were taken over.

use std::sync::Arc;

use homeostat_engine::Explain as _;
use homeostat_nft::DesiredState;

use crate::world::{World, by_hand, expected, explained, listed, nft};

const OURS: &str = "table ip a { chain x { accept; }; }";

#[test]
fn a_table_of_somebody_else_is_a_conflict_and_stays() {
    let mut world = World::new();
    by_hand("table ip a { comment \"theirs\"; chain y { drop; }; }");
    let before = listed();
    let desired = world.desired(OURS);
    let report = world.pass(&desired);
    assert_eq!(explained(&report), "conflict table ip a: another owner, belongs to another owner");
    assert_eq!(listed(), before);
}

#[test]
fn an_equal_table_of_somebody_else_is_matched_and_never_deleted() {
    let mut world = World::new();
    by_hand(OURS);
    let desired = world.desired(OURS);
    assert_eq!(explained(&world.pass(&desired)), "matched table ip a: another owner");
    let report = world.pass(&Arc::new(DesiredState::nothing()));
    assert!(report.is_converged(), "{}", explained(&report));
    assert_eq!(listed(), expected(OURS));
}

#[test]
fn a_table_of_another_owner_is_foreign() {
    let mut world = World::new();
    by_hand("table ip a { comment \"homeostat:other\"; }");
    let desired = world.desired(OURS);
    let words = explained(&world.pass(&desired));
    assert_eq!(words, "conflict table ip a: homeostat:other, belongs to another owner");
}

#[test]
fn a_table_that_was_taken_over_is_ours_by_the_ledger() {
    let mut world = World::new();
    by_hand("table ip a { chain y { counter packets 5 bytes 6; }; chain x { accept; }; }");
    world.adopt("table ip a");
    world.converge(OURS);
    world.config.adopt.clear();
    assert_eq!(listed(), expected(OURS));
    assert!(
        !nft(&["list", "ruleset"], "").unwrap().contains("homeostat"),
        "no mark could be written"
    );
}

#[test]
fn a_table_that_was_taken_over_goes_back_with_its_counters_and_elements() {
    const THEIRS: &str = "table ip a { comment \"theirs\"; set s { type ipv4_addr; flags timeout; \
        elements = { 10.0.0.1 timeout 1h expires 59m, 10.0.0.2 }; }; counter c { packets 3 bytes 4; }; \
        chain y { type filter hook input priority 5; policy accept; ip saddr @s counter packets 5 bytes 6 drop; }; }";
    let mut world = World::new();
    by_hand(THEIRS);
    let list = || nft(&["list", "ruleset"], "").unwrap();
    let lines = |text: String| -> Vec<String> {
        // Time runs down meanwhile.
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_time = |at: usize| at.checked_sub(1).is_some_and(|at| words[at] == "expires");
        let lasting = words.iter().enumerate().filter(|(at, _)| !is_time(*at));
        lasting.map(|(_, word)| (*word).to_owned()).collect()
    };
    let before = list();
    world.adopt("table ip a");
    world.converge(OURS);
    world.config.adopt.clear();
    world.converge("table ip a { chain x { drop; }; }");
    let planned = world.planned("");
    assert!(planned.contains("given back to its former owner"), "{planned}");
    world.converge("");
    assert_eq!(lines(list()), lines(before));
    let report = world.pass(&Arc::new(DesiredState::nothing()));
    assert_eq!(explained(&report), "");
}

#[test]
fn a_taken_table_that_somebody_changed_is_left_to_its_former_owner() {
    let mut world = World::new();
    by_hand("table ip a { chain y { drop; }; }");
    world.adopt("table ip a");
    world.converge(OURS);
    world.config.adopt.clear();
    by_hand("add rule ip a x tcp dport 9 accept");
    let before = listed();
    let desired = Arc::new(DesiredState::nothing());
    let report = world.pass(&desired);
    let words = explained(&report);
    assert!(words.contains("as it is, since it was changed meanwhile"), "{words}");
    assert!(report.is_converged(), "{words}");
    assert_eq!(listed(), before);
    assert_eq!(explained(&world.pass(&desired)), "", "it is nobody's business any more");
}

#[test]
fn standing_leave_takes_tables_from_anybody() {
    let mut world = World::new();
    by_hand("table ip a { chain y { drop; }; }");
    let desired = Arc::new(world.compile(OURS).unwrap().adopting());
    let report = world.pass(&desired);
    assert!(report.is_converged(), "{}", explained(&report));
    assert_eq!(listed(), expected(OURS));
    assert_eq!(explained(&world.plan(&desired)), "");
}

#[test]
fn the_record_of_a_table_says_nothing_about_a_later_one_of_the_same_name() {
    let mut world = World::new();
    by_hand("table ip a { chain y { drop; }; }");
    world.adopt("table ip a");
    world.converge(OURS);
    world.config.adopt.clear();
    by_hand("delete table ip a\ntable ip a { chain z { drop; }; }");
    let before = listed();
    let desired = world.desired(OURS);
    let report = world.pass(&desired);
    assert!(explained(&report).starts_with("conflict table ip a"), "{}", explained(&report));
    assert_eq!(listed(), before);
    let report = world.pass(&Arc::new(DesiredState::nothing()));
    assert_eq!(listed(), before, "{}", explained(&report));
}

#[test]
fn a_flushed_ruleset_comes_back_whole() {
    let mut world = World::new();
    world.converge(OURS);
    by_hand("flush ruleset");
    world.converge(OURS);
    assert_eq!(listed(), expected(OURS));
}

#[test]
fn whatever_somebody_does_inside_of_our_table_is_put_right() {
    const TEXT: &str = "table ip a { set s { type ipv4_addr; elements = { 10.0.0.1 }; }; counter c { }; \
        chain x { counter; return; }; \
        chain i { type filter hook input priority 0; policy drop; tcp dport 1 accept; tcp dport 2 accept; ip saddr @s jump x; }; }";
    let acts = [
        "flush chain ip a i",
        "insert rule ip a i tcp dport 9 accept",
        "add chain ip a y; add rule ip a i jump y",
        "chain ip a i { policy accept; }",
        "flush set ip a s",
        "add set ip a t { type ipv4_addr; elements = { 1.1.1.1 }; }",
        "delete counter ip a c",
        "add counter ip a d",
        "add map ip a m { type inet_service : verdict; elements = { 1 : jump x }; }",
        "table ip a { flags dormant; }",
        "flush table ip a; delete chain ip a x",
        "flush table ip a; delete set ip a s; add set ip a s { type inet_service; elements = { 5 }; }",
    ];
    let mut world = World::new();
    world.converge(TEXT);
    for act in acts {
        by_hand(act);
        assert_ne!(listed(), expected(TEXT), "{act}");
        world.converge(TEXT);
        assert_eq!(listed(), expected(TEXT), "{act}");
    }
}
