//! The firewall of one scope, watched until it stands as the present document has it: what is to be
//! forwarded there waits for it.

use std::sync::Arc;

use homeostat_engine::Control;
use homeostat_registry::Gate;
use tokio::task::JoinSet;

/// The task that watches it, as long as it does not stand. It ends with this value.
#[derive(Default)]
pub(super) struct Firewall {
    watching: JoinSet<()>,
}

impl Firewall {
    /// Opens the gate once all of the newest desired state is there; from then on it stays open.
    pub(super) async fn follow(&mut self, control: Arc<dyn Control>, gate: &Gate) {
        self.watching = JoinSet::new();
        gate.close();
        if !control.status().is_paused {
            // Whether it worked is in its report.
            let _ = control.pass().await;
        }
        if control.status().is_converged {
            return gate.open();
        }
        let gate = gate.clone();
        self.watching.spawn(async move {
            // A firewall whose loop ends never stands.
            if control.wait_for(Box::new(|status| status.is_converged)).await.is_ok() {
                gate.open();
            }
        });
    }

    /// There is none any more: nothing waits for it.
    pub(super) fn leave(&mut self, gate: &Gate) {
        self.watching = JoinSet::new();
        gate.open();
    }
}
