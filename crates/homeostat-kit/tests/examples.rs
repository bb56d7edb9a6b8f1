//! The examples of the front page run, and are short.
#![expect(clippy::duplicate_mod, reason = "both examples have the same lamps")]

#[path = "../examples/keep.rs"]
mod keep;
#[path = "../examples/reconcile.rs"]
mod reconcile;

const MOST_LINES: usize = 25;

#[test]
fn one_call_is_shown_in_25_lines() {
    reconcile::main().unwrap();
    assert!(include_str!("../examples/reconcile.rs").lines().count() <= MOST_LINES);
}

#[test]
fn a_loop_is_shown_in_25_lines() {
    keep::main().unwrap();
    assert!(include_str!("../examples/keep.rs").lines().count() <= MOST_LINES);
}
