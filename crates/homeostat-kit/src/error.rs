//! Why a call came to nothing at all. What became of single objects is in its report.

use homeostat_engine::Retry;

use crate::simple::BindRefused;

/// Why a call came to nothing at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// API, strategy and desired state do not fit together.
    #[error(transparent)]
    Bind(#[from] BindRefused),
    /// The target, the ledger or the lock could not be opened.
    #[error(transparent)]
    Engine(#[from] homeostat_engine::Error),
}

impl Error {
    /// When another try makes sense.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Error::Bind(_) => Retry::Never,
            Error::Engine(error) => error.retry(),
        }
    }
}
