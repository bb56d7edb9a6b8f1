//! What a target in memory can be told to do wrong.

use std::collections::BTreeSet;

/// The faults of a target; the default has none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Every look fails.
    pub blind: bool,
    /// A look fails after it has told this many objects.
    pub torn_after: Option<usize>,
    /// Objects that cannot be read.
    pub unreadable: BTreeSet<String>,
    /// Keys whose writes are refused.
    pub refused: BTreeSet<String>,
    /// The write with this number, counted from one, is refused.
    pub refuse_write: Option<u64>,
    /// Keys whose writes happen, but whose answers are lost.
    pub answer_lost: BTreeSet<String>,
    /// The target does not tell what it holds after a write.
    pub no_read_back: bool,
    /// What the target makes of a value that it is given.
    pub rewrite: Option<fn(&str) -> String>,
    /// What happens to hints.
    pub hints: HintFault,
}

/// What happens to hints on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintFault {
    /// They arrive.
    #[default]
    None,
    /// They do not.
    Lost,
    /// They arrive twice.
    Twice,
    /// They name another key.
    Wrong,
}
