//! A Proxmox VE for tests: it answers over HTTPS as the real one does, quirks included, and fails on demand.
//!
//! Its state is one [`World`]: nodes, guests, tasks, tokens and the faults that a test injects. A test changes it
//! through [`Simulator::with`] and finds there every request that arrived ([`World::calls`]), so that no client is
//! judged by its own account. Start at [`Simulator::start`], which serves it on the loopback, or at
//! [`InMemory::new`], which serves it in virtual time.

mod answer;
mod call;
mod config;
mod faults;
mod guest;
mod http;
mod in_memory;
mod lists;
pub mod parameters;
mod quirks;
mod route;
mod server;
mod tasks;
mod tls;
mod verbs;
mod world;

pub use call::Call;
pub use faults::{Fault, Harm};
pub use guest::{Guest, Kind, OnShutdown};
pub use in_memory::InMemory;
pub use quirks::MODELS;
pub use server::Simulator;
pub use tasks::{End, Script, Task, Upid};
pub use world::World;
