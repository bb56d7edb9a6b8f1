//! A source over a target in memory, with faults on demand.
//!
//! Keys and objects are text. A key may have a parent (`a/b` needs `a`), so that ordered sources have something to
//! order. [`Target`] is the target, [`Memory`] the source, [`Faults`] what the target does wrong, and [`Flaw`] what
//! the *source* does wrong: each flaw breaks one law, so that a test can show that the law suite finds it.

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
pub use reader::MemoryReader;
pub use source::{Atomic, Behaviour, Independent, Lanes, Memory, Ordered, Quiet};
pub use step::Put;
pub use target::{Held, Mark, Target};
pub use writer::MemoryWriter;
