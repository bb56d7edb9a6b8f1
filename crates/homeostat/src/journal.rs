//! The journal of writes that must not be sent twice: where an owner's is, and its clock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use homeostat_document::DEFAULT_OWNER;
use homeostat_engine::journal::{Clock, Millis};

use crate::daemon::clock::Stamp;

/// Where the journal of an owner is. Owners may share a state directory, but not a journal.
pub(crate) fn directory(state_dir: &Path, owner: &str) -> PathBuf {
    match owner {
        DEFAULT_OWNER => state_dir.to_owned(),
        owner => state_dir.join(format!("{owner}.journal")),
    }
}

/// The time of day.
pub(crate) fn clock() -> Clock {
    Arc::new(|| Millis(Stamp::now().as_millis()))
}
