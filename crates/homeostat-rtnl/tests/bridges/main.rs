//! Bridges that filter VLANs: what is declared of them and of their ports, judged by `bridge`, and by packets that pass
//! or do not. A kernel may lack this: `cargo xtask vm` runs these tests on one that has it, and without it they fail.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

#[path = "../passes/bench.rs"]
#[expect(dead_code, reason = "the bench of whole passes; not all of it is needed here")]
mod bench;
mod traffic;
mod vlans;
