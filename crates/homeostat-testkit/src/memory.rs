//! A source over a target in memory, with faults on demand.
//!
//! Keys and objects are text. A key may have a parent (`a/b` needs `a`), so that ordered sources have something to
//! order. [`Target`] is the target, [`Memory`] the source, [`Faults`] what the target does wrong, and [`Flaw`] what
//! the *source* does wrong: each flaw breaks one law, so that a test can show that the law suite finds it.

mod harness;
mod source;
mod target;

pub use harness::Bench;
pub use source::{
    Atomic, Behaviour, Flaw, Independent, Lanes, Memory, MemoryReader, MemoryWriter, Ordered, Put,
    Quiet,
};
pub use target::{Act, Echoes, Faults, Held, HintFault, Mark, Target};
