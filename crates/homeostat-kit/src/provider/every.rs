//! The provider that is asked again after some time.

use std::time::Duration;

use super::{Answer, Provider};

/// Asks another provider again after each period: for places that cannot tell when they change.
#[derive(Debug)]
pub struct Every<P> {
    period: Duration,
    provider: P,
}

impl<P> Every<P> {
    /// Asks `provider` once a period.
    pub fn new(period: Duration, provider: P) -> Self {
        Every { period, provider }
    }
}

impl<P: Provider> Provider for Every<P> {
    type DesiredState = P::DesiredState;

    async fn answer(&mut self) -> Answer<P::DesiredState> {
        self.provider.answer().await
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = tokio::time::sleep(self.period) => {}
            () = self.provider.changed() => {}
        }
    }
}
