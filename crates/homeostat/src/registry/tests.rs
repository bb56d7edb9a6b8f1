//! Whole documents, with the sections of all sources.

mod arbitrary;
mod documents;
mod loading;
mod schema;

use std::fmt::Write as _;
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

#[test]
fn the_page_about_trials_says_of_every_kind_of_step_how_it_is_undone() {
    let mut table =
        "| source | step | in a trial | lost otherwise |\n|---|---|---|---|\n".to_owned();
    for source in SOURCES {
        assert!(!source.steps.is_empty(), "{}", source.name());
        for kind in source.steps {
            let (name, step, undo) = (source.name(), kind.step, kind.undo.words());
            let loses = kind.loses.unwrap_or("");
            writeln!(table, "| {name} | {step} | {undo} | {loses} |").unwrap();
        }
    }
    let page = include_str!("../../../../docs/safe-apply.md");
    assert!(page.contains(&table), "docs/safe-apply.md should have this table:\n{table}");
}
