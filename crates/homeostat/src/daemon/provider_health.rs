//! Whether the document can be taken from its provider, for status, events and metrics.

use std::sync::Arc;

use tokio::time::Instant;

use super::clock::Stamp;
use crate::failure;
use crate::wire::{ProviderStatus, Trouble};

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
    trouble: Option<Arc<Trouble>>,
}

impl ProviderHealth {
    /// A provider that has just given a good document.
    pub(super) fn new(from: &str) -> Self {
        ProviderHealth {
            from: from.into(),
            good_at: Instant::now(),
            good_stamp: Stamp::now(),
            trouble: None,
        }
    }

    /// The provider has given a good document again, be it the same.
    pub(super) fn succeed(&mut self) {
        *self = Self::new(&self.from);
    }

    /// No document came from the provider, or it was refused.
    pub(super) fn fail(&mut self, error: &anyhow::Error) -> &Trouble {
        let text = failure::text(error);
        let mut lines = text.trim_end().lines();
        let mut error_lines: Vec<&str> = lines.by_ref().take(LINES).collect();
        if lines.next().is_some() {
            error_lines.push("... `homeostat check` shows all of it");
        }
        let (error, help) = (error_lines.join("\n"), failure::help(error));
        self.trouble.insert(Arc::new(Trouble { error, help }))
    }

    pub(super) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_deref()
    }

    pub(super) fn status(&self) -> ProviderStatus {
        ProviderStatus {
            from: self.from.to_string(),
            ok: self.trouble.is_none(),
            last_good_ago_ms: u64::try_from(self.good_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            last_error: self.trouble.as_deref().cloned(),
        }
    }
}
