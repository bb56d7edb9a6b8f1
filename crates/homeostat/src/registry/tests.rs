//! Whole documents, with the sections of all sources.

mod arbitrary;
mod documents;
mod loading;
mod schema;

use std::path::{Path, PathBuf};

use super::READER;

/// Documents for tests: `good` ones, and `bad` ones with what is said about them.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents").join(name)
}
