//! Hints from an API.

use homeostat_engine::outcome::Later;
use homeostat_engine::{Failure, Hint};

/// A standing subscription.
pub trait Watch<K>: Send {
    /// The next hint. Dropping the future loses nothing; an error ends the subscription.
    fn next(&mut self) -> Later<'_, Result<Hint<K>, Failure>>;
}

/// A subscription to nothing: no hint ever comes.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl<K: 'static> Watch<K> for Silent {
    fn next(&mut self) -> Later<'_, Result<Hint<K>, Failure>> {
        Box::pin(std::future::pending())
    }
}
