//! A source whose pass ended early: it failed as a whole, whatever its keys are.

use homeostat_engine::{Entry, Error, Explain, Failure, Kind, Place, Summary};

/// One failure in the place of a report.
pub(crate) struct Broken {
    source: String,
    failure: Failure,
}

impl Broken {
    /// What ended the pass of the source in `place`.
    pub(crate) fn by(error: &Error, place: &Place) -> Self {
        let mut failure = Failure::from_error(error, error.retry());
        failure.help = error.help();
        Broken { source: place.source.clone(), failure }
    }
}

impl Explain for Broken {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind == Kind::Failed {
            let (key, failure) = (self.source.clone(), self.failure.clone());
            tell(Entry::Failed { action: None, key, failure });
        }
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn is_converged(&self) -> bool {
        false
    }
}
