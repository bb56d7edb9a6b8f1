//! Decides when a pass may start, and what it may try. Pure: `now` is an argument, there is no
//! timer, clock or I/O.
//!
//! A driver passes wakeups in, asks [`Pacer::fire`] whether a full pass starts, and otherwise
//! sleeps until [`Pacer::deadline`]. [`KeyPacer`] does the same for focused passes, key by key.
//! A wakeup carries reasons and never state: a pass reads the newest desired state and target when it
//! starts, so merging wakeups loses nothing and their order does not matter.
//!
//! Failures are retried after growing pauses: [`Backoff`] for steps that fail, [`Convergence`] for steps that
//! succeed and change nothing, [`Contention`] for keys that another program keeps undoing. [`Resync`]
//! looks at everything again, and [`Health`] says whether all this still moves.
//!
//! Start at [`Pacer`].

mod backoff;
mod contention;
mod convergence;
mod due;
mod health;
mod keys;
mod pacer;
mod pauses;
mod policy;
mod reasons;
mod resync;
mod time;

pub use backoff::Backoff;
pub use contention::{Contended, Contention, Heal, Threshold};
pub use convergence::Convergence;
pub use health::{Bounds, Health, Stall};
pub use keys::KeyPacer;
pub use pacer::{Fired, Pacer};
pub use pauses::Pauses;
pub use policy::{Policy, PolicyError};
pub use reasons::{Reason, Reasons};
pub use resync::{PeriodRefused, Resync};
pub use time::Time;
