//! How the loops stand, for whoever looks at the daemon from beside it.

use std::sync::Arc;

use homeostat_engine::Control;
use tokio::sync::watch;

/// The loops that run, and whether they were ever brought in line with the document.
pub(super) type Loops = Option<Vec<Arc<dyn Control>>>;

/// The loops as they are at any moment.
#[derive(Clone)]
pub(super) struct View(watch::Receiver<Loops>);

impl View {
    /// Nothing runs until something is sent.
    pub(super) fn new() -> (watch::Sender<Loops>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, View(receiver))
    }

    pub(super) fn loops(&self) -> Vec<Arc<dyn Control>> {
        self.0.borrow().clone().unwrap_or_default()
    }

    /// Whether every loop has made its first full pass.
    pub(super) fn is_ready(&self) -> bool {
        let loops = self.0.borrow().clone();
        loops.is_some_and(|loops| loops.iter().all(|one| one.status().is_ready))
    }

    /// Whether no loop is stuck. Idle is healthy.
    pub(super) fn is_healthy(&self) -> bool {
        self.loops().iter().all(|one| one.status().stall.is_none())
    }

    /// Waits until loops come or go.
    pub(super) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
