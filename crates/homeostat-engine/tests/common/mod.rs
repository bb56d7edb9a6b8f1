//! A toy target in memory that can be made to misbehave, the source for it, and a rig that runs
//! passes over it with a ledger that is watched.

#![allow(dead_code, reason = "every test binary uses another part of it")]
#![allow(clippy::unwrap_used, reason = "a rig that cannot be set up fails the test")]

pub(crate) mod child;
pub(crate) mod ledger;
pub(crate) mod mount;
pub(crate) mod rig;
pub(crate) mod toy;
pub(crate) mod world;

/// Runs a future to its end on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
