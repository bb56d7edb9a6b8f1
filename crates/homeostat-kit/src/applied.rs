//! What was applied, as a value that a caller keeps where it likes.

use std::collections::BTreeMap;

use homeostat_engine::{Edit, Ledger as _, LedgerKey, MemoryLedger, Pages};
use serde::{Deserialize, Serialize};

use crate::Error;

/// What was applied, as a value: which objects are ours where the target cannot say so, and which desired state was
/// applied last. Who keeps it needs no state directory; who loses it leaves objects behind that nobody owns, unless
/// they carry a mark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    identity: String,
    records: BTreeMap<String, String>,
    last: Option<Vec<u8>>,
}

impl Applied {
    /// What a ledger holds for a place.
    pub fn of(pages: &dyn Pages, place: &LedgerKey) -> Result<Self, Error> {
        let page = pages.page(place)?;
        let (identity, records) = (place.identity.clone(), page.records.into_iter().collect());
        Ok(Applied { identity, records, last: page.desired })
    }

    /// A ledger that holds this for a place. What was applied to a former target of that name is void there.
    pub fn to_ledger(&self, place: &LedgerKey) -> Result<MemoryLedger, Error> {
        let Applied { identity, records, last } = self.clone();
        let ledger = MemoryLedger::default();
        let records = records.into_iter().map(|(key, record)| Edit::Put { key, record });
        let edits: Vec<_> = records.chain(last.map(Edit::DesiredState)).collect();
        ledger.write(&LedgerKey { identity, ..place.clone() }, &edits)?;
        Ok(ledger)
    }
}
