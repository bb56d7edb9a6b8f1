//! A report that is a list of entries, for what no plan is behind: a pass that could not be made, and tasks that ended
//! after the passes that sent them.

use homeostat_core::{Entry, Explain, Kind, PassTrouble, Summary};

use crate::error::Error;

/// Changes that were made and findings, in order.
#[derive(Clone, Debug, Default)]
pub struct Entries(pub Vec<Entry>);

impl Entries {
    /// What ended the pass of a source, which failed as a whole, whatever its keys are.
    #[must_use]
    pub fn of_broken_pass(error: &Error, source: &str) -> Self {
        let about = PassTrouble::Source(source.to_owned());
        Entries(vec![Entry::Pass { about, failure: error.failure() }])
    }
}

impl Explain for Entries {
    fn explain(&self, kind: Kind, emit: &mut dyn FnMut(Entry)) {
        self.0.iter().filter(|entry| entry.kind() == kind).cloned().for_each(emit);
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for entry in &self.0 {
            if let Entry::Applied(line, _) = entry {
                summary.count(line.action);
            }
        }
        summary
    }

    fn is_converged(&self) -> bool {
        self.0.iter().all(|entry| entry.kind() == Kind::Applied)
    }
}
