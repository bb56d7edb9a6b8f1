//! The client against real members of etcd, on loopback in a network namespace of the test.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod cluster;
mod faults;
mod laws;
mod tls;
