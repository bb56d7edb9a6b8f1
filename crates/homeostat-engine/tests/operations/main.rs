//! Lanes, tasks and the journal together: no pass waits, nothing is sent twice, nothing is lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be set up fails the test")]

mod commands;
mod crashes;
mod failures;
mod falls;
mod journals;
#[path = "../common/mount.rs"]
mod mount;
mod passes;
mod races;
mod server;
mod silence;
mod stage;
mod storms;
