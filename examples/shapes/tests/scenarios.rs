//! Every scenario of `docs/reconciliation.md`, against the real service.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "scenarios/declaring.rs"]
mod declaring;
#[path = "scenarios/finalizing.rs"]
mod finalizing;
#[path = "scenarios/healing.rs"]
mod healing;
#[path = "scenarios/listing.rs"]
mod listing;
#[path = "scenarios/owning.rs"]
mod owning;
#[path = "scenarios/piping.rs"]
mod piping;
#[path = "scenarios/referencing.rs"]
mod referencing;
#[path = "scenarios/slowness.rs"]
mod slowness;
#[path = "scenarios/stage.rs"]
mod stage;
