//! How large crates and files are. A report, not a check.

use std::cmp::Reverse;

use super::workspace::{File, Workspace};

/// How many of the largest files are listed.
const LISTED: usize = 20;

/// Lines of code, without comments and blank lines.
#[derive(Default)]
struct Size {
    production: usize,
    tests: usize,
}

/// One line for each member, then one for each of the largest files, with columns of equal width.
pub(crate) fn report(workspace: &Workspace) -> String {
    let mut files: Vec<(&File, Size)> = sizes(workspace).collect();
    files.sort_by_key(|(_, size)| Reverse(size.production));
    let mut rows = vec![row("production", "tests", "crate")];
    for member in workspace.members() {
        let folder = member.manifest.trim_end_matches("Cargo.toml");
        let inside = files.iter().filter(|(file, _)| file.path.starts_with(folder));
        let (mut production, mut tests) = (0, 0);
        for (_, size) in inside {
            production += size.production;
            tests += size.tests;
        }
        rows.push(row(&production.to_string(), &tests.to_string(), &member.name));
    }
    rows.push(row("production", "tests", "largest files"));
    rows.extend(files.iter().take(LISTED).map(|(file, size)| {
        row(&size.production.to_string(), &size.tests.to_string(), &file.path)
    }));
    rows.join("\n")
}

fn row(production: &str, tests: &str, name: &str) -> String {
    format!("{production:>10} {tests:>8}  {name}")
}

fn sizes(workspace: &Workspace) -> impl Iterator<Item = (&File, Size)> {
    workspace.rust().map(|(file, rust)| {
        let mut size = Size::default();
        for line in rust.lines.iter().filter(|line| !line.code.trim().is_empty()) {
            if file.is_test() || line.is_test {
                size.tests += 1;
            } else {
                size.production += 1;
            }
        }
        (file, size)
    })
}

#[cfg(test)]
mod tests {
    use super::super::packages::member;
    use super::*;

    #[test]
    fn crates_and_files_are_listed_with_their_lines_of_code() {
        let large = "//! Large.\n\nfn a() {}\nfn b() {}\n#[cfg(test)]\nmod tests {}\n";
        let files = [
            ("crates/x/src/lib.rs", "//! Small.\nfn a() {}\n"),
            ("crates/x/src/large.rs", large),
            ("crates/x/tests/a.rs", "fn c() {}\n"),
        ];
        let report = report(&Workspace::of(&files).with(vec![member("x", &[])]));
        let expected = "
production    tests  crate
         3        3  x
production    tests  largest files
         2        2  crates/x/src/large.rs
         1        0  crates/x/src/lib.rs
         0        1  crates/x/tests/a.rs";
        assert_eq!(report, expected.trim_start_matches('\n'));
    }
}
