//! The page about reconciliation names every scenario, and none that does not exist.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/reconciliation.md");

/// The tests of a file, as the page calls them.
fn tests(file: &Path, module: Option<&str>) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("fn ").or(line.strip_prefix("async fn ")) {
            let name = rest.split('(').next().unwrap();
            let called = module.map_or(name.to_owned(), |module| format!("{module}::{name}"));
            found.extend(is_test.then_some(called));
        }
        is_test = line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    }
    found
}

fn scenarios() -> BTreeSet<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut found = tests(&directory.join("crashes.rs"), None);
    for entry in fs::read_dir(directory.join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        found.extend(tests(&path, path.file_stem().unwrap().to_str()));
    }
    found
}

/// What stands in backticks on the page and is a sentence.
fn named() -> BTreeSet<String> {
    let quoted = PAGE.split('`').skip(1).step_by(2);
    let is_name = |text: &&str| {
        text.matches('_').count() > 2
            && !text.contains(|c: char| !c.is_alphanumeric() && !"_:".contains(c))
    };
    quoted.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn every_scenario_of_the_page_is_a_test_and_every_test_stands_on_the_page() {
    let (named, tested) = (named(), scenarios());
    assert!(tested.len() > 40, "{tested:?}");
    let untested: Vec<_> = named.difference(&tested).collect();
    assert!(untested.is_empty(), "the page names tests that do not exist: {untested:?}");
    let unnamed: Vec<_> = tested.difference(&named).collect();
    assert!(unnamed.is_empty(), "the page does not name {unnamed:?}");
}
