//! Desired states in a scope that does not exist.

use homeostat_engine::{Entries, Entry, Finding, LedgerKey, WaitsOn};

use crate::output::SourceReport;

/// The keys of one source in a scope, and what they wait on.
#[derive(Clone)]
pub(crate) struct Waiting {
    pub(crate) ledger_key: LedgerKey,
    pub(crate) keys: Vec<String>,
    pub(crate) on: WaitsOn,
}

impl Waiting {
    /// A report in which every key is pending.
    pub(crate) fn report(&self) -> SourceReport {
        let pending = |key: &String| Entry::Finding {
            key: key.clone(),
            finding: Finding::Pending { on: self.on.clone() },
        };
        let report = Box::new(Entries(self.keys.iter().map(pending).collect()));
        SourceReport { ledger_key: self.ledger_key.clone(), report, pattern: None }
    }
}
