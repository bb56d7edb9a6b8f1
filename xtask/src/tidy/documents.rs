//! Required documents exist, relative links in Markdown lead to files and headings, the list of pages names every page,
//! and decisions are numbered without gaps and state status, context, decision and consequences.

use super::workspace::{File, Problem, Workspace};

const REQUIRED: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "STYLE.md",
    "deny.toml",
];

const CONTENTS: &str = "docs/README.md";
const DECISIONS: &str = "docs/decisions/";
const HEADINGS: &[&str] = &["## Status", "## Context", "## Decision", "## Consequences"];

pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let absent = REQUIRED.iter().filter(|path| workspace.file(path).is_none());
    let absent = absent.map(|path| Problem::of(path, "does not exist, but a reader expects it"));
    let mut problems: Vec<Problem> = absent.collect();
    for page in workspace.files.iter().filter(|file| file.has_extension("md")) {
        for (index, link) in links(&page.text) {
            if target(&page.path, &link).is_some_and(|path| !workspace.exists(&path)) {
                problems.push(page.problem_at(index, format!("the link `{link}` leads nowhere")));
            } else if !leads_to_heading(workspace, page, &link) {
                problems
                    .push(page.problem_at(index, format!("the link `{link}` names no heading")));
            }
        }
    }
    problems.extend(check_contents(workspace));
    problems.extend(check_decisions(workspace));
    problems
}

/// The target of a relative link on `page`; none for URLs and anchors.
fn target(page: &str, link: &str) -> Option<String> {
    let path = link.split('#').next().filter(|path| !path.is_empty() && !path.contains(':'))?;
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            // A link above the root is broken: the remaining `..` makes the path not exist.
            ".." if parts.pop().is_none() => parts.push(".."),
            "." | ".." => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Whether the part behind `#`, if there is one, is a heading of the page that the link leads to.
fn leads_to_heading(workspace: &Workspace, page: &File, link: &str) -> bool {
    let Some((path, anchor)) = link.split_once('#') else { return true };
    if path.contains(':') {
        return true;
    }
    let text = if path.is_empty() {
        &page.text
    } else {
        match target(&page.path, link).and_then(|path| workspace.file(&path)) {
            Some(file) if file.has_extension("md") => &file.text,
            _ => return true,
        }
    };
    prose(text).any(|(_, line)| line.starts_with('#') && slug(line) == anchor)
}

/// How a heading is called in links.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// The list of pages names each page of `docs/`.
fn check_contents(workspace: &Workspace) -> Vec<Problem> {
    let Some(contents) = workspace.file(CONTENTS) else { return Vec::new() };
    let listed: Vec<String> = links(&contents.text).into_iter().map(|(_, link)| link).collect();
    let pages = workspace.files.iter().filter(|file| file.has_extension("md"));
    let pages = pages.filter_map(|file| file.path.strip_prefix("docs/"));
    let pages = pages.filter(|page| !page.contains('/'));
    let missing =
        pages.filter(|page| *page != "README.md" && !listed.iter().any(|one| one == page));
    missing.map(|page| Problem::of(CONTENTS, format!("does not name `{page}`"))).collect()
}

/// Checks `docs/decisions/NNNN-title.md`, counted from 0001.
fn check_decisions(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut expected = 1;
    let is_decision =
        |file: &&File| file.path.starts_with(DECISIONS) && !file.path.ends_with("/README.md");
    for file in workspace.files.iter().filter(is_decision) {
        let lines: Vec<&str> = prose(&file.text).map(|(_, line)| line.trim_end()).collect();
        for heading in HEADINGS.iter().filter(|heading| !lines.contains(heading)) {
            problems.push(Problem::of(&file.path, format!("has no heading `{heading}`")));
        }
        let Some(number) = number(&file.path) else {
            let text = "a decision is named `NNNN-title.md`, in small letters";
            problems.push(Problem::of(&file.path, text));
            continue;
        };
        if number != expected {
            let text = format!("the number should be {expected:04}: no gaps, no twins");
            problems.push(Problem::of(&file.path, text));
        }
        expected += 1;
    }
    problems
}

fn number(path: &str) -> Option<u32> {
    let (digits, title) = path.strip_prefix(DECISIONS)?.strip_suffix(".md")?.split_once('-')?;
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let well_formed = digits.len() == 4 && !title.is_empty() && title.chars().all(plain);
    digits.parse().ok().filter(|_| well_formed)
}

/// The targets of all links and images outside of code, with the index of their line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let outside: String = line.split('`').step_by(2).collect();
        for rest in outside.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((index, target.to_owned()));
        }
    }
    found
}

