//! Puts an API, its owner's strategy and a desired state together, and refuses what would leak.

use std::sync::Arc;

use homeostat_engine::{Bound, Config, Desired as _, LedgerKey, Slot};

use super::adapted::{Adapted, Witness};
use super::listing::Listing;
use super::{Api, DesiredObjects};
use crate::strategy::Strategy;

/// Why an API, a strategy and a desired state do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindRefused {
    /// Once made, it would not be known as ours again.
    #[error("`{key}` does not begin with the owner's prefix: once made, it would be nobody's")]
    OutsidePrefix {
        /// The declared key.
        key: String,
    },
    /// What is no longer declared could not be found.
    #[error(
        "`{name}` cannot be listed, so only the ledger can tell what is ours: choose the checkpoint, \
         or have the ledger witness the marks"
    )]
    CannotList {
        /// The source.
        name: &'static str,
    },
}

/// One owner at one place of an API: `owner` in `scope`.
#[must_use]
pub fn place<A: Api>(owner: &str, scope: &str) -> LedgerKey {
    let [owner, source, scope] = [owner, A::NAME, scope].map(str::to_owned);
    LedgerKey { owner, source, scope, identity: String::new() }
}

impl<A: Api> Adapted<A> {
    /// Binds a request to this source for an owner.
    pub fn bind(
        &self,
        strategy: &Strategy,
        desired: DesiredObjects<A>,
        place: LedgerKey,
    ) -> Result<Bound<Self>, BindRefused> {
        let mut keys = (0..desired.len()).map(|index| desired.key(Slot::at(index)));
        if let Some(key) = keys.find(|key| !strategy.admits(key)) {
            return Err(BindRefused::OutsidePrefix { key: key.to_string() });
        }
        let is_recorded =
            matches!(strategy, Strategy::Checkpoint) || self.witness() == Witness::Ledger;
        if A::LISTING == Listing::KnownNames && !is_recorded {
            return Err(BindRefused::CannotList { name: A::NAME });
        }
        Ok(Bound {
            source: self.clone(),
            desired: Arc::new(desired),
            ownership: strategy.ownership(),
            config: Config::default(),
            place,
            nothing: Some(Arc::new(DesiredObjects::default())),
        })
    }
}
