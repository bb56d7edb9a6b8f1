//! Whole passes over queues in fresh network namespaces, judged by `tc`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod bench;
mod kinds;
mod laws;
mod owning;
mod random;
mod shaping;
