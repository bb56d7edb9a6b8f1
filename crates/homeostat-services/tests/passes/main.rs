//! Whole passes over the units of a real systemd, each test with a machine of its own. `systemctl` is the judge.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod bench;
mod laws;
mod units;
