//! Lanes, tasks and the journal together: no pass waits, nothing is sent twice, nothing is lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot be set up fails the test")]

mod commands;
mod crashes;
mod passes;
mod server;
mod stage;
