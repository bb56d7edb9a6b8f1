//! Leads the rollouts of a fleet.
//!
//! ```text
//!  Candidate::elected ──▶ Term ──▶ list, watch ──▶ Known ──decide──▶ Act ──▶ one guarded transaction
//!        ▲                 │                          ▲                            │
//!        └──── lost ───────┘                          └──── seen in the watch ─────┘
//! ```
//!
//! All state is in the store. What [`decide`](homeostat_fleet::decide::decide) returns is written only if this process still
//! leads and if nothing that it was decided on has changed; so a coordinator that slept, or that sees the store late, can
//! delay a rollout and cannot break it. Start at [`Coordinator::run`].

#![warn(missing_docs)]

mod coordinator;
mod known;

pub use coordinator::{Coordinator, Notice, WallClock};
