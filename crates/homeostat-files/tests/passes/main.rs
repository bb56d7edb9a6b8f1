//! Whole passes over sets of files below directories of their own.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod at_rest;
mod balancer;
mod bench;
mod certificates;
mod checking;
mod crashes;
mod culprits;
mod exclusive;
mod laws;
mod obstacles;
mod owning;
mod profiles;
mod programs;
mod rendering;
mod swapping;
mod units;
mod without_reload;
