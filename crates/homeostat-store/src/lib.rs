//! A store that several machines share.
//!
//! ```text
//!   Candidate ──▶ Term ──guards──▶ Transaction ──▶ ┌───────┐ ──list──▶ everything at revision r
//!   (one leader at a time)                         │ Store │ ──watch─▶ every change after r
//!   Lease ── says that a machine is alive ───────▶ └───────┘
//! ```
//!
//! Start at [`Store`], which has the laws; at [`Holder`] for a loop that shall run on one machine at a time. [`MemoryStore`] implements it for tests and simulations, `homeostat-etcd` for
//! etcd. Everything above it (what a fleet stores, who may write it) is not known here.

#![warn(missing_docs)]

mod clock;
mod error;
mod held;
mod journal;
#[cfg(feature = "laws")]
pub mod laws;
mod memory;
mod prefix;
mod store;
mod term;

pub use clock::{BootTime, Clock, RuntimeTime};
pub use error::Error;
pub use held::{Dispatch, Held, Holder, Notice, Withheld};
pub use homeostat_kit::store::{Revision, Snapshot, StoreWatch, WatchEvent};
pub use journal::open_journal;
pub use memory::{Backup, Call, Fault, MemoryStore};
pub use prefix::Prefix;
pub use store::{
    Committed, Entry, Guard, Keys, Lease, LeaseId, Renewal, Status, Store, Transaction, Watching,
    Write,
};
pub use term::{Candidate, Lost, Predecessor, Term};
