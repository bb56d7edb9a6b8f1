//! Faults of a target in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_engine::Retry;

/// The default has no faults.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Every observe fails.
    pub blind: bool,
    /// An observe fails after this many objects.
    pub torn_after: Option<usize>,
    /// Objects that cannot be read.
    pub unreadable: BTreeSet<String>,
    /// Keys whose writes are refused.
    pub refused: BTreeSet<String>,
    /// When a refused write should be retried; soon, if none.
    pub refused_until: Option<Retry>,
    /// The error of a refused write, in place of the usual one.
    pub refused_with: Option<String>,
    /// The write with this number, counted from one, is refused.
    pub refuse_write: Option<u64>,
    /// Keys whose writes are done, but whose answers are lost.
    pub answer_lost: BTreeSet<String>,
    /// The outcome of a write does not contain the object.
    pub no_read_back: bool,
    /// How the target changes a value when it is written.
    pub rewrite: Option<fn(&str) -> String>,
    pub hints: HintFault,
    /// The culprit that hints name.
    pub culprit: Option<Arc<str>>,
    pub echoes: Echoes,
    /// The operation in which the source panics.
    pub panics: Option<Act>,
    /// The operation in which the source hangs while this is set.
    pub hangs: Option<Act>,
}

/// An operation of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the verbs of the contract")]
pub enum Act {
    Observe,
    Plan,
    Apply,
    Hint,
}

/// Whether a source gets hints of its own writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echoes {
    #[default]
    Heard,
    Suppressed,
}

/// What happens to hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintFault {
    #[default]
    None,
    Lost,
    Twice,
    /// They name another key.
    Wrong,
    /// The subscription fails.
    Dead,
    /// No subscription can be opened.
    Closed,
}
