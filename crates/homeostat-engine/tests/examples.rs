//! The examples run, and are as short as they say.
#![expect(clippy::duplicate_mod, reason = "each example stands alone, with the same desired state")]

#[path = "../examples/keep.rs"]
mod keep;
#[path = "../examples/timer.rs"]
mod timer;

/// The lines inside of the function `keep`.
fn body(example: &str) -> usize {
    let after = example.lines().skip_while(|line| !line.starts_with("async fn keep"));
    after.skip(1).take_while(|line| *line != "}").count()
}

#[test]
fn the_loop_is_embedded_in_ten_lines() {
    keep::main().unwrap();
    assert!(body(include_str!("../examples/keep.rs")) <= 10);
}

#[test]
fn a_timer_of_fifteen_lines_does_without_it() {
    timer::main().unwrap();
    assert!(body(include_str!("../examples/timer.rs")) <= 15);
}
