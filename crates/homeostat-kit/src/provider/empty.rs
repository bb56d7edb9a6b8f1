//! The provider for a place where nothing is to be done.

use std::marker::PhantomData;

use super::{Answer, Provider};

/// Performs nothing, and says so: its answer is [`Answer::Nothing`], which no pass is run for.
///
/// It is not the empty desired state; that would delete everything that is ours.
#[derive(Debug)]
pub struct Empty<W>(PhantomData<fn() -> W>);

impl<W> Default for Empty<W> {
    fn default() -> Self {
        Empty(PhantomData)
    }
}

impl<W: Send + Sync + 'static> Provider for Empty<W> {
    type DesiredState = W;

    async fn answer(&mut self) -> Answer<W> {
        Answer::Nothing
    }
}