/// Everything between two backticks on one line, outside of fenced blocks.
pub(super) fn code_spans(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text)
        .flat_map(|(index, line)| line.split('`').skip(1).step_by(2).map(move |span| (index, span)))
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

#[cfg(test)]
mod tests {
    use super::super::workspace::assert_problems;
    use super::*;

    #[track_caller]
    fn check_page(text: &str, expected: &[&str]) {
        let mut files: Vec<(&str, &str)> = REQUIRED.iter().map(|path| (*path, "")).collect();
        files.extend([("docs/page.md", text), ("docs/a/b.md", "")]);
        assert_problems(&check(&Workspace::of(&files)), expected);
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        check_page(
            "# Here\n[a](a/b.md) [b](../README.md) [c](./a/) [d](#here) [e](https://e.org/x) [f](..)",
            &[],
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let expected = [
            "docs/page.md:2: the link `a/c.md` leads nowhere",
            "docs/page.md:2: the link `../../README.md` leads nowhere",
            "docs/page.md:2: the link `/README.md` leads nowhere",
        ];
        check_page("\n[a](a/c.md) [b](../../README.md) [c](/README.md)", &expected);
    }

    #[test]
    fn a_missing_document_is_found() {
        let files: Vec<(&str, &str)> = REQUIRED.iter().skip(1).map(|path| (*path, "")).collect();
        let expected = ["ARCHITECTURE.md: does not exist, but a reader expects it"];
        assert_problems(&check(&Workspace::of(&files)), &expected);
    }

    #[test]
    fn links_to_headings_that_are_not_there_are_found() {
        let text = "# Two `words`, and more\n\n[a](#two-words-and-more) [b](#two) [c](page.md#two-words-and-more)\n\
                    [d](a/b.md#x)";
        let expected = [
            "docs/page.md:3: the link `#two` names no heading",
            "docs/page.md:4: the link `a/b.md#x` names no heading",
        ];
        check_page(text, &expected);
    }

    #[test]
    fn a_page_that_the_list_of_pages_does_not_name_is_found() {
        let files = [
            (CONTENTS, "[a](a.md)"),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/decisions/x.md", ""),
        ];
        let expected = ["docs/README.md: does not name `b.md`"];
        assert_problems(&check_contents(&Workspace::of(&files)), &expected);
    }

    const WHOLE: &str = "# T\n## Status\nAccepted\n## Context\n## Decision\n## Consequences\n";

    #[track_caller]
    fn check_names(names: &[&str], expected: &[&str]) {
        let paths: Vec<String> = names.iter().map(|name| format!("{DECISIONS}{name}")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), WHOLE)).collect();
        assert_problems(&check_decisions(&Workspace::of(&files)), expected);
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
        let expected = ["docs/decisions/0001-a.md: has no heading `## Context`"];
        assert_problems(&check_decisions(&Workspace::of(&files)), &expected);
    }

    const TEXT: &str = "# One\n[a](b.md#c) and ![d](e.png \"f\")\n```sh\n# no [x](y)\n`z`\n```\n\
                        ## Two\n`src/` or `[k](l)`\n";

    #[test]
    fn links_are_found_outside_of_code() {
        assert_eq!(links(TEXT), [(1, "b.md#c".to_owned()), (1, "e.png".to_owned())]);
    }

    #[test]
    fn code_spans_are_found_outside_of_fences() {
        assert_eq!(code_spans(TEXT).collect::<Vec<_>>(), [(7, "src/"), (7, "[k](l)")]);
    }

    #[test]
    fn prose_is_what_is_outside_of_fences() {
        let headings = prose(TEXT).filter(|(_, line)| line.starts_with('#'));
        assert_eq!(headings.collect::<Vec<_>>(), [(0, "# One"), (6, "## Two")]);
    }
}
