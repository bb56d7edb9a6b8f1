//! The gates of all scopes: what is forwarded in a scope waits until its firewall has converged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_engine::LedgerKey;
use homeostat_registry::{Gate, Start};

use crate::registry::{SOURCES, find};

/// The gates by the identity of their scope, each the same for as long as its namespace exists: loops that go on keep
/// theirs. One in which no firewall is kept stays open.
#[derive(Clone, Default)]
pub(crate) struct Gates(Arc<Mutex<BTreeMap<String, Gate>>>);

impl Gates {
    fn gates(&self) -> MutexGuard<'_, BTreeMap<String, Gate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate of the scope with this identity.
    pub(crate) fn of(&self, identity: &str) -> Gate {
        let new = || {
            let firewall = SOURCES.iter().find(|source| source.start == Start::Firewall);
            Gate::waiting_on(&format!("{}'s first pass", firewall.map_or("", |one| one.name())))
        };
        self.gates().entry(identity.to_owned()).or_insert_with(new).clone()
    }

    /// The gate that a loop opens and closes; nothing if it is no firewall.
    pub(crate) fn kept_by(&self, loop_key: &LedgerKey) -> Option<Gate> {
        let source = find(&loop_key.source).filter(|source| source.start == Start::Firewall);
        source.map(|_| self.of(&loop_key.identity))
    }

    /// Forgets those of other scopes.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.gates().retain(|identity, _| exists(identity));
    }
}
