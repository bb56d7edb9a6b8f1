//! Whether the firewall of each scope stands: what is forwarded there waits for it.

use homeostat_engine::{Explain, Place};
use homeostat_knobs::Gate;

use crate::scope::Scope;
use crate::sources::nft;

/// The gates of scopes, by name. One in which no firewall is kept stays open.
pub(super) struct Firewalls(Vec<(String, Gate)>);

impl Firewalls {
    pub(super) fn of<'a>(scopes: impl Iterator<Item = &'a Scope>) -> Self {
        Firewalls(scopes.map(|scope| (scope.name.clone(), scope.gate.clone())).collect())
    }

    /// Until its pass has ended well, nobody knows whether a firewall stands.
    pub(super) fn before(&self, place: &Place) {
        if let Some(gate) = self.at(place) {
            gate.close();
        }
    }

    /// What a pass of the firewall leaves open must not be forwarded through.
    pub(super) fn after(&self, place: &Place, what: &dyn Explain) {
        if let Some(gate) = self.at(place).filter(|_| what.is_converged()) {
            gate.open();
        }
    }

    fn at(&self, place: &Place) -> Option<&Gate> {
        let found = self.0.iter().find(|(name, _)| *name == place.scope);
        found.filter(|_| place.source == nft::REGISTERED.name).map(|(_, gate)| gate)
    }
}
