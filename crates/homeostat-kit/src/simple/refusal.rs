//! What an API answers when a write is not simply done.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

use homeostat_engine::{Failure, Outcome, Owner, Retry, WaitsOn};

/// What an author answers when a write is not simply done.
///
/// | the API says | answer | the loop then |
/// |---|---|---|
/// | done | `Ok` with what it holds, if it says so | looks again if it did not say so |
/// | accepted, it takes a while | [`Refusal::Recheck`] | leaves the key alone until then, then looks |
/// | accepted, as task 17 | [`Refusal::Task`] | asks for the task, sends nothing meanwhile |
/// | not now (busy, locked, too many calls) | [`Refusal::NotNow`] | tries again then, later each time; no failure |
/// | not before another object is there | [`Refusal::WaitsOn`] | tries again when that one is written or changes |
/// | another writer changed it meanwhile | [`Refusal::Moved`] | looks and tries again at once |
/// | it is another owner's | [`Refusal::Conflict`] | reports it, tries at each [resync](crate::Reconciler::resync) |
/// | it broke | [`Refusal::Failed`], `Retry::Soon` | tries again after growing pauses |
/// | never like this | [`Refusal::Failed`], `Retry::Never` | waits for another desired state |
/// | nothing: the answer was lost | [`Refusal::Unknown`] | looks before anything else |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A precondition did not hold: the object is another owner's. Nothing was written.
    Conflict(Owner),
    /// The object is not there. Nothing was written.
    Gone,
    /// The object is not the one that was seen: its version is another. Nothing was written.
    Moved,
    /// Accepted; there is nothing to see before this time has passed.
    Recheck {
        /// How long.
        after: Duration,
    },
    /// Accepted, as a task that can be asked for by [`Api::task`](super::Api::task).
    Task {
        /// The target's name for it.
        id: String,
    },
    /// Refused for now: the target is busy, the object is locked, or there were too many calls.
    /// Nothing was written, and it is no failure.
    NotNow {
        /// When to come back, at the earliest: a target that puts it off again and again is asked less and less
        /// often.
        after: Duration,
        /// What it waits on.
        on: String,
    },
    /// Refused until there is an object under this key, given as text. Where that is known before the call,
    /// [`Api::needs`](super::Api::needs) says it better. Nothing was written, and it is no failure.
    WaitsOn(String),
    /// The answer was lost: whether it was written is not known before the next look.
    Unknown(String),
    /// Refused. Nothing was written.
    Failed(Failure),
}

impl Refusal {
    /// The object is another owner's; nothing was written.
    #[must_use]
    pub fn foreign(owner: &str) -> Self {
        Refusal::Conflict(Owner::Foreign(owner.to_owned().into()))
    }

    /// The target says by this error that it is busy; nothing was written.
    pub fn not_now(error: impl Error, after: Duration) -> Self {
        Refusal::NotNow { after, on: Failure::soon(error).error }
    }

    /// The connection broke with this error, and with it the answer was lost.
    pub fn unknown(error: impl Error) -> Self {
        Refusal::Unknown(Failure::soon(error).error)
    }

    /// What the refusal means for a step that was to leave an object behind.
    pub(super) fn outcome<O>(self) -> Outcome<O> {
        match self {
            Refusal::Conflict(owner) => Outcome::Conflict { owner },
            Refusal::Gone => {
                Outcome::Failed(Failure::new("it vanished before the write", Retry::Soon))
            }
            Refusal::Moved => {
                Outcome::Failed(Failure::new("it was changed before the write", Retry::Now))
            }
            Refusal::Recheck { after } => Outcome::Waiting { task: format!("done in {after:?}") },
            Refusal::Task { id } => Outcome::Waiting { task: id },
            Refusal::NotNow { on, .. } => Outcome::Pending { on: WaitsOn::Later(on) },
            Refusal::WaitsOn(key) => Outcome::Pending { on: WaitsOn::Key(key) },
            Refusal::Unknown(why) => Outcome::Unknown { why },
            Refusal::Failed(failure) => Outcome::Failed(failure),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Conflict(owner) => write!(f, "it belongs to {owner}"),
            Refusal::Gone => f.write_str("it is not there"),
            Refusal::Moved => f.write_str("it was changed meanwhile"),
            Refusal::Recheck { after } => write!(f, "accepted, to be seen in {after:?}"),
            Refusal::Task { id } => write!(f, "accepted as task {id}"),
            Refusal::NotNow { on, .. } => write!(f, "not now: {on}"),
            Refusal::WaitsOn(key) => write!(f, "not before `{key}` is there"),
            Refusal::Unknown(why) => f.write_str(why),
            Refusal::Failed(failure) => failure.fmt(f),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::Failed(failure)
    }
}

/// For errors of a connection. One that broke says nothing about the request that was on it; one that never stood does.
///
/// | kind | becomes |
/// |---|---|
/// | `BrokenPipe`, `ConnectionAborted`, `ConnectionReset`, `TimedOut`, `UnexpectedEof` | `Unknown` |
/// | `InvalidInput`, `PermissionDenied`, `Unsupported` | `Failed`, and not tried again |
/// | all others, `NotFound` and `AlreadyExists` among them | `Failed`, and tried again soon |
///
/// An API of files answers `Gone`, `Moved` or `Conflict` for the last two by itself: only it knows what they mean.
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
    fn a_forbidden_write_waits_for_another_desired_state() {
        let refused = Refusal::from(io::Error::from(ErrorKind::PermissionDenied));
        assert!(matches!(refused, Refusal::Failed(Failure { retry: Retry::Never, .. })));
    }
}
