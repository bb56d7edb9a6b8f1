//! The provider that reads a file whenever it is asked.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Answer, Provider};

/// A file with a desired state in it. An unreadable or broken file is unknown, with the reason.
#[derive(Debug)]
pub struct File<F> {
    path: PathBuf,
    parse: F,
}

impl<F> File<F> {
    /// Reads `path` and understands it by `parse`.
    pub fn new(path: impl Into<PathBuf>, parse: F) -> Self {
        File { path: path.into(), parse }
    }
}

impl<W, E, F> Provider for File<F>
where
    W: Send + Sync + 'static,
    E: fmt::Display,
    F: FnMut(&str) -> Result<W, E> + Send,
{
    type DesiredState = W;

    async fn answer(&mut self) -> Answer<W> {
        let read = fs::read_to_string(&self.path).map_err(|error| error.to_string());
        let parsed = read.and_then(|text| (self.parse)(&text).map_err(|error| error.to_string()));
        match parsed {
            Ok(desired) => Answer::DesiredState(Arc::new(desired)),
            Err(why) => Answer::Unknown { why: format!("`{}`: {why}", self.path.display()) },
        }
    }
}
