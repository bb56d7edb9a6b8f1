//! The nft source against what the kernel alone costs, and against `nft`, in fresh network namespaces.
//! Needs root.
//!
//! The *floor* sends messages that the kernel itself has told before, and reads dumps without a look
//! inside.

pub mod change;
pub mod cold;
pub mod converged;
pub mod heal;
mod load;
pub mod memory;
mod raw;
mod stage;
