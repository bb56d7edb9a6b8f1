//! Required documents exist, and relative links in Markdown lead to files.

use super::markdown;
use super::problem::Problem;
use super::workspace::{File, Workspace};

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

/// Checks required files and the relative links of all Markdown files.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let absent = REQUIRED.iter().filter(|path| workspace.file(path).is_none());
    let absent = absent.map(|path| Problem::of(path, "does not exist, but a reader expects it"));
    let pages = workspace.files.iter().filter(|file| file.path.rsplit('.').next() == Some("md"));
    absent.chain(pages.flat_map(|page| broken_links(workspace, page))).collect()
}

fn broken_links(workspace: &Workspace, page: &File) -> Vec<Problem> {
    let links = markdown::links(&page.text).into_iter();
    let broken = links
        .filter(|(_, link)| target(&page.path, link).is_some_and(|path| !workspace.exists(&path)));
    let text = |link: &str| format!("the link `{link}` leads nowhere");
    broken.map(|(index, link)| Problem::at(&page.path, index, text(&link))).collect()
}

/// The target of a relative link on `page`; none for URLs and anchors.
fn target(page: &str, link: &str) -> Option<String> {
    let path = link.split('#').next().filter(|path| !path.is_empty())?;
    if path.contains(':') {
        return None;
    }
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

#[cfg(test)]
mod tests {
    use super::super::problem::assert_problems;
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
            "[a](a/b.md#x) [b](../README.md) [c](./a/) [d](#here) [e](https://e.org/x) [f](..)",
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
}
