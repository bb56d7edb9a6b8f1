//! What a provider may know of the daemon: how its loops stand.

use homeostat_engine::{Event, Events, Kind};
use homeostat_fleet::node::Level;
use homeostat_fleet::records::{Alive, Open};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::loops_snapshot::LoopsSnapshot;
use crate::context::Context;

/// How the loops of the daemon stand, and when that may have changed.
pub(crate) struct DaemonView {
    snapshot: watch::Receiver<LoopsSnapshot>,
    events: Receiver<Event>,
    context: Context,
}

impl Clone for DaemonView {
    fn clone(&self) -> Self {
        let (snapshot, events) = (self.snapshot.clone(), self.events.resubscribe());
        DaemonView { snapshot, events, context: self.context.clone() }
    }
}

impl DaemonView {
    pub(super) fn new(
        snapshot: &watch::Sender<LoopsSnapshot>,
        events: &Events,
        context: &Context,
    ) -> Self {
        let (snapshot, events) = (snapshot.subscribe(), events.subscribe());
        DaemonView { snapshot, events, context: context.clone() }
    }

    /// Where and as whom the daemon works, for plans.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// For a status of a fleet.
    pub(crate) fn level(&self, node: &Alive) -> Level {
        let snapshot = self.snapshot.borrow();
        let count = |kinds: &[Kind]| {
            let counts = snapshot.loops.iter().map(|one| one.status().open);
            let loops: usize =
                counts.map(|open| kinds.iter().map(|kind| open.count(*kind)).sum::<usize>()).sum();
            loops as u64
        };
        let waiting: usize = snapshot.waiting.iter().map(|waiting| waiting.keys.len()).sum();
        let open = Open {
            failed: count(&[Kind::Failed, Kind::Unknown, Kind::Held]),
            pending: count(&[Kind::Pending]) + waiting as u64,
            conflict: count(&[Kind::Conflict]),
        };
        let (agent, boot) = (node.agent.clone(), node.boot.clone());
        Level { converged: snapshot.is_converged(), open, agent, boot }
    }

    pub(super) fn is_converged(&self) -> bool {
        self.snapshot.borrow().is_converged()
    }

    /// Waits until every loop on this machine has made a full pass for its newest desired state.
    pub(super) async fn wait_until_passed(&mut self) {
        loop {
            let snapshot = self.snapshot.borrow_and_update().clone();
            tokio::select! {
                () = snapshot.wait_until_passed() => return,
                changed = self.snapshot.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
            }
        }
    }

    /// Waits until something may have changed. Dropping the future loses nothing that matters: everything is looked at again.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            changed = self.snapshot.changed() => if changed.is_err() { std::future::pending::<()>().await; },
            event = self.events.recv() => if let Err(RecvError::Closed) = event {
                std::future::pending::<()>().await;
            },
        }
    }
}
