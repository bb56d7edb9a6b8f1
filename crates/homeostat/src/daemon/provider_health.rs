//! Whether the document can be taken from its provider, for status, events and metrics.

use std::sync::Arc;

use homeostat_engine::{Failure, Retry};
use tokio::time::Instant;

use super::clock::Stamp;
use crate::failure;
use crate::wire::{ProviderStatus, millis};

/// How many lines of a diagnosis are kept; a document may have any number of mistakes.
const LINES: usize = 30;

/// The last good document of the provider, and what has been wrong since.
#[derive(Clone, Debug)]
pub(super) struct ProviderHealth {
    /// The provider's arguments, as the command line has them.
    pub(super) from: Arc<str>,
    good_at: Instant,
    /// The same moment on the wall clock.
    pub(super) good_stamp: Stamp,
    pub(super) failure: Option<Arc<Failure>>,
}

impl ProviderHealth {
    /// A provider that has just given a good document.
    pub(super) fn new(from: &str) -> Self {
        ProviderHealth {
            from: from.into(),
            good_at: Instant::now(),
            good_stamp: Stamp::now(),
            failure: None,
        }
    }

    /// A provider whose last good document was confirmed at this time.
    pub(super) fn good_until(from: &str, confirmed_at: Stamp) -> Self {
        let age = confirmed_at.age();
        let good_at = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        ProviderHealth { good_at, good_stamp: confirmed_at, ..Self::new(from) }
    }

    /// The provider has given a good document again, be it the same.
    pub(super) fn succeed(&mut self) {
        *self = Self::new(&self.from);
    }

    /// No document came from the provider, or it was refused.
    pub(super) fn fail(&mut self, error: &anyhow::Error) -> &Failure {
        let text = failure::text(error);
        let mut lines = text.trim_end().lines();
        let mut error_lines: Vec<&str> = lines.by_ref().take(LINES).collect();
        if lines.next().is_some() {
            error_lines.push("... `homeostat check` shows all of it");
        }
        let failure = Failure::new(error_lines.join("\n"), Retry::OnChange);
        self.failure.insert(Arc::new(failure.with_known_help(failure::help(error))))
    }

    pub(super) fn status(&self) -> ProviderStatus {
        ProviderStatus {
            from: self.from.to_string(),
            ok: self.failure.is_none(),
            last_good_ago_ms: millis(self.good_at.elapsed()),
            last_error: self.failure.as_deref().cloned(),
        }
    }
}
