//! A process over a server: a journal, operations, and a loop that can be ended at any moment.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat_engine::journal::{JournalError, Millis, follow};
use homeostat_engine::{
    Alone, Bound, DispatchGuard, Handle, Journal, Ledger, LedgerKey, Limits, Loop, LoopDeps,
    MemoryLedger, Operations, Ownership, Pace,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::server::{Guests, Id, Server, all_running};

/// Where a wait for the disk is none.
const FAST: &str = "/dev/shm";

pub(crate) fn state_directory() -> TempDir {
    TempDir::new_in(FAST).unwrap()
}

/// One life of the process; dropped, it is as if it had been killed.
pub(crate) struct Process {
    pub(crate) operations: Operations<Id>,
    pub(crate) handle: Handle<Guests>,
    pub(crate) ledger: Arc<MemoryLedger>,
    running: JoinHandle<()>,
}

impl Process {
    pub(crate) async fn start(server: &Server, state: &Path, limits: Limits) -> Self {
        Self::start_at(Pace::of::<Guests>(1), (server, state, limits)).await
    }

    pub(crate) async fn start_at(
        pace: Pace,
        (server, state, limits): (&Server, &Path, Limits),
    ) -> Self {
        let operations = operations(state, limits).await;
        let guests: Vec<u32> = (100..).take(server.running().len()).collect();
        let mut bound = bound(server, &guests);
        bound.config.dispatch = DispatchGuard::Operations(operations.clone());
        let lock = Arc::new(Alone::i_am_the_only_writer());
        let ledger = Arc::new(MemoryLedger::default());
        let kept: Arc<dyn Ledger> = Arc::<MemoryLedger>::clone(&ledger);
        let deps = LoopDeps::new(lock, kept);
        let (kept, handle) = Loop::new(bound, deps, pace);
        Process { operations, handle, ledger, running: tokio::spawn(kept.run()) }
    }

    /// Puts the same desired state again, as a reload does.
    pub(crate) fn put_again(&self, server: &Server) {
        let guests: Vec<u32> = (100..).take(server.running().len()).collect();
        self.put(server, &guests);
    }

    /// Puts a desired state with these guests.
    pub(crate) fn put(&self, server: &Server, guests: &[u32]) {
        let mut bound = bound(server, guests);
        bound.config.dispatch = DispatchGuard::Operations(self.operations.clone());
        self.handle.put(bound).unwrap();
    }

    /// Waits until all is as declared.
    pub(crate) async fn converge(&self) {
        self.handle.wait_for(|status| status.is_converged).await.unwrap();
    }

    /// Nothing of it goes on: no loop, no follower of a task, no journal.
    pub(crate) async fn kill(self) {
        let Process { operations, handle, running, .. } = self;
        running.abort();
        let _ = running.await;
        drop((operations, handle));
    }
}

/// A task that had just ended writes that down before it lets go of the journal.
pub(crate) async fn operations(state: &Path, limits: Limits) -> Operations<Id> {
    for _ in 0..100_000 {
        match Journal::open(state, Arc::new(|| Millis(1000))) {
            Err(JournalError::Busy { .. }) => tokio::task::yield_now().await,
            opened => {
                let journal = Arc::new(opened.unwrap());
                return Operations::new(journal, "guests", "pve", limits);
            }
        }
    }
    panic!("somebody holds the journal");
}

pub(crate) fn bound(server: &Server, guests: &[u32]) -> Bound<Guests> {
    let desired = all_running(guests.iter().copied());
    let place = LedgerKey::new("default", "guests", "pve").with_identity("pve");
    Bound::new(Guests(server.clone()), desired, Ownership::Marked, place)
}

pub(crate) const WIDE: Limits = Limits { total: 100, per_node: 100 };

pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// How often a step was begun, by the journal.
pub(crate) fn begun(state: &Path) -> usize {
    let records = follow(state).more().unwrap();
    let is_intent = |record: &&homeostat_engine::journal::Record| {
        matches!(record.fact, homeostat_engine::journal::Fact::Intent(_))
    };
    records.iter().filter(is_intent).count()
}

/// Lets virtual time pass, with everything that happens in it.
pub(crate) async fn let_pass(time: Duration) {
    let never = tokio::time::timeout(time, std::future::pending::<()>()).await;
    assert!(never.is_err());
}
