//! The rtnl source against what the kernel alone costs, and against the tools that people use, in
//! fresh network namespaces. Needs root.
//!
//! The *floor* sends the very same messages, encoded before, and reads dumps without a look inside.

pub mod change;
pub mod cold;
pub mod converged;
pub mod foreign;
pub mod memory;
pub mod removal;
mod scene;
mod stage;
