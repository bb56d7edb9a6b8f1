//! Why a source cannot be bound, shown or commanded.

use homeostat_document::Diagnostics;
use homeostat_engine::journal::JournalError;
use homeostat_engine::{Failure, Retry};

/// Why a source cannot be bound, shown or commanded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The document has mistakes that only the source can see.
    #[error("the document has mistakes")]
    Document(#[from] Diagnostics),
    /// Another process writes the journal. It ends by itself.
    #[error(transparent)]
    Busy(JournalError),
    /// Anything else, with its causes and the way out.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Error {
    /// An error without a way out.
    pub fn failed(error: &(dyn std::error::Error + 'static)) -> Self {
        Error::Failed(Failure::from_error(error, Retry::OnChange))
    }

    /// An error in plain words, and what to do.
    pub fn helped(error: impl Into<String>, help: impl Into<String>) -> Self {
        Error::Failed(Failure::new(error, Retry::OnChange).with_help(help))
    }
}

impl From<homeostat_engine::Error> for Error {
    fn from(error: homeostat_engine::Error) -> Self {
        Error::Failed(error.failure())
    }
}

impl From<homeostat_netns::Error> for Error {
    fn from(error: homeostat_netns::Error) -> Self {
        let failure = Failure::from_error(&error, Retry::Soon);
        Error::Failed(failure.with_known_help(error.help()))
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Busy { .. } => Error::Busy(error),
            error => {
                // Its text has the text of its source.
                let failure = Failure::new(error.to_string(), Retry::Soon);
                Error::Failed(failure.with_known_help(error.help()))
            }
        }
    }
}
