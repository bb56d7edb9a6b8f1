//! What a program builds along with the kit: no database, no templates, and no feature of a shared crate that changes
//! how it works for others.
#![expect(clippy::disallowed_methods, reason = "only cargo knows what it would build")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::process::Command;

/// Name, version and features of all crates that are built for a package without its default features.
fn built(package: &str) -> BTreeSet<String> {
    let args = ["tree", "--offline", "--no-default-features", "--edges", "normal,build"];
    let mut tree = Command::new(env!("CARGO"));
    tree.current_dir(env!("CARGO_MANIFEST_DIR")).args(args);
    let output =
        tree.args(["--package", package, "--prefix", "none", "--format", "{p}|{f}"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[track_caller]
fn check(package: &str, most: usize) {
    let built = built(package);
    let name = |line: &str| line.split(' ').next().unwrap().to_owned();
    let names: BTreeSet<String> = built.iter().map(|line| name(line)).collect();
    for heavy in ["rusqlite", "libsqlite3-sys", "minijinja", "indexmap"] {
        assert!(!names.contains(heavy), "{package} builds {heavy}: {built:#?}");
    }
    let is_ordered =
        |line: &String| line.starts_with("serde_json ") && line.contains("preserve_order");
    assert!(!built.iter().any(is_ordered), "{package} changes the maps of everybody's JSON");
    assert!(names.len() <= most, "{package} builds {} crates: {built:#?}", names.len());
}

#[test]
fn the_kit_without_its_default_features_builds_30_crates_and_no_database() {
    check("homeostat-kit", 30);
}

#[test]
fn the_network_in_one_call_builds_36_crates_and_no_database() {
    check("homeostat-rtnl", 36);
}
