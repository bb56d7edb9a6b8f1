//! What the ledger stores, and who may read or write it.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::error::Error;

/// One source in one scope, as the ledger files it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct LedgerKey {
    /// Whose desired state.
    pub owner: String,
    /// The source's name.
    pub source: String,
    /// The scope's name.
    pub scope: String,
    /// What distinguishes this scope from a former one of the same name (boot id, namespace cookie). What
    /// was recorded under another identity is void.
    pub identity: String,
}

impl LedgerKey {
    /// The place of a source in a scope that has no identity: what is recorded stays valid as long as the name.
    pub fn new(
        owner: impl Into<String>,
        source: impl Into<String>,
        scope: impl Into<String>,
    ) -> Self {
        let (owner, source, scope) = (owner.into(), source.into(), scope.into());
        LedgerKey { owner, source, scope, identity: String::new() }
    }

    /// The same in a scope with this identity.
    #[must_use]
    pub fn with_identity(self, identity: impl Into<String>) -> Self {
        LedgerKey { identity: identity.into(), ..self }
    }
}

/// What the ledger holds for one place, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Keys and records.
    pub records: Vec<(String, String)>,
    /// The last applied desired state, in compact form.
    pub desired: Option<Vec<u8>>,
    /// Keys whose records belong to a former scope of this name.
    pub void: Vec<String>,
}

impl Page {
    /// These records, and the desired state that was applied last; none of a former scope.
    #[must_use]
    pub fn new(records: Vec<(String, String)>, desired: Option<Vec<u8>>) -> Self {
        Page { records, desired, void: Vec::new() }
    }
}

/// One change of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of its fields say it")]
pub enum Edit {
    /// Record this.
    Put { key: String, record: String },
    /// Forget this key.
    Drop { key: String },
    /// The desired state that is applied now.
    DesiredState(Vec<u8>),
}

/// The readable side of a ledger. Who only plans has no other.
pub trait Pages: Send + Sync {
    /// What is recorded for a place.
    fn page(&self, ledger_key: &LedgerKey) -> Result<Page, Error>;

    /// The places in which an owner has records, or applied something: objects that carry a mark in the
    /// target need no record.
    fn places(&self, owner: &str) -> Result<Vec<LedgerKey>, Error>;

    /// Those of them that are in one scope.
    fn places_in(&self, owner: &str, scope: &str) -> Result<Vec<LedgerKey>, Error> {
        let mut places = self.places(owner)?;
        places.retain(|ledger_key| ledger_key.scope == scope);
        Ok(places)
    }

    /// What other owners hold at the same place: owner and key. A ledger of one owner returns
    /// nothing.
    fn others(&self, ledger_key: &LedgerKey) -> Result<Vec<(String, String)>, Error> {
        let _ = ledger_key;
        Ok(Vec::new())
    }
}

/// A ledger that can be written.
pub trait Ledger: Pages {
    /// Makes all edits or none; they are durable when it returns.
    fn write(&self, ledger_key: &LedgerKey, edits: &[Edit]) -> Result<(), Error>;

    /// Whether what is written here will be found again: the file may have been deleted. Asked once a pass.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether a loop calls it on the pool of its runtime for blocking work, so that the disk holds up no other task of
    /// the thread. A loop that has a thread of its own does not need it.
    fn is_offloaded(&self) -> bool {
        false
    }

    /// Forgets a place that is gone, and no later one of the same name.
    fn clear(&self, ledger_key: &LedgerKey) -> Result<(), Error> {
        let records = self.page(ledger_key)?.records;
        let edits: Vec<_> = records.into_iter().map(|(key, _)| Edit::Drop { key }).collect();
        self.write(ledger_key, &edits)
    }
}

/// What a ledger holds for a place, read where the ledger [wants its work to be done](Ledger::is_offloaded).
pub async fn read_page(ledger: &Arc<dyn Ledger>, ledger_key: &LedgerKey) -> Result<Page, Error> {
    let ledger_key = ledger_key.clone();
    work(ledger, move |ledger| ledger.page(&ledger_key)).await
}

/// Works with a ledger: on the runtime's pool for blocking work, if the ledger wants that and there is a runtime. Work
/// that has begun goes on if the future is dropped.
pub(crate) async fn work<T: Send + 'static>(
    ledger: &Arc<dyn Ledger>,
    work: impl FnOnce(&dyn Ledger) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match Handle::try_current() {
        Ok(runtime) if ledger.is_offloaded() => {
            let ledger = Arc::clone(ledger);
            let done = runtime.spawn_blocking(move || work(&*ledger)).await;
            done.map_err(|error| Error::ReadLedger(Box::new(error)))?
        }
        _ => work(&**ledger),
    }
}
