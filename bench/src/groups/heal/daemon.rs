//! `homeostat run` over a list of routes, in the calling thread's namespace.

use anyhow::Result;

use super::super::document::Document;
use crate::program::Running;

/// A daemon that has converged. It ends when this is dropped.
pub(super) struct Daemon {
    pub(super) running: Running,
    _document: Document,
}

impl Daemon {
    /// Starts one with the first `size` routes and `more` in its document, and waits until it has converged.
    pub(super) fn start(size: usize, more: &str) -> Result<Self> {
        Self::keep(Document::of_routes(0..size, more)?)
    }

    /// The same with any document.
    pub(super) fn of(text: &str) -> Result<Self> {
        Self::keep(Document::new(text)?)
    }

    /// The same as [`Daemon::start`], of a daemon with more options.
    pub(super) fn with_options(size: usize, options: &[&str]) -> Result<Self> {
        let document = Document::of_routes(0..size, "")?;
        Ok(Daemon { running: document.keep_with(options)?, _document: document })
    }

    fn keep(document: Document) -> Result<Self> {
        Ok(Daemon { running: document.keep()?, _document: document })
    }
}
