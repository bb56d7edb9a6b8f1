//! Work that an API does in its own time.

use homeostat_engine::Failure;

/// How a task stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It goes on.
    Running,
    /// It is over; whether it did what it should is seen by looking.
    Over,
    /// It failed.
    Failed(Failure),
    /// The target knows no such task: whether it ran is seen by looking.
    Lost,
}
