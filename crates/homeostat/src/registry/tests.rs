//! Whole documents, with the sections of all sources.

mod arbitrary;
mod documents;
mod loading;
mod schema;

use std::path::{Path, PathBuf};

use super::{READER, SOURCES, find};

/// Documents for tests: `good` ones, and `bad` ones with what is said about them.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents").join(name)
}

#[test]
fn every_source_is_found_by_its_name_and_those_that_create_scopes_come_first() {
    for source in SOURCES {
        let named = SOURCES.iter().filter(|other| other.name() == source.name());
        assert_eq!(named.count(), 1, "{}", source.name());
        assert!(find(source.name()).is_some(), "{}", source.name());
    }
    assert!(SOURCES.is_sorted_by_key(|source| source.scopes.is_none()));
    assert!(find("nosuch").is_none());
}
