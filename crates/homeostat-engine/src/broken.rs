//! A pass that could not be made, as a report: the source failed as a whole, whatever its keys are.

use homeostat_core::{Entry, Explain, Failure, Finding, Kind, Summary};

use crate::error::Error;

/// One failure in the place of a report; its key is the name of the source.
#[derive(Clone, Debug)]
pub struct BrokenPass {
    source: String,
    failure: Failure,
}

impl BrokenPass {
    /// What ended the pass of a source.
    #[must_use]
    pub fn new(error: &Error, source: &str) -> Self {
        let mut failure = Failure::from_error(error, error.retry());
        failure.help = error.help();
        BrokenPass { source: source.to_owned(), failure }
    }
}

impl Explain for BrokenPass {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind == Kind::Failed {
            let (key, failure) = (self.source.clone(), self.failure.clone());
            tell(Entry::Finding { key, finding: Finding::refused(failure) });
        }
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn is_converged(&self) -> bool {
        false
    }
}
