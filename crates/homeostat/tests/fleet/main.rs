//! `homeostat fleet` against real members of etcd, with simulated nodes. `etcdctl`, `ssh-keygen` and `openssl` judge.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod commands;
mod demo;
mod enroll;
mod hosts;
mod page;
#[path = "../../../homeostat-coordinator/tests/rollouts/simulated.rs"]
#[expect(dead_code, reason = "the judge of histories is used by the tests of the coordinator")]
mod simulated;
mod world;
