//! The nft source against what the kernel alone costs, and against `nft`, in fresh network namespaces.
//! Needs root.
//!
//! The *floor* sends messages that were dumped from the kernel before, and reads dumps without parsing.

pub mod change;
pub mod cold;
pub mod converged;
pub mod heal;
mod load;
pub mod memory;
mod prepared;
mod raw;
