//! Decides when a pass may start. Pure: `now` is an argument, there is no timer, clock or I/O.
//!
//! A driver passes wakeups in, asks [`Pacer::fire`] whether a full pass starts, and otherwise
//! sleeps until [`Pacer::deadline`]. [`KeyPacer`] does the same for focused passes, key by key.
//! A wakeup carries reasons and never state: a pass reads the newest wish and target when it
//! starts, so merging wakeups loses nothing and their order does not matter.
//!
//! Start at [`Pacer`].

mod keys;
mod pacer;
mod policy;
mod reasons;
mod time;

pub use keys::KeyPacer;
pub use pacer::{Fired, Pacer};
pub use policy::{Policy, PolicyError};
pub use reasons::{Reason, Reasons};
pub use time::Time;
