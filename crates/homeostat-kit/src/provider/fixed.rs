//! The provider of one wish that never changes.

use std::sync::Arc;

use super::{Answer, Provider};

/// Always answers with the same wish.
#[derive(Debug)]
pub struct Static<W> {
    wish: Arc<W>,
}

impl<W> Static<W> {
    /// Keeps the wish.
    pub fn new(wish: W) -> Self {
        Static { wish: Arc::new(wish) }
    }
}

impl<W: Send + Sync + 'static> Provider for Static<W> {
    type Wish = W;

    async fn answer(&mut self) -> Answer<W> {
        Answer::Wish(self.wish.clone())
    }
}
