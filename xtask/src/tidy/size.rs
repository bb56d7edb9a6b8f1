//! How large crates and files are. A report, not a check.

use std::cmp::Reverse;

use super::workspace::{File, Workspace};

/// How many of the largest files are listed.
const LISTED: usize = 20;

/// One line for each member, then one for each of the largest files, with columns of equal width.
pub(crate) fn report(workspace: &Workspace) -> String {
    let mut files: Vec<(&str, usize, usize)> = workspace.rust().map(size).collect();
    files.sort_by_key(|(_, production, _)| Reverse(*production));
    let mut rows = vec![format!("{:>10} {:>8}  crate", "production", "tests")];
    for member in &workspace.members {
        let folder = member.manifest.trim_end_matches("Cargo.toml");
        let inside = || files.iter().filter(|(path, ..)| path.starts_with(folder));
        let production: usize = inside().map(|(_, production, _)| production).sum();
        let tests: usize = inside().map(|(.., tests)| tests).sum();
        rows.push(format!("{production:>10} {tests:>8}  {}", member.name));
    }
    rows.push(format!("{:>10} {:>8}  largest files", "production", "tests"));
    let largest = files.iter().take(LISTED);
    rows.extend(
        largest.map(|(path, production, tests)| format!("{production:>10} {tests:>8}  {path}")),
    );
    rows.join("\n")
}

/// Path, and lines of production code and of tests, without comments and blank lines.
fn size(file: &File) -> (&str, usize, usize) {
    let code = file.lines.iter().filter(|line| !line.code.trim().is_empty());
    let (tests, production): (Vec<_>, Vec<_>) =
        code.partition(|line| file.is_test() || line.is_test);
    (&file.path, production.len(), tests.len())
}

#[cfg(test)]
mod tests {
    use super::super::workspace::member;
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
