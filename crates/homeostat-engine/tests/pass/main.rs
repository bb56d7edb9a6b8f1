//! The single pass over a toy target that misbehaves: what is written when, and what is recorded.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

mod broken_records;
#[path = "../common/mod.rs"]
mod common;
mod ledger_fails;
mod looks;
mod records;
mod removals;
mod strict;
mod verified;

use common::rig::Rig;
use common::toy::Independent;

type Toys = Rig<Independent>;
