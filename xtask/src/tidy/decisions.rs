//! Decisions are numbered without gaps and tell status, context, decision and consequences.

use super::markdown;
use super::problem::Problem;
use super::workspace::{File, Workspace};

const PLACE: &str = "docs/decisions/";
const HEADINGS: &[&str] = &["Status", "Context", "Decision", "Consequences"];

/// Checks `docs/decisions/NNNN-title.md`, counted from 0001.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let is_decision =
        |file: &&File| file.path.starts_with(PLACE) && !file.path.ends_with("/README.md");
    let files: Vec<&File> = workspace.files.iter().filter(is_decision).collect();
    let mut problems: Vec<Problem> = files.iter().flat_map(|file| missing_headings(file)).collect();
    let (numbered, others): (Vec<_>, Vec<_>) = files
        .iter()
        .map(|file| (number(&file.path), file))
        .partition(|(number, _)| number.is_some());
    problems.extend(others.iter().map(|(_, file)| {
        Problem::of(&file.path, "a decision is named `NNNN-title.md`, in small letters")
    }));
    for (expected, (number, file)) in (1..).zip(numbered) {
        if number != Some(expected) {
            let text = format!("the number should be {expected:04}: no gaps, no twins");
            problems.push(Problem::of(&file.path, text));
        }
    }
    problems
}

fn missing_headings(file: &File) -> Vec<Problem> {
    let found: Vec<&str> = markdown::headings(&file.text).map(|(_, heading)| heading).collect();
    let missing = HEADINGS.iter().filter(|heading| !found.contains(heading));
    missing.map(|heading| Problem::of(&file.path, format!("has no heading `{heading}`"))).collect()
}

fn number(path: &str) -> Option<u32> {
    let (digits, title) = path.strip_prefix(PLACE)?.strip_suffix(".md")?.split_once('-')?;
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let well_formed = digits.len() == 4 && !title.is_empty() && title.chars().all(plain);
    if well_formed { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::problem::assert_problems;
    use super::*;

    const WHOLE: &str = "# T\n## Status\nAccepted\n## Context\n## Decision\n## Consequences\n";

    #[track_caller]
    fn check_names(names: &[&str], expected: &[&str]) {
        let paths: Vec<String> = names.iter().map(|name| format!("{PLACE}{name}")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), WHOLE)).collect();
        assert_problems(&check(&Workspace::of(&files)), expected);
    }

    #[test]
    fn numbered_decisions_pass() {
        check_names(&["0001-one-diff.md", "0002-sqlite.md", "README.md"], &[]);
    }

    #[test]
    fn gaps_twins_and_other_names_are_found() {
        let gap = "docs/decisions/0003-b.md: the number should be 0002: no gaps, no twins";
        check_names(&["0001-a.md", "0003-b.md"], &[gap]);
        let twin = "docs/decisions/0001-b.md: the number should be 0002: no gaps, no twins";
        check_names(&["0001-a.md", "0001-b.md"], &[twin]);
        let name =
            "docs/decisions/2-Plan.md: a decision is named `NNNN-title.md`, in small letters";
        check_names(&["2-Plan.md"], &[name]);
    }

    #[test]
    fn a_missing_heading_is_found() {
        let text = WHOLE.replace("## Context\n", "");
        let files = [("docs/decisions/0001-a.md", text.as_str())];
        let expected = ["docs/decisions/0001-a.md: has no heading `Context`"];
        assert_problems(&check(&Workspace::of(&files)), &expected);
    }
}
