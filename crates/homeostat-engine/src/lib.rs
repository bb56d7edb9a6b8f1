//! One pass over one source: observe, diff, plan, apply, verify, report; and the loop that keeps doing it.
//!
//! # In five minutes
//!
//! A *source* is one subsystem in one scope that can be looked at and written to. Writing one takes an
//! afternoon with the contract ([`Source`], and its laws on the page of `homeostat_core`), or a hundred
//! lines with the adapter of `homeostat-kit`, whose front page walks through it. Here one is at hand: a
//! target in memory.
//!
//! **Look before you write.** A [`Bound`] source has its desired state, its owner and its place in the ledger. As a
//! [`Planner`] it can say what differs. It has no writer, so it cannot write; there is no dry-run flag that
//! a caller could forget.
//!
//! **One pass.** With the lock of its scope it is opened as a [`Session`], and a pass is one call.
//!
//! **The loop.** [`Loop`] makes passes when hints, timers, retries or people ask for them, and never ends
//! because of a failure. It is a future: nothing is started behind your back.
//!
//! ```
//! use std::sync::Arc;
//!
//! use homeostat_engine::{
//!     Alone, Bound, Control as _, Explain as _, Hints, LedgerKey, Loop, LoopDeps, MemoryLedger, OnStop, Ownership, Pace,
//!     Planner as _, Session, Table,
//! };
//! use homeostat_testkit::memory::{Independent, Memory, Target};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let target = Target::default();
//! let bound = || -> Result<_, Box<dyn std::error::Error>> {
//!     let declared = [("door", "green"), ("window", "blue")];
//!     let desired = Table::new(declared.map(|(key, value)| (key.to_owned(), value.to_owned())))?;
//!     let source = Memory::<Independent>::marked(target.clone());
//!     let ownership = Ownership::Marked; // How ours are distinguished from others': never by default.
//!     Ok(Bound::new(source, desired, ownership, LedgerKey::new("me", "squares", "here")))
//! };
//! let ledger = Arc::new(MemoryLedger::default());
//!
//! let planned = bound()?.plan(&*ledger).await?;
//! assert_eq!(planned.summary().total(), 2); // Two creates, and nothing was written.
//!
//! let lock = Alone::i_am_the_only_writer();
//! let bound_once = bound()?;
//! let mut session = Session::open(&bound_once, &lock, ledger.clone(), Hints::Ignore).await?;
//! assert!(session.pass(&bound_once).await?.is_converged());
//! assert_eq!(session.pass(&bound_once).await?.summary().total(), 0); // The second pass does nothing.
//!
//! let deps = LoopDeps::new(lock, ledger);
//! let (looped, handle) = Loop::new(bound()?, deps, Pace::of::<Memory<Independent>>(1));
//! let running = tokio::spawn(looped.run());
//! handle.wait_for(|status| status.is_converged).await?;
//! target.remove("door"); // Another program does, a hint arrives, and it comes back.
//! handle.wait_for(|status| status.counts.applied == 1).await?;
//! handle.stop(OnStop::Leave).await;
//! running.await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Where to go from here
//!
//! A pass is a plain function, [`pass()`]: a reader, a writer, a desired state and the ownership that the caller
//! holds go in; a report and the new ownership come out. There is no global state. [`plan()`] is the half
//! of it that has no way to write.
//!
//! The ledger ([`Ledger`]) remembers what the target cannot: `SqliteLedger` on disk (feature `sqlite`, on by default), or
//! [`MemoryLedger`] for callers without a state directory. [`lock`] has the ways to be the only
//! writer of a scope. [`Bound`] erases a source, so that a registry can hold many kinds. [`controller`] has the
//! rules of the loop.
//!
//! The whole contract is re-exported: this is the one crate to depend on.

#![warn(missing_docs)]

pub use homeostat_core::*;

pub mod bound;
pub mod config;
pub mod controller;
#[cfg(feature = "sqlite")]
mod database;
mod entries;
pub mod error;
mod focus;
pub mod guard;
pub mod health_board;
pub mod journal;
#[cfg(feature = "sqlite")]
pub mod late_ledger;
pub mod ledger;
pub mod ledger_page;
pub mod lock;
pub mod memory;
pub mod observer;
pub mod operations;
pub mod pass;
mod run;
pub mod session;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod undo;
mod verify;

pub use bound::{Bound, Planner};
pub use config::{Config, PassInput, Progress};
pub use controller::event::{Event, EventKind, Events, PassId};
pub use controller::handle::{
    CommandRefused, Control, FoundEntries, FoundEntry, Handle, LoopTask, OnStop, PassAnswer,
    Recording,
};
pub use controller::open::OpenEntry;
pub use controller::pace::Mode;
pub use controller::settle::Patience;
pub use controller::status::{ContendedKey, Counts, OpenCounts, Status};
pub use controller::{Loop, LoopDeps, Pace};
pub use entries::Entries;
pub use error::Error;
pub use guard::{Budget, Cascades, GuardOptions, Guards, Losses, MassDelete, MissingSections};
pub use health_board::{Conditions, HealthBoard, Verdict};
pub use journal::Journal;
#[cfg(feature = "sqlite")]
pub use late_ledger::LateLedger;
pub use ledger::{Edit, Ledger, LedgerKey, Page, Pages};
pub use ledger_page::LedgerPage;
pub use lock::{Alone, FileLock, NetnsLock, is_exiting};
pub use memory::MemoryLedger;
pub use observer::Observer;
pub use operations::{DispatchGuard, LaneGuard, Operations};
pub use pass::{apply, pass, plan};
pub use session::{Hints, Session};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteLedger, SqlitePages};
pub use undo::{Restored, UndoList};
