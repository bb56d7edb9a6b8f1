//! The source against the running kernel: each test on a thread with a `/run` of its own, so that no
//! name reaches the host. Judged by `ip netns` and by what `ip` shows inside.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside of `#[test]` clippy cannot know"
)]

mod inside;
mod laws;
mod owning;
mod world;
