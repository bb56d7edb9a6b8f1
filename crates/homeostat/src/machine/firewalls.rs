//! Whether the firewall of each scope stands: what is forwarded there waits for it.

use homeostat_engine::{Control, LedgerKey};

use crate::registry::{Gate, Start, known};
use crate::scope::Scope;

/// The gates of scopes, by name. One in which no firewall is kept stays open.
pub(super) struct Firewalls(Vec<(String, Gate)>);

impl Firewalls {
    pub(super) fn of<'a>(scopes: impl Iterator<Item = &'a Scope>) -> Self {
        Firewalls(scopes.map(|scope| (scope.name.clone(), scope.gate.clone())).collect())
    }

    /// Until its pass has ended well, nobody knows whether a firewall stands.
    pub(super) fn before(&self, place: &LedgerKey) {
        if let Some(gate) = self.at(place) {
            gate.close();
        }
    }

    /// What a pass of the firewall leaves open must not be forwarded through.
    pub(super) fn after(&self, control: &dyn Control) {
        if let Some(gate) = self.at(control.place()).filter(|_| control.status().is_converged) {
            gate.open();
        }
    }

    fn at(&self, place: &LedgerKey) -> Option<&Gate> {
        let found = self.0.iter().find(|(name, _)| *name == place.scope);
        found.filter(|_| known(&place.source).start == Start::Firewall).map(|(_, gate)| gate)
    }
}
