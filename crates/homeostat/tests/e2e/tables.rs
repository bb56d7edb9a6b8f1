//! The tables of scenarios at the head of some files name tests that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every file below a directory.
fn files_below(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, all);
        } else {
            all.push(path);
        }
    }
}

/// The names of tests by their module: `module::test`, and `test` alone.
fn tests() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        for place in ["src", "tests"].map(|place| entry.as_ref().unwrap().path().join(place)) {
            if place.is_dir() {
                files_below(&place, &mut files);
            }
        }
    }
    files.retain(|path| path.extension().is_some_and(|kind| kind == "rs"));
    let mut names = BTreeSet::new();
    for path in files {
        let module = path.file_stem().unwrap().to_str().unwrap();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let line = line.trim_start().trim_start_matches("async ");
            let name = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next());
            if let Some(name) = name {
                names.extend([name.to_owned(), format!("{module}::{name}")]);
            }
        }
    }
    names
}

#[test]
fn every_test_that_a_table_names_is_there() {
    let known = tests();
    for table in [include_str!("trial.rs"), include_str!("files.rs")] {
        let rows = table.lines().filter_map(|line| line.strip_prefix("//! | "));
        // The first column speaks of commands, too.
        let cells: Vec<&str> =
            rows.filter_map(|row| row.split_once(" | ")).map(|(_, cell)| cell).collect();
        let quoted = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let mut count = 0;
        // Benchmarks and commands have spaces in them, and `..` stands for the name before with another end.
        for name in quoted.filter(|name| !name.contains([' ', '.'])) {
            assert!(known.contains(name), "no test is called `{name}`");
            count += 1;
        }
        assert!(count > 30, "only {count} tests are named");
    }
}
