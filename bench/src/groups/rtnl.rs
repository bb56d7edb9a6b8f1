//! The rtnl source against what the kernel alone costs, and against the tools that people use, in
//! fresh network namespaces. Needs root.
//!
//! The *floor* sends the very same messages, encoded before, and reads dumps without parsing.

pub mod change;
pub mod cold;
pub mod converged;
mod fixture;
pub mod foreign;
pub mod memory;
mod prepared;
pub mod removal;
