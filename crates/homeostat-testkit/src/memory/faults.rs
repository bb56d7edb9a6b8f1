//! What a target in memory can be told to do wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use homeostat_engine::Retry;

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
    /// When a refused write says that it is worth another try; nothing for soon.
    pub refused_until: Option<Retry>,
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
    /// Who is told to have done what happens behind everybody's back.
    pub culprit: Option<Arc<str>>,
    /// Whether the source hears of its own writes.
    pub echoes: Echoes,
    /// What the source panics in.
    pub panics: Option<Act>,
    /// What the source does not come back from for as long as this stands.
    pub hangs: Option<Act>,
}

/// Something that the loop asks of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the verbs of the contract")]
pub enum Act {
    Observe,
    Plan,
    Apply,
    Hint,
}

/// Whether a source hears of its own writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echoes {
    /// It does.
    #[default]
    Heard,
    /// It knows them, and keeps them to itself.
    Suppressed,
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
    /// The subscription dies.
    Dead,
    /// Nobody can subscribe.
    Closed,
}
