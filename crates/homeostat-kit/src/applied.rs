//! What was applied, as a value that a caller keeps where it likes.

use std::collections::BTreeMap;
use std::sync::Arc;

use homeostat_engine::ledger::read_page;
use homeostat_engine::{Edit, Ledger, LedgerKey, MemoryLedger, Page, Pages};
use serde::{Deserialize, Serialize};

use crate::Error;

/// What was applied, as a value: which objects are ours where the target cannot say so, and which desired state was
/// applied last. A program that keeps it needs no state directory. If it is lost, objects without a mark stay behind
/// without an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    identity: String,
    records: BTreeMap<String, String>,
    last: Option<Vec<u8>>,
}

impl Applied {
    /// What a ledger holds for a place.
    pub fn of(pages: &dyn Pages, place: &LedgerKey) -> Result<Self, Error> {
        Ok(Self::of_page(pages.page(place)?, place))
    }

    /// The same, read where the ledger wants its work to be done.
    pub(crate) async fn load(ledger: &Arc<dyn Ledger>, place: &LedgerKey) -> Result<Self, Error> {
        Ok(Self::of_page(read_page(ledger, place).await?, place))
    }

    fn of_page(page: Page, place: &LedgerKey) -> Self {
        let (identity, records) = (place.identity.clone(), page.records.into_iter().collect());
        Applied { identity, records, last: page.desired }
    }

    /// A ledger that holds this for a place. What was applied to a former target of that name is void there.
    pub fn to_ledger(&self, place: &LedgerKey) -> Result<MemoryLedger, Error> {
        let Applied { identity, records, last } = self.clone();
        let ledger = MemoryLedger::default();
        let records = records.into_iter().map(|(key, record)| Edit::Put { key, record });
        let edits: Vec<_> = records.chain(last.map(Edit::DesiredState)).collect();
        ledger.write(&place.clone().with_identity(identity), &edits)?;
        Ok(ledger)
    }
}
