//! Where the files are opened: on the caller's thread, or on one inside a network namespace.

use std::sync::Arc;

use homeostat_core::{Failure, Retry};
use homeostat_netns::Netns;

/// Whose `/proc/sys/net` is meant: that directory follows the thread which opens it.
#[derive(Clone, Debug, Default)]
pub enum Place {
    /// That of the calling thread.
    #[default]
    Here,
    /// That of another namespace, which is kept alive by this.
    In(Arc<Netns>),
}

impl Place {
    /// Whether both mean the same namespace; one that cannot be compared is another.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Place::Here, Place::Here) => true,
            (Place::In(netns), Place::In(other)) => netns.same_as(other).unwrap_or(false),
            _ => false,
        }
    }

    /// Runs `work` there and waits for it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        match self {
            Place::Here => Ok(work()),
            Place::In(netns) => netns.run(work).map_err(|error| {
                let failure = Failure::from_error(&error, Retry::Soon);
                match error.help() {
                    Some(help) => failure.with_help(help),
                    None => failure,
                }
            }),
        }
    }
}
