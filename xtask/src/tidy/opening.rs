//! Every source file opens with `//!`: one sentence on what it is for.

use super::problem::Problem;
use super::workspace::Workspace;

/// Checks the first line of every member's source files.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let sources = workspace.files.iter().filter(|file| file.is_member_source());
    sources
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| Problem::at(&file.path, 0, "does not open with `//!` and what the file is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::problem::assert_problems;
    use super::*;

    #[test]
    fn a_file_that_opens_with_its_purpose_passes() {
        let files = [("crates/x/src/a.rs", "//! Adds.\n"), ("crates/x/tests/b.rs", "fn f() {}\n")];
        assert_problems(&check(&Workspace::of(&files)), &[]);
    }

    #[test]
    fn a_file_that_opens_with_anything_else_is_found() {
        let files = [("xtask/src/a.rs", "\n//! Late.\n")];
        let expected = ["xtask/src/a.rs:1: does not open with `//!` and what the file is for"];
        assert_problems(&check(&Workspace::of(&files)), &expected);
    }
}
