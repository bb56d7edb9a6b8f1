//! Elements that a text no longer declares go once; what others put there is data then.

use homeostat_engine::Explain as _;

use crate::world::{World, by_hand, expected, explained, listed, nft};

fn text(clause: &str) -> String {
    format!(
        "table ip a {{ set s {{ type ipv4_addr; {clause} }}; chain x {{ ip saddr @s drop; }}; }}"
    )
}

#[test]
fn elements_of_a_clause_that_is_gone_are_deleted_once() {
    let mut world = World::new();
    world.converge(&text("elements = { 10.0.0.1, 10.0.0.2 };"));
    // Another program is quick to fill what the next text leaves to others.
    by_hand("add element ip a s { 10.0.0.3 }");
    let plan = world.planned(&text(""));
    assert!(plan.contains("table ip a set s"), "{plan}");
    world.converge(&text(""));
    assert_eq!(listed(), expected(&text("elements = { 10.0.0.3 };")));
    by_hand("add element ip a s { 10.0.0.1 }");
    world.converge(&text(""));
    assert_eq!(listed(), expected(&text("elements = { 10.0.0.1, 10.0.0.3 };")));
}

#[test]
fn intervals_and_concatenations_of_a_clause_that_is_gone_go_as_well() {
    let both = |ranges: &str, pairs: &str| {
        format!(
            "table inet a {{ set r {{ type ipv4_addr; flags interval; {ranges} }}; \
             map p {{ type ipv4_addr . inet_service : verdict; flags interval; {pairs} }}; }}"
        )
    };
    let mut world = World::new();
    world.converge(&both(
        "elements = { 10.0.0.0/8, 11.0.0.0-11.0.0.9 };",
        "elements = { 1.0.0.0/8 . 5-9 : drop };",
    ));
    world.converge(&both("", ""));
    assert_eq!(listed(), expected(&both("", "")));
}

#[test]
fn an_element_of_a_dynamic_set_that_is_no_longer_declared_goes_and_learned_ones_stay() {
    let dynamic =
        |elements: &str| text(&format!("flags dynamic,timeout; elements = {{ {elements} }};"));
    let mut world = World::new();
    world.converge(&dynamic("10.0.0.1, 10.0.0.2"));
    by_hand("add element ip a s { 10.0.0.9 timeout 1h }");
    world.converge(&dynamic("10.0.0.1"));
    let set = nft(&["list", "set", "ip", "a", "s"], "").unwrap();
    assert!(set.contains("10.0.0.1") && set.contains("10.0.0.9"), "{set}");
    assert!(!set.contains("10.0.0.2"), "{set}");
}

#[test]
fn a_set_that_is_made_again_loses_the_elements_of_the_clause_that_is_gone() {
    let mut world = World::new();
    world.converge(&text("elements = { 10.0.0.1 };"));
    by_hand("add element ip a s { 10.0.0.3 }");
    let sized = text("comment \"others fill it\";");
    world.converge(&sized);
    let filled = text("comment \"others fill it\"; elements = { 10.0.0.3 };");
    assert_eq!(listed(), expected(&filled));
}

#[test]
fn what_was_declared_is_known_after_the_table_was_lost() {
    let mut world = World::new();
    world.converge(&text("elements = { 10.0.0.1 };"));
    by_hand("flush ruleset");
    world.converge(&text("elements = { 10.0.0.1 };"));
    world.converge(&text(""));
    assert_eq!(listed(), expected(&text("")));
}

#[test]
fn a_table_that_took_the_name_of_ours_is_not_ours_by_the_record_of_its_elements() {
    let mut world = World::new();
    let ours = text("elements = { 10.0.0.1 };");
    world.converge(&ours);
    by_hand("delete table ip a\ntable ip a { chain z { drop; }; }");
    let before = listed();
    let desired = world.desired(&ours);
    let words = explained(&world.pass(&desired));
    assert!(words.starts_with("conflict table ip a"), "{words}");
    let report = world.pass(&std::sync::Arc::new(homeostat_nft::DesiredState::nothing()));
    assert!(report.is_converged(), "{}", explained(&report));
    assert_eq!(listed(), before);
}
