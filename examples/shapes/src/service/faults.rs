//! The faults that a test or `PUT /faults` can switch on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The faults of the service; the default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "faults are independent of each other")]
pub struct Faults {
    /// Answers everything that reads with an error.
    pub blind: bool,
    /// Lists hold no more than this many shapes, and say that there are more.
    pub partial: Option<usize>,
    /// Refuses writes to these shapes.
    pub frozen: BTreeSet<String>,
    /// Takes so many milliseconds for each answer.
    pub slow_ms: u64,
    /// Loses so many of the next notices; their numbers are missing.
    pub lost_notices: u64,
    /// Sends no notices at all, and numbers none.
    pub mute: bool,
    /// Does what the next so many writes ask for, and hangs up without an answer.
    pub lost_answers: u32,
    /// Answers the next so many writes with "too many requests".
    pub busy: u32,
    /// Takes writes as tasks, which end when the test says so.
    pub tasks: bool,
}

/// Counts a number down; returns whether there was anything left.
pub(super) fn spend<N>(left: &mut N) -> bool
where
    N: Copy + Default + PartialEq + std::ops::SubAssign + From<u8>,
{
    let spent = *left != N::default();
    if spent {
        *left -= N::from(1);
    }
    spent
}
