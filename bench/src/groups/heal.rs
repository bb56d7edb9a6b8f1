//! The daemon as it is installed: how soon it heals, what that costs, and what it costs at rest. Needs
//! root, and the program, built in the directory of this one.
//!
//! All is measured from outside: by a listener of our own, and by the files of `/proc`.

pub mod burst;
mod daemon;
mod fixture;
pub mod idle;
pub mod latency;
mod listener;
pub mod memory;
mod rivals;
