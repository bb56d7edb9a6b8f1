//! Why an API did not write.

use std::io::{self, ErrorKind};

use homeostat_engine::{Failure, Outcome, Owner, Retry};

/// What an author answers when a write did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A precondition did not hold: the object is somebody else's. Nothing was written.
    Conflict(Owner),
    /// The object is not there. Nothing was written.
    Gone,
    /// The answer was lost: written or not, nobody knows before the next look.
    Unknown(String),
    /// Refused. Nothing was written.
    Failed(Failure),
}

impl Refusal {
    /// What the refusal means for a step that was to leave an object behind.
    pub(super) fn outcome<O>(self) -> Outcome<O> {
        match self {
            Refusal::Conflict(owner) => Outcome::Conflict { owner },
            Refusal::Gone => {
                Outcome::Failed(Failure::new("it vanished before the write", Retry::Soon))
            }
            Refusal::Unknown(why) => Outcome::Unknown { why },
            Refusal::Failed(failure) => Outcome::Failed(failure),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failed(failure)
    }
}

/// A connection that broke says nothing about the request that was on it; one that never stood does.
impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::TimedOut
            | ErrorKind::UnexpectedEof => Refusal::Unknown(error.to_string()),
            ErrorKind::InvalidInput | ErrorKind::PermissionDenied | ErrorKind::Unsupported => {
                Refusal::Failed(Failure::from_error(&error, Retry::Never))
            }
            _ => Refusal::Failed(Failure::from_error(&error, Retry::Soon)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_answer_is_unknown_and_a_refused_connection_is_a_failure() {
        let unknown = [ErrorKind::ConnectionReset, ErrorKind::TimedOut, ErrorKind::UnexpectedEof];
        for kind in unknown {
            assert!(matches!(Refusal::from(io::Error::from(kind)), Refusal::Unknown(_)), "{kind}");
        }
        let refused = Refusal::from(io::Error::from(ErrorKind::ConnectionRefused));
        assert!(matches!(refused, Refusal::Failed(Failure { retry: Retry::Soon, .. })));
    }

    #[test]
    fn a_forbidden_write_waits_for_another_wish() {
        let refused = Refusal::from(io::Error::from(ErrorKind::PermissionDenied));
        assert!(matches!(refused, Refusal::Failed(Failure { retry: Retry::Never, .. })));
    }
}
