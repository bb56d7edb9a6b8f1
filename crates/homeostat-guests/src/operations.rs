//! Writes to guests that must not be sent twice: the lanes of the guests, which loops and commands share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homeostat_core::{Limits, ScopeLock, Source as _};
use homeostat_engine::journal::JournalError;
use homeostat_engine::{DispatchGuard, Operations};
use homeostat_registry::{Binding, Error, OwnerJournal, Turn, Turns};

use crate::idempotent::GuestCommands;
use crate::model::Vmid;
use crate::source::Guests;

/// The lanes of one process; clones share them.
#[derive(Clone, Default)]
pub(crate) struct GuestOperations(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The lanes of each cluster that was named, by what the journal files its steps under. A cluster that
    /// is left may still be at work, and what is in flight there is followed to its end.
    clusters: BTreeMap<String, Operations<Vmid>>,
    /// The cluster that the document names.
    current: Option<Cluster>,
}

struct Cluster {
    source: Guests,
    journal: OwnerJournal,
    /// Its lanes; an error while another process writes the journal, or another machine acts.
    operations: Result<Operations<Vmid>, JournalError>,
    turns: Turns,
}

impl GuestOperations {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps writes to guests from being sent twice; without a journal nothing can be sent. A process that
    /// finds the journal in use by another one will not get the scope's lock either, and fails at that.
    pub(crate) fn enter_cluster(
        &self,
        source: &Guests,
        binding: &Binding<'_>,
        limits: Limits,
    ) -> Result<DispatchGuard<Vmid>, Error> {
        let mut state = self.state();
        state.current = None;
        let Some(journal) = &binding.caller.journal else { return Ok(DispatchGuard::Absent) };
        // A number means another guest in another cluster: what was begun in one is never asked of the other,
        // whichever the document names by then.
        let (filed, turn) = match binding.turn() {
            // Machines that take turns may reach the same cluster by different addresses.
            Turn::Leader(leader) => (format!("{} of all", leader.shared), Ok(Some(leader))),
            Turn::Standby(standby) => {
                (format!("{} of all", standby.shared), Err(standby.refusal()))
            }
            Turn::Alone => (format!("{} at {}", binding.scope.name, source.endpoint()), Ok(None)),
        };
        let known = state.clusters.get(&filed).cloned();
        let operations = match (turn, known) {
            (Err(refusal), _) => {
                // What was in flight is followed by the machine that leads.
                state.clusters.remove(&filed);
                Err(refusal)
            }
            (Ok(Some(leader)), Some(known)) if known.is_over(&leader.journal) => Ok(known),
            (Ok(Some(leader)), _) => {
                let operations = Operations::new(leader.journal, Guests::NAME, &filed, limits);
                if let Some(time) = leader.clear_at {
                    operations.clear_at(time);
                }
                Ok(operations)
            }
            (Ok(None), Some(known)) => Ok(known),
            (Ok(None), None) => {
                journal.open().map(|open| Operations::new(open, Guests::NAME, &filed, limits))
            }
        };
        if let Ok(operations) = &operations {
            operations.limit(limits);
        }
        let guard = match &operations {
            Ok(operations) => {
                state.clusters.insert(filed, operations.clone());
                DispatchGuard::Operations(operations.clone())
            }
            Err(JournalError::Busy { .. } | JournalError::NotHeld { .. }) => DispatchGuard::Absent,
            Err(error) => return Err(error.clone().into()),
        };
        let (source, journal) = (source.clone(), journal.clone());
        let turns = binding.caller.turns.clone();
        state.current = Some(Cluster { source, journal, operations, turns });
        Ok(guard)
    }

    /// The document names no cluster any more.
    pub(crate) fn leave_cluster(&self) {
        self.state().current = None;
    }

    /// What commands need, once a document with a cluster is bound.
    pub(crate) fn commands(&self, lock: &ScopeLock) -> Result<GuestCommands, Error> {
        let state = self.state();
        let Some(Cluster { source, journal, operations, turns }) = &state.current else {
            let help = "add `[proxmox]` to the document";
            return Err(Error::helped("the document names no cluster", help));
        };
        if let Turn::Standby(standby) = turns.of(Guests::NAME) {
            // Who leads may have changed since the document was bound.
            return Err(standby.refusal().into());
        }
        let operations = operations.clone()?;
        Ok(GuestCommands { writer: source.writer(lock)?, operations, journal: journal.clone() })
    }
}
