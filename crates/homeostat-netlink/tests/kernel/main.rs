//! The transport against the running kernel, each test in a fresh network namespace, judged by `ip`.
//!
//! Needs root: inside a user namespace no buffer can be forced, and the tests of that fail.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod batches;
mod bytes;
mod dumps;
mod events;
mod oracle;
mod requests;
mod sockets;
mod transactions;
