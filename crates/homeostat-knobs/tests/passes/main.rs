//! Whole passes over fake trees, over the kernel's network knobs in fresh namespaces, and over the
//! core files of a real control group.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod bench;
mod coupled;
mod group;
mod hints;
mod ipv6_off;
mod kernel;
mod laws;
mod limits;
mod links;
mod owning;
mod sysfs;
mod tree;
