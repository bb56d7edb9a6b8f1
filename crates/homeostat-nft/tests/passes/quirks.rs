//! What the kernel dumps otherwise than it takes it: tables with it are carried as bytes all the same.

use crate::world::{World, expected, listed};

#[track_caller]
fn is_carried(text: &str) {
    let mut world = World::new();
    let plan = world.planned(text);
    assert!(!plan.contains("loaded whole"), "{plan}");
    world.converge(text);
    assert_eq!(listed(), expected(text));
}

#[test]
fn ends_dumped_with_time() {
    is_carried(
        "table inet t { set s { type ipv4_addr; flags interval; timeout 1h; \
         elements = { 1.1.1.1, 2.2.2.0/24 timeout 5m }; }; }",
    );
}

#[test]
fn dynset_list_not_dumped() {
    is_carried(
        "table inet t { set d { type ipv4_addr; flags dynamic,timeout; timeout 1m; size 100; }; \
         chain c { add @d { ip saddr timeout 5s limit rate 5/second counter } drop; }; }",
    );
}
