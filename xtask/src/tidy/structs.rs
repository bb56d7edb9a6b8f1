//! Public structs with public fields, in the crates that other programs build on, may get fields later: they are
//! `#[non_exhaustive]`, or the page on compatibility names them.

use super::documents::code_spans;
use super::workspace::{File, Problem, Workspace};

const PAGE: &str = "docs/compatibility.md";

/// The crates whose types are held to the page.
const CRATES: [&str; 4] = ["core", "engine", "kit", "testkit"];

/// Passes if there is no page: links and the list of documents have it.
pub(crate) fn check(workspace: &Workspace) -> Vec<Problem> {
    let Some(page) = workspace.file(PAGE) else { return Vec::new() };
    let named: Vec<&str> = code_spans(&page.text).map(|(_, span)| last_part(span)).collect();
    let is_held = |file: &&File| {
        !file.is_test()
            && CRATES
                .iter()
                .any(|name| file.path.starts_with(&format!("crates/homeostat-{name}/src/")))
    };
    let mut problems = Vec::new();
    for file in workspace.rust().filter(is_held) {
        for (index, name) in open_structs(file).filter(|(_, name)| !named.contains(name)) {
            let text = format!(
                "`{name}` has public fields: make it `#[non_exhaustive]`, or name it in {PAGE}"
            );
            problems.push(file.problem_at(index, text));
        }
    }
    problems
}

fn last_part(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Public structs that anybody may fill in or take apart, by the line of their beginning.
fn open_structs(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let begins = file.lines.iter().enumerate().filter(|(_, line)| !line.is_test);
    begins.filter_map(|(index, line)| {
        let rest = line.code.strip_prefix("pub struct ")?;
        let name = rest.split(['<', ' ', '{', '(', ';']).next()?;
        let above = file.lines.get(..index)?.iter().rev().map(|line| line.code.trim());
        let mut attributes =
            above.take_while(|code| !code.is_empty() && !code.ends_with(['}', ';']));
        let is_closed = attributes.any(|code| code.contains("non_exhaustive"));
        let below = file.lines.get(index + 1..)?.iter().map(|line| line.code.as_str());
        let mut fields = below.take_while(|code| !code.starts_with('}'));
        let has_fields =
            rest.trim_end().ends_with('{') && fields.any(|code| code.starts_with("    pub "));
        (has_fields && !is_closed).then_some((index, name))
    })
}

#[cfg(test)]
mod tests {
    use super::super::workspace::assert_problems;
    use super::*;

    #[track_caller]
    fn check_file(source: &str, expected: &[&str]) {
        let page = "`Named` and `journal::Batch` are exhaustive.\n";
        let path = "crates/homeostat-core/src/a.rs";
        let workspace = Workspace::of(&[(path, source), (PAGE, page)]);
        assert_problems(&check(&workspace), expected);
    }

    #[test]
    fn a_struct_that_anybody_may_fill_in_is_found() {
        let problem = "crates/homeostat-core/src/a.rs:2: `Open` has public fields: make it \
                       `#[non_exhaustive]`, or name it in docs/compatibility.md";
        check_file("#[derive(Debug)]\npub struct Open<K> {\n    pub key: K,\n}\n", &[problem]);
    }

    #[test]
    fn those_that_are_closed_or_named_pass() {
        check_file("#[non_exhaustive]\n#[derive(Debug)]\npub struct A {\n    pub a: u8,\n}\n", &[]);
        check_file("pub struct A {\n    a: u8,\n}\n", &[]);
        check_file(
            "pub struct Named {\n    pub a: u8,\n}\npub struct Batch {\n    pub a: u8,\n}\n",
            &[],
        );
        check_file("pub(crate) struct A {\n    pub(crate) a: u8,\n}\npub struct B(u8);\n", &[]);
    }
}
