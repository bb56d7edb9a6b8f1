//! Why a call of a store failed.

use homeostat_core::{Failure, Retry};

/// Why a call failed. After every error but [`Error::InDoubt`] nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No member could be reached, or none has answered in time.
    #[error("the store cannot be reached: {why}")]
    Unreachable {
        /// The member and what happened.
        why: String,
    },
    /// A write was sent, and its answer was lost: it may have been made, and may still be.
    #[error("the answer of the store was lost: {why}")]
    InDoubt {
        /// The member and what happened.
        why: String,
    },
    /// The members have elected no leader, or cannot reach each other.
    #[error("the store has no leader")]
    NoLeader,
    /// The store takes no writes until space was made in it.
    #[error("the store is full")]
    NoSpace,
    /// The store asks for fewer requests.
    #[error("the store is busy: {why}")]
    Busy {
        /// Its words.
        why: String,
    },
    /// This client may not do that.
    #[error("the store does not allow it: {why}")]
    Denied {
        /// Its words.
        why: String,
    },
    /// The lease that something was put under is gone.
    #[error("the lease {lease} is gone")]
    LeaseGone {
        /// Which one.
        lease: crate::LeaseId,
    },
    /// The request is larger than the store takes, or it makes no sense to it.
    #[error("the store refuses the request: {why}")]
    Refused {
        /// Its words.
        why: String,
    },
}

impl Error {
    /// Whether the write may have been made in spite of the error.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        matches!(self, Error::InDoubt { .. })
    }

    /// When it may go better.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            // Rights, too, can be granted at any time, and nothing here would tell.
            Error::Unreachable { .. }
            | Error::InDoubt { .. }
            | Error::NoLeader
            | Error::NoSpace
            | Error::Busy { .. }
            | Error::Denied { .. }
            | Error::LeaseGone { .. } => Retry::Soon,
            Error::Refused { .. } => Retry::OnChange,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Failure::new(error.to_string(), error.retry());
        match error {
            Error::NoSpace => failure.with_help(
                "compact and defragment the store, then disarm its alarm (`etcdctl alarm disarm`)",
            ),
            Error::Denied { .. } => {
                failure.with_help("grant the role of this client the rights on its keys")
            }
            _ => failure,
        }
    }
}
