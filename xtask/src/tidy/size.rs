//! Files stay small: one idea each.

use super::problem::Problem;
use super::workspace::{File, Workspace};

const MOST_PRODUCTION: usize = 400;
const MANY_PRODUCTION: usize = 250;
const MOST_TEST: usize = 800;

/// Finds the files that must be split.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let over = |(file, lines, most, what): (&File, usize, usize, &str)| {
        let text = format!("{lines} lines of {what}; split by idea past {most}");
        (lines > most).then(|| Problem::of(&file.path, text))
    };
    measured(workspace).filter_map(over).collect()
}

/// Names the files that grow towards their limit.
pub(crate) fn notes(workspace: &Workspace) -> Vec<Problem> {
    let large = |(file, lines, most, what): (&File, usize, usize, &str)| {
        let many = most == MOST_PRODUCTION && (MANY_PRODUCTION + 1..=most).contains(&lines);
        many.then(|| {
            Problem::of(&file.path, format!("{lines} lines of {what}; most files have less"))
        })
    };
    measured(workspace).filter_map(large).collect()
}

/// Each Rust file's lines of production and of tests, with their limit and name.
fn measured(workspace: &Workspace) -> impl Iterator<Item = (&File, usize, usize, &'static str)> {
    workspace.rust().flat_map(|(file, rust)| {
        let shipped = if file.is_test() { 0 } else { rust.production().count() };
        let tests = rust.lines.len() - shipped;
        [(file, shipped, MOST_PRODUCTION, "production"), (file, tests, MOST_TEST, "tests")]
    })
}

#[cfg(test)]
mod tests {
    use super::super::problem::assert_problems;
    use super::*;

    fn file(production: usize, tests: usize) -> String {
        let inside = "    x();\n".repeat(tests.saturating_sub(3));
        format!("{}#[cfg(test)]\nmod tests {{\n{inside}}}\n", "x();\n".repeat(production))
    }

    #[track_caller]
    fn check_file(path: &str, text: &str, problems: &[&str], expected_notes: &[&str]) {
        let workspace = Workspace::of(&[(path, text)]);
        assert_problems(&check(&workspace), problems);
        assert_problems(&notes(&workspace), expected_notes);
    }

    #[test]
    fn tests_do_not_count_as_production() {
        check_file("a.rs", &file(250, 800), &[], &[]);
    }

    #[test]
    fn a_large_file_is_noted_and_a_huge_one_refused() {
        let note = ["a.rs: 251 lines of production; most files have less"];
        check_file("a.rs", &file(251, 3), &[], &note);
        let problem = ["a.rs: 401 lines of production; split by idea past 400"];
        check_file("a.rs", &file(401, 3), &problem, &[]);
    }

    #[test]
    fn huge_tests_are_refused() {
        let problem = ["a.rs: 801 lines of tests; split by idea past 800"];
        check_file("a.rs", &file(1, 801), &problem, &[]);
        let problem = ["tests/a.rs: 801 lines of tests; split by idea past 800"];
        check_file("tests/a.rs", &"x();\n".repeat(801), &problem, &[]);
    }
}
