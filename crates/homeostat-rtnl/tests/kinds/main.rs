//! Every kind of link with every option, in fresh network namespaces, judged by `ip`.
//!
//! A kernel need not have every kind. Where it lacks one, which `ip` finds out in the same namespace,
//! the test asserts that its declaration fails alone, with a clear error and a way out.
#![expect(
    clippy::unwrap_used,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod bench;
mod bond;
mod bridge;
mod change;
mod ip_tunnels;
mod plain;
mod stacked;
mod tap;
mod tunnels;
mod wireguard;
