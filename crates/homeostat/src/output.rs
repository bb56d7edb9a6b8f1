//! Plans and reports as text and as JSON. stdout is data, stderr is for people.

pub(crate) mod digest;
pub(crate) mod json;
pub(crate) mod line;
pub(crate) mod pager;
pub(crate) mod progress;
pub(crate) mod stream;
pub(crate) mod text;

use homeostat_engine::{Explain, LedgerKey, Summary};

/// The plan or report of one source in one scope.
pub(crate) struct SourceReport {
    pub(crate) ledger_key: LedgerKey,
    pub(crate) report: Box<dyn Explain>,
    /// The pattern of the document by which the scope is declared, in plans.
    pub(crate) pattern: Option<String>,
}

/// The changes of all sources together.
pub(crate) fn summary(all: &[SourceReport]) -> Summary {
    let mut sum = Summary::default();
    for source in all {
        sum += source.report.summary();
    }
    sum
}

/// Whether every source is as declared.
pub(crate) fn is_converged(all: &[SourceReport]) -> bool {
    all.iter().all(|source| source.report.is_converged())
}
