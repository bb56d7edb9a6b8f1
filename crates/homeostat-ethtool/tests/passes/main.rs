//! Whole passes over virtual links in fresh namespaces, judged by `ethtool --json` and `ethtool`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod bench;
mod channels;
mod features;
mod hints;
mod refused;
