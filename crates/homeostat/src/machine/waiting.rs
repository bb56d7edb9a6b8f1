//! Desired states in a scope that is not there.

use homeostat_engine::{Entry, Explain, Finding, Kind, LedgerKey, Summary, WaitsOn};

use crate::output::SourceReport;

/// Keys, and what they wait on.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) keys: Vec<String>,
    pub(crate) on: WaitsOn,
}

/// What one source has to tell of a scope that is not there.
pub(crate) fn told((place, waiting): &(LedgerKey, Waiting)) -> SourceReport {
    SourceReport { ledger_key: place.clone(), report: Box::new(waiting.clone()) }
}

impl Explain for Waiting {
    fn explain(&self, kind: Kind, tell: &mut dyn FnMut(Entry)) {
        if kind == Kind::Pending {
            for key in &self.keys {
                tell(Entry::Finding {
                    key: key.clone(),
                    finding: Finding::Pending { on: self.on.clone() },
                });
            }
        }
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn is_converged(&self) -> bool {
        self.keys.is_empty()
    }
}
