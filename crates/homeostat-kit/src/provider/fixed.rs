//! The provider of one desired state that never changes.

use std::sync::Arc;

use super::{Answer, Provider};

/// Always answers with the same desired state.
#[derive(Debug)]
pub struct Static<W> {
    desired: Arc<W>,
}

impl<W> Static<W> {
    /// Keeps the desired state.
    pub fn new(desired: W) -> Self {
        Static { desired: Arc::new(desired) }
    }
}

impl<W: Send + Sync + 'static> Provider for Static<W> {
    type DesiredState = W;

    async fn answer(&mut self) -> Answer<W> {
        Answer::DesiredState(self.desired.clone())
    }
}
