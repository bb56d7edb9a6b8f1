//! Whole passes over a simulated cluster, by HTTPS on the loopback. What was done is judged by the
//! simulator's own state and by the requests that reached it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code, but outside `#[test]` clippy cannot know"
)]

mod bounds;
mod crash;
mod dialled;
mod faults;
mod ground;
mod hanging_nodes;
mod high_availability;
mod hints;
mod hour;
mod journal;
mod laws;
mod lost;
mod many;
mod moved;
mod noticed;
mod options;
mod owning;
mod refusals;
mod refused_writes;
mod released;
mod round_trip;
mod run_state;
mod secret;
mod slow_start;
mod unexpected_answers;
mod unknown;
mod waits;
mod words;
