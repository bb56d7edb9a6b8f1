//! Everything that we build from comes from crates.io under a permissive licence.
//!
//! The list of licences is the one in `deny.toml`, so that it holds without cargo-deny as well.

use super::packages::Package;
use super::problem::Problem;
use super::spdx;
use super::workspace::Workspace;

const LIST: &str = "deny.toml";
const LOCK: &str = "Cargo.lock";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all dependencies, those of tests included.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let Some(list) = workspace.file(LIST) else { return Vec::new() };
    let allowed = allowed(&list.text);
    if allowed.is_empty() {
        return vec![Problem::of(LIST, "allows no licence: `allow = [...]` is missing or empty")];
    }
    let lock = workspace.file(LOCK).map_or("", |file| &file.text);
    workspace
        .packages
        .iter()
        .filter_map(|package| complaint(package, &allowed).map(|text| placed(lock, package, text)))
        .collect()
}

fn complaint(package: &Package, allowed: &[String]) -> Option<String> {
    let source = package.source.as_deref()?;
    if source != CRATES_IO {
        return Some(format!("`{}` comes from {source}, not from crates.io", package.name));
    }
    match package.licence.as_deref() {
        None => Some(format!("`{}` states no licence", package.name)),
        Some(licence) if spdx::is_satisfied(licence, allowed) => None,
        Some(licence) => Some(format!("`{}` is under {licence}: not in {LIST}", package.name)),
    }
}

fn placed(lock: &str, package: &Package, text: String) -> Problem {
    let entry = format!("name = \"{}\"", package.name);
    match lock.lines().position(|line| line == entry) {
        Some(index) => Problem::at(LOCK, index, text),
        None => Problem::of(LOCK, text),
    }
}

/// The strings of `allow = [...]` in the section `[licenses]`.
fn allowed(list: &str) -> Vec<String> {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let section = lines.skip_while(|line| *line != "[licenses]").skip(1);
    let section = section.take_while(|line| !line.starts_with('[')).collect::<Vec<_>>().join(" ");
    let entries = section.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']'));
    let entries = entries.map_or("", |(entries, _)| entries);
    entries.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::problem::assert_problems;
    use super::*;
    use crate::run::root;

    const DENY: &str =
        "[bans]\n[licenses]\nallow = [\n    \"MIT\", # short\n    \"ISC\",\n]\n[sources]\n";

    fn package(source: Option<&str>, licence: Option<&str>) -> Package {
        let (source, licence) = (source.map(str::to_owned), licence.map(str::to_owned));
        Package { name: "x".to_owned(), source, licence, ..Package::default() }
    }

    #[track_caller]
    fn check_package(package: Package, expected: &[&str]) {
        let files = [(LIST, DENY), (LOCK, "[[package]]\nname = \"x\"\n")];
        assert_problems(&check(&Workspace::of(&files).with(vec![package])), expected);
    }

    #[test]
    fn permissive_packages_of_crates_io_and_members_pass() {
        check_package(package(Some(CRATES_IO), Some("MIT OR GPL-3.0")), &[]);
        check_package(package(None, None), &[]);
    }

    #[test]
    fn other_licences_and_places_are_found() {
        let expected = ["Cargo.lock:2: `x` is under GPL-3.0: not in deny.toml"];
        check_package(package(Some(CRATES_IO), Some("GPL-3.0")), &expected);
        let expected = ["Cargo.lock:2: `x` states no licence"];
        check_package(package(Some(CRATES_IO), None), &expected);
        let expected = ["Cargo.lock:2: `x` comes from git+https://e.org/x, not from crates.io"];
        check_package(package(Some("git+https://e.org/x"), Some("MIT")), &expected);
    }

    #[test]
    fn an_empty_list_is_found() {
        let expected = ["deny.toml: allows no licence: `allow = [...]` is missing or empty"];
        assert_problems(&check(&Workspace::of(&[(LIST, "[licenses]\n")])), &expected);
    }

    #[test]
    fn the_real_list_is_read() {
        let list = std::fs::read_to_string(root().join(LIST)).unwrap();
        let allowed = allowed(&list);
        assert!(allowed.contains(&"Apache-2.0 WITH LLVM-exception".to_owned()), "{allowed:?}");
        assert!(!allowed.iter().any(|licence| licence.contains("GPL")), "{allowed:?}");
    }
}
