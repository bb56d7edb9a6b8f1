//! Whole passes over a tree of the test's own, with a `modprobe` that makes directories in it.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod laws;
mod loading;
mod world;
