//! Side-by-side benchmarks: all contestants of a group run interleaved in one process, and one
//! table shows medians, ratios to the group's first contestant, memory, and whether budgets are met.
//!
//! A group is one file under `groups/`, and one line in [`groups::all`].
//! Start at [`contest::Group`]; what a contestant can measure is [`run::Run`].

pub mod against;
pub mod args;
pub mod budget;
pub mod clock;
pub mod contest;
pub mod groups;
pub mod machine;
pub mod memory;
pub mod output;
pub mod program;
pub mod results;
pub mod run;
pub mod unit;

pub use budget::Budget;
pub use contest::Group;
pub use run::{LeftOut, Run, Scale};
pub use unit::Unit;
