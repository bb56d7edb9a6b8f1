//! A source over a target in memory that can be told to misbehave.
//!
//! Keys and objects are text. A key may have a parent (`a/b` needs `a`), so that ordered sources
//! have something to order. [`Target`] is the world behind it, [`Memory`] the source, [`Faults`]
//! what the target does wrong, and [`Flaw`] what the *source* does wrong: each flaw breaks one law,
//! so that a test can show that the law suite bites.

mod faults;
mod flaw;
mod harness;
mod reader;
mod source;
mod step;
mod target;
mod writer;

pub use faults::{Act, Echoes, Faults, HintFault};
pub use flaw::Flaw;
pub use harness::Bench;
pub use reader::Eyes;
pub use source::{Atomic, Independent, Lanes, Manner, Memory, Ordered, Quiet};
pub use step::Put;
pub use target::{Held, Mark, Target};
pub use writer::Hands;
