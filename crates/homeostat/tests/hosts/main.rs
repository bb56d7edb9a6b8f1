//! The documents of `examples/hosts/`: each is applied to a host of its own, and judged by what passes and what does not.
//!
//! Most of them need kinds of links that a kernel may lack: `cargo xtask vm homeostat/hosts` runs these tests on one that has
//! them, and without them they fail.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod edge;
mod fabric;
mod servers;
mod world;
