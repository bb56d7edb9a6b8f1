//! Plans and reports as text and as JSON. stdout is data, stderr is for people.

pub(crate) mod digest;
pub(crate) mod json;
pub(crate) mod line;
pub(crate) mod progress;
pub(crate) mod stream;
pub(crate) mod text;

use homeostat_engine::{Explain, LedgerKey, Summary};

/// How plans and reports are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Complete, for programs.
    Json,
    /// For people.
    Text(text::Length),
}

/// What one source in one scope has to tell.
pub(crate) struct Told {
    pub(crate) place: LedgerKey,
    pub(crate) what: Box<dyn Explain>,
}

/// The changes of all sources together.
pub(crate) fn summary(all: &[Told]) -> Summary {
    let mut sum = Summary::default();
    for told in all {
        sum += told.what.summary();
    }
    sum
}

/// Whether every source is as declared.
pub(crate) fn is_converged(all: &[Told]) -> bool {
    all.iter().all(|told| told.what.is_converged())
}
