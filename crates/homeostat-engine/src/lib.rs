//! One pass over one source: observe, diff, plan, apply, verify, report.
//!
//! A pass is a plain function, [`pass()`]: a reader, a writer, a wish and the ownership that the
//! caller holds go in; a report and the new ownership come out. Nothing is started by itself, and
//! there is no global state. Who only wants to know calls [`plan()`], which has no way to write.
//!
//! The ledger ([`Ledger`]) remembers what the target cannot: [`SqliteLedger`] on disk, or
//! [`MemoryLedger`] for callers without a state directory. [`lock`] has the ways to be the only
//! writer of a scope. [`Bound`] erases a source, so that a registry can hold many kinds.
//!
//! The whole contract is re-exported: this is the one crate to depend on. Start at [`pass()`].

pub use homeostat_core::*;

pub mod book;
pub mod bound;
pub mod config;
pub mod error;
mod fate;
mod focus;
pub mod guard;
pub mod journal;
pub mod keep;
pub mod ledger;
pub mod lock;
pub mod memory;
pub mod observer;
pub mod operations;
pub mod pass;
mod run;
pub mod sqlite;
mod verify;

pub use book::Book;
pub use bound::{Bound, Driver, Planner};
pub use config::{Config, Fence, Order, Progress};
pub use error::Error;
pub use guard::{Budget, Cascades, Guards, MassDelete, Section};
pub use journal::Journal;
pub use keep::control::{Control, Kept, Refused as CommandRefused};
pub use keep::event::{Event, Events, PassId, What};
pub use keep::handle::{Ended, Handle, OnStop};
pub use keep::pace::Mode;
pub use keep::status::Status;
pub use keep::{Loop, Means, Pace};
pub use ledger::{Edit, Ledger, Page, Pages, Place};
pub use lock::{Alone, FileLock, NetnsLock};
pub use memory::MemoryLedger;
pub use observer::Observer;
pub use operations::Operations;
pub use pass::{apply, pass, plan};
pub use sqlite::{SqliteLedger, SqlitePages};
