//! The daemon as it is installed: how soon it heals, what that costs, and what it costs at rest. Needs
//! root, and the program, built beside this one.
//!
//! All is measured from outside: by a listener of our own, and by what the kernel tells of a process.

pub mod burst;
mod daemon;
mod ear;
pub mod idle;
pub mod latency;
pub mod memory;
mod rivals;
mod scene;
